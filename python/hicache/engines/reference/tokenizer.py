"""Text to token ids and back, and chat templates, from what a GGUF file says about its tokenizer.

For: the real model in the demo and in tests.
Assumes: byte-level BPE in the GPT-2 manner, with single digits split off (SmolLM2's form).
Refuses to know: GGUF (it gets plain values), weights.
On error: `MissingPackage` where `tokenizers` or `jinja2` is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

SPECIAL = 3  # token_type of control tokens such as <|im_end|>


class MissingPackage(ImportError):
    """A package that the real model needs is not installed."""

    def __init__(self, package: str, install: str) -> None:
        super().__init__(f"the real model needs the package {package}: pip install {install}", name=package)


def needed(module: str) -> Any:
    """Import `module`, or say which package to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(module, module) from error


class Tokenizer:
    """Byte-level BPE with a chat template.

    tokens:        every token's text, by id
    merges:        "left right", in order of priority
    types:         per token; 3 marks special ones
    chat_template: a jinja2 template over `messages`
    end:           id of the token that ends an answer
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], types: Sequence[int], chat_template: str, end: int
    ) -> None:
        tokenizers = needed("tokenizers")
        pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        self._bpe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=pairs))
        self._bpe.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [
                tokenizers.pre_tokenizers.Digits(individual_digits=True),
                tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        self._bpe.decoder = tokenizers.decoders.ByteLevel()
        special = [token for token, kind in zip(tokens, types, strict=True) if kind == SPECIAL]
        self._bpe.add_special_tokens(special)
        # As chat templates expect it: a block's own line break and indentation are not part of the text.
        environment = needed("jinja2").Environment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(chat_template)
        self.end = end

    def encode(self, text: str) -> list[int]:
        """Token ids; special tokens written out in `text` become their ids."""
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens; bytes that are no UTF-8 (yet) become U+FFFD."""
        text: str = self._bpe.decode(list(ids), skip_special_tokens=True)
        return text

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """A conversation of {"role", "content"} as text, ready for the assistant's answer."""
        text: str = self._template.render(messages=messages, add_generation_prompt=True)
        return text

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """`render`, as token ids."""
        return self.encode(self.render(messages))

    def stream(self) -> TextStream:
        """Turns an answer's tokens into text as they come."""
        return TextStream(self)


class TextStream:
    """Text of tokens one by one: a character whose bytes are split over tokens comes with its last one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """The text that is complete with `token`, often one word, sometimes nothing."""
        self._pending.append(token)
        text = self._tokenizer.decode(self._pending)
        if text.endswith("\ufffd"):
            return ""
        self._pending.clear()
        return text
