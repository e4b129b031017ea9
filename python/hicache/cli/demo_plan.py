"""What the demo asks, in which order, and how large its tiers are.

For: `demo.py`, and `demo_part.py`, which carries it out.
Assumes: the device pool holds DEVICE_DOCUMENTS documents and the host pool HOST_DOCUMENTS, or
STAGING_DOCUMENTS in passing; those least recently used go first.
Refuses to know: the model, the cache.
On error: nothing can fail here; the options are checked before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Files of the standard library, all of them longer than the longest document; as many as there can be.
MODULES = (
    "textwrap",
    "heapq",
    "shlex",
    "graphlib",
    "queue",
    "statistics",
    "csv",
    "calendar",
    "configparser",
    "fractions",
    "zipfile",
    "difflib",
)
QUESTIONS = (
    "What is this module for? Answer in one sentence.",
    "Who would use this module? Answer in one sentence.",
)
SYSTEM = "You answer questions about this Python file."
DEVICE_DOCUMENTS, HOST_DOCUMENTS = 2, 4
#: Where the host keeps nothing: a request may have four fifths of it for what it brings.
STAGING_DOCUMENTS = 2
LEAST_DOCUMENTS = HOST_DOCUMENTS + 1
#: Where a prefix can come from, and what the picture calls it.
SOURCES = ("cold", "device", "host", "storage")


@dataclass(frozen=True)
class Settings:
    """The options of `hicache demo`, as they travel to its two processes."""

    model: str
    documents: int
    tokens: int
    answer_tokens: int
    page_size: int
    store: str
    write: str = "write_through"
    prefetch: str = "wait_complete"
    #: MB a second that the store carries; None: all it can.
    throttle: float | None = None
    host_mode: str = "cache"

    @property
    def planned(self) -> bool:
        """Whether each prefix must come from where the plan says: what was written and is awaited can."""
        return (self.write, self.prefetch) == ("write_through", "wait_complete")


@dataclass(frozen=True)
class Step:
    """A question about a document (both count from 0), and where the document must come from."""

    document: int
    question: int
    source: str


def steps(documents: int, part: int, host_mode: str = "cache") -> list[Step]:
    """What one of the two processes is asked.

    The last document is n. After all were read cold, the device holds n and n-1, the host n to n-3. Bringing
    n-2 and n-3 to the device pushes n and n-1 out of it, but both are still on the host.
    The second process starts with nothing but the store. Where the host keeps nothing, they come from there.
    """
    if part == 2:
        return [Step(document, 0, "storage") for document in range(documents)]
    n = documents - 1
    cold = [Step(document, 0, "cold") for document in range(documents)]
    device = [Step(n, 0, "device"), Step(n, 1, "device"), Step(n - 1, 0, "device")]
    below = "host" if host_mode == "cache" else "storage"
    host = [
        Step(document, question, below) for document, question in ((n - 2, 0), (n - 3, 0), (n, 1), (n - 1, 0))
    ]
    return cold + device + host


@dataclass(frozen=True)
class Room:
    """Pages of the tiers."""

    device: int
    host: int


def room(settings: Settings, longest: int) -> Room:
    """Sizes for requests of at most `longest` tokens, prompt and answer.

    No page more than the documents need with one answer each: what were left of a document that had to go
    would come from the wrong tier. A second question about a document pushes out old answers only.
    """
    whole = -(-longest // settings.page_size)
    host = HOST_DOCUMENTS if settings.host_mode == "cache" else STAGING_DOCUMENTS
    return Room(device=DEVICE_DOCUMENTS * whole, host=host * whole)


@dataclass(frozen=True)
class Answer:
    """What one step gave. Lengths in tokens, times in seconds up to the first token."""

    process: int
    document: str
    question: str
    expected: str
    text: str
    tokens: list[int]
    prefix_tokens: int
    prompt_tokens: int
    device_tokens: int
    host_tokens: int
    storage_tokens: int
    computed_tokens: int
    first_token_s: float
    restoring_s: float
    computing_s: float
    total_s: float

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Answer:
        """From a JSON object with the same names."""
        return cls(**plain)

    @property
    def source(self) -> str:
        """Where most of the prompt came from; "mixed" if most was found but part of the document was not."""
        given = {
            "cold": self.computed_tokens,
            "device": self.device_tokens,
            "host": self.host_tokens,
            "storage": self.storage_tokens,
        }
        most = max(given, key=lambda name: given[name])
        partly = most != "cold" and self.computed_tokens > self.prompt_tokens - self.prefix_tokens
        return "mixed" if partly else most
