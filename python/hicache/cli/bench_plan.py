"""The multi-turn workload, and how large tiers must be so that it outgrows them one after the other.

For: `bench.py`, `bench_run.py` and the reports.
Assumes: sizes were checked by the command.
Refuses to know: the model, the cache.
On error: nothing can fail here.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Shares of the rounds after which the device, and the host, are too small for what all clients have said.
DEVICE_SHARE, HOST_RATIO = 0.3, 2.0
CONFIGURATIONS = {
    "device": "device",
    "host": "device + host",
    "storage": "device + host + storage",
}


@dataclass(frozen=True)
class Workload:
    """Clients × rounds, `input` new tokens and `output` generated ones in each turn; rounds count from 0."""

    clients: int
    rounds: int
    input: int
    output: int
    page_size: int
    seed: int

    def prompt_tokens(self, number: int) -> int:
        """Length of a whole prompt in round `number`."""
        return self.input * (number + 1) + self.output * number

    def ceiling_tokens(self, number: int) -> int:
        """What of a prompt can be found at most: the whole pages of what its client said and was told before.

        The last token of an answer has no KV: it was never an input.
        """
        if number == 0:
            return 0
        known = self.prompt_tokens(number) - self.input - 1
        return known // self.page_size * self.page_size

    def history_pages(self, rounds: int) -> int:
        """Pages of one client's path after so many rounds, a partial last one included."""
        tokens = self.prompt_tokens(rounds - 1) + self.output - 1
        return -(-tokens // self.page_size)

    @property
    def longest_pages(self) -> int:
        """Pages of the longest request."""
        return self.history_pages(self.rounds)

    @property
    def all_pages(self) -> int:
        """Pages of everything that is ever said."""
        return self.clients * self.longest_pages

    def device_pages(self) -> int:
        """A device that holds all histories for the first DEVICE_SHARE of the rounds."""
        rounds = max(1, round(DEVICE_SHARE * self.rounds))
        return max(self.clients * self.history_pages(rounds), self.longest_pages)


@dataclass(frozen=True)
class Sizes:
    """Pages of the device and of the host tier, where there is one."""

    device: int
    host: int


def sizes(workload: Workload, device: int | None, host: int | None) -> Sizes:
    """The given sizes, or what the workload outgrows."""
    chosen = workload.device_pages() if device is None else device
    return Sizes(chosen, max(1, round(HOST_RATIO * chosen)) if host is None else host)
