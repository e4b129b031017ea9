"""The demo's documents and questions as token ids.

For: `demo_part.py`.
Assumes: `demo_plan.MODULES` are modules whose source files are installed.
Refuses to know: the cache.
On error: an `OSError` where Python was installed without its source files.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Protocol

from hicache.cli.demo_plan import MODULES, QUESTIONS, SYSTEM, Settings, Step

MARK = "\0"  # stands for the document while the chat template is filled in; it is in no source file


class Stream(Protocol):
    """Turns tokens into text as they come."""

    def push(self, token: int) -> str: ...


class Text(Protocol):
    """A tokenizer; `end` is the token that ends an answer."""

    end: int

    def encode(self, text: str) -> list[int]: ...

    def render(self, messages: Sequence[Mapping[str, str]]) -> str: ...

    def stream(self) -> Stream: ...


class Bytes:
    """For a random model: a token a byte, no chat, and answers that never end by themselves."""

    vocabulary = 256
    end = -1

    def encode(self, text: str) -> list[int]:
        """UTF-8."""
        return list(text.encode())

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The messages one after the other."""
        return "\n\n".join(message["content"] for message in messages)

    def stream(self) -> Bytes:
        """There is nothing to wait for."""
        return self

    def push(self, token: int) -> str:
        """Noise, made printable."""
        return chr(token) if 32 < token < 127 else "·"


class Prompts:
    """Prompts whose first `prefix` tokens, whole pages, are the same for all questions about a document.

    The system's text and the document are the prefix. A question that is shorter than a page is never found
    again, because only whole pages are; it is computed each time.
    """

    def __init__(self, text: Text, settings: Settings) -> None:
        asked = [_around_document(text, question) for question in QUESTIONS]
        head = text.encode(asked[0][0])
        self._tails = [text.encode(tail) for _, tail in asked]
        self.prefix = settings.tokens // settings.page_size * settings.page_size
        self._prefixes = [
            (head + text.encode(_source(module)))[: self.prefix] for module in MODULES[: settings.documents]
        ]
        self.longest = self.prefix + max(len(tail) for tail in self._tails) + settings.answer_tokens

    def of(self, step: Step) -> list[int]:
        """The step's prompt."""
        return self._prefixes[step.document] + self._tails[step.question]


def _around_document(text: Text, question: str) -> tuple[str, str]:
    rendered = text.render(
        [
            {"role": "system", "content": f"{SYSTEM}\n\n{MARK}"},
            {"role": "user", "content": question},
        ]
    )
    before, _, after = rendered.partition(MARK)
    return before, after


def _source(module: str) -> str:
    return inspect.getsource(importlib.import_module(module))
