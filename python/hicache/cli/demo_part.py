"""One of the demo's two processes: empty pools, a store, and questions one after the other.

For: `demo.py`, which starts `python -m hicache.cli.demo_part SETTINGS PART RESULTS` twice.
Assumes: SETTINGS is the JSON of a `demo_plan.Settings`, PART 1 or 2, RESULTS a file to write.
Refuses to know: the other process.
On error: one line on stderr, and exit 1 where the model's package is missing or the store fails.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from hicache.cli.demo_plan import MODULES, QUESTIONS, Answer, Room, Settings, Step, room, steps
from hicache.cli.demo_report import tier_lines
from hicache.cli.demo_text import Bytes, Prompts, Text
from hicache.cli.stack import Stack, Tiers, Ways, random_model, real_model, serving, warm_up
from hicache.engines.reference import Model, Request, Result
from hicache.engines.reference.tokenizer import MissingPackage
from hicache.errors import HiCacheError

CHUNK_TOKENS = 512


class Part:
    """The process's model, prompts and terminal."""

    def __init__(self, settings: Settings, part: int, console: Console) -> None:
        self._settings, self._part, self._console = settings, part, console
        self._ways = Ways(settings.write, settings.prefetch, settings.throttle, settings.host_mode)
        self._text, self._model = self._load()
        self._prompts = Prompts(self._text, settings)
        self._room = room(settings, self._prompts.longest)

    def run(self) -> list[Answer]:
        """All steps; afterwards everything is in the store."""
        settings = self._settings
        tiers = Tiers(settings.page_size, self._room.device, self._room.host, Path(settings.store))
        planned = steps(settings.documents, self._part, settings.host_mode)
        with serving(
            self._model,
            settings.model,
            tiers,
            chunk_tokens=CHUNK_TOKENS,
            max_running=1,
            ways=self._ways,
        ) as stack:
            self._say_sizes(self._room, stack)
            return [self._answer(stack, step, number, len(planned)) for number, step in enumerate(planned, 1)]

    def _load(self) -> tuple[Text, Model]:
        started = time.perf_counter()
        with self._console.status(f"process {os.getpid()}: loading the model"):
            text, model = self._read()
            warm_up(model, CHUNK_TOKENS)
        took = time.perf_counter() - started
        self._console.print(f"process {os.getpid()}: the model is loaded ({took:.1f} s)", highlight=False)
        return text, model

    def _read(self) -> tuple[Text, Model]:
        if self._settings.model == "random":
            torch.set_num_threads(1)  # over products this small, threads mostly wait for each other
            return Bytes(), random_model(2, 64, 0, torch.float64, vocabulary=Bytes.vocabulary)
        real = real_model()
        return real.tokenizer, real.model

    def _say_sizes(self, sizes: Room, stack: Stack) -> None:
        page, count = self._settings.page_size, self._settings.documents
        keeps = "holds" if self._settings.host_mode == "cache" else "has room in passing for"
        self._console.print(
            f"{count} documents of {self._prompts.prefix:,} tokens are {count * self._prompts.prefix:,}; "
            f"the device pool holds {sizes.device * page:,} tokens, the host pool {keeps} "
            f"{sizes.host * page:,}; "
            f"both are empty, the store {'is too' if self._part == 1 else 'is not'}",
            highlight=False,
        )

    def _answer(self, stack: Stack, step: Step, number: int, count: int) -> Answer:
        document, question = MODULES[step.document] + ".py", QUESTIONS[step.question]
        console = self._console
        console.print(f"\n[bold]{number}/{count} {document}[/]: {question}", highlight=False)
        result, text = self._generate(stack, self._prompts.of(step))
        # Pages that wait for the store hold their room on the host: a model that reads faster than a disk
        # writes would find none for the next document, and the plan would come to nothing.
        with console.status("pages go to the store"):
            stack.cache.drain(self._ways.patience)
        answer = Answer(
            process=os.getpid(),
            document=document,
            question=question,
            expected=step.source,
            text=text,
            prefix_tokens=self._prompts.prefix,
            first_token_s=result.first_token_s or 0.0,
            **{name: getattr(result, name) for name in _SHARED},
        )
        console.print(tier_lines(answer), highlight=False)
        return answer

    def _generate(self, stack: Stack, prompt: list[int]) -> tuple[Result, str]:
        """Runs one request; prints its text as it is generated."""
        said: list[str] = []
        stream = self._text.stream()
        waiting = self._console.status("reading")

        def on_token(token: int) -> None:
            waiting.stop()
            if token != self._text.end:
                said.append(stream.push(token))
                self._console.print(said[-1], end="", style="green", markup=False, highlight=False)
                self._console.file.flush()

        stop = frozenset({self._text.end})
        limit = self._settings.answer_tokens
        with waiting:
            result = stack.engine.generate([Request(prompt, limit, stop=stop, on_token=on_token)])[0]
        self._console.print()
        return result, "".join(said)


_SHARED = (
    "tokens",
    "prompt_tokens",
    "device_tokens",
    "host_tokens",
    "storage_tokens",
    "computed_tokens",
    "restoring_s",
    "computing_s",
    "total_s",
)


def main(settings: str, part: str, results: str) -> int:
    """Runs the part and writes its answers; the exit status."""
    try:
        answers = Part(Settings(**json.loads(settings)), int(part), Console()).run()
    except (MissingPackage, HiCacheError, OSError) as error:
        hint = "\n`make demo` installs it and runs the demo." if isinstance(error, MissingPackage) else ""
        print(f"error: {error}{hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    Path(results).write_text(json.dumps([asdict(answer) for answer in answers]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
