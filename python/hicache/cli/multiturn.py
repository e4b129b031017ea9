"""The workload of many clients with growing conversations.

For: `hicache replay --multiturn`.
Assumes: in each round every client, in turn, sends its whole conversation so far with new input, and gets an
answer. No two clients share a token, so only a client's own history can hit.
Refuses to know: tiers and hits.
On error: nothing can fail here; the options are checked before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from hicache.cli.traces import Request, Trace


@dataclass(frozen=True)
class Multiturn:
    """Clients × rounds; `input` and `output` are new tokens in each turn; rounds count from 0."""

    clients: int
    rounds: int
    input: int
    output: int

    def trace(self, page_size: int) -> Trace:
        """The workload as a trace for pages of `page_size` tokens."""
        unit = gcd(page_size, self.input, self.output)
        name = f"multiturn {self.clients}x{self.rounds}, input {self.input}, output {self.output}"
        requests = _Requests(self, unit)
        return Trace(name, "multiturn", page_size, unit, self.clients * self.rounds, requests)

    def prompt_tokens(self, round_number: int) -> int:
        """Length of a whole prompt in that round."""
        return self.input * (round_number + 1) + self.output * round_number


@dataclass(frozen=True)
class _Requests:
    workload: Multiturn
    unit: int

    def __iter__(self) -> Iterator[Request]:
        load, unit = self.workload, self.unit
        turn = (load.input + load.output) // unit
        longest = turn * load.rounds
        # One array a client, which grows by a turn a round: nothing walks over tokens.
        conversations = [array("q") for _ in range(load.clients)]
        for number in range(load.rounds):
            prompt = load.prompt_tokens(number) // unit
            for client, conversation in enumerate(conversations):
                first = client * longest + number * turn
                conversation.extend(range(first, first + turn))
                yield Request(conversation[:], prompt, number)
