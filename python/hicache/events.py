"""What came to a tier and what left it, for routers that send requests to where their prefix is.

A router that applies every event in order knows exactly which page is in which tier (docs/events.md).
On error: `ArgumentError` names what can't be meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hicache import _hicache, _tuples
from hicache.config import whole_number
from hicache.errors import ArgumentError

#: How many announcements of pages wait at most, if nothing else is said: 16 tokens a page make 20 MB of them.
USUAL = 2**17
#: What the tiers are called on the wire: those that aren't here aren't sent.
MEDIA = {"device": "GPU", "host": "CPU_PINNED"}


@dataclass(frozen=True)
class Stored:
    """Pages that came to a tier: each continues the one before it, all of one namespace."""

    #: "device", "host" or "storage".
    tier: str
    #: Digests of 32 bytes, by which the store knows the pages, too; in order of the path.
    pages: tuple[bytes, ...]
    #: The page that the first one continues, which is in this tier, too (of storage: perhaps). None: it is
    #: the first page of its namespace.
    parent: bytes | None
    #: Of all of these pages. With `keys="bigrams"` both of each pair: twice as many.
    tokens: tuple[int, ...]
    #: Tokens of a page, or pairs.
    page_size: int
    #: What the namespace's first page is hashed from; None for the one without any field.
    namespace: bytes | None = None
    #: The namespace's, as requests gave them. Its salt is told to nobody.
    extra_key: str | None = None
    adapter: str | None = None


@dataclass(frozen=True)
class Removed:
    """Pages that left a tier."""

    #: "device" or "host": what leaves storage is the store's own business.
    tier: str
    #: In the order in which they left: those that continue others first.
    pages: tuple[bytes, ...]


@dataclass(frozen=True)
class Cleared:
    """Nothing is in a tier any more, or nothing that is found."""

    #: "device", "host" or "storage".
    tier: str


@dataclass(frozen=True)
class Lost:
    """Events were dropped, since nobody took them in time: what a router knows is wrong from here on.
    `events_from_scratch` says what there is."""

    #: How many announcements of pages these were.
    pages: int


Event = Stored | Removed | Cleared | Lost


class WithEvents:
    """What `HiCache` tells routers."""

    _core: _hicache.Cache
    page_size: int

    def take_events(self) -> list[Event]:
        """What changed since the last time, in order; empty without `events=`. Ranks that decide alike get
        the same. Take them after each `poll`, say: what nobody takes is dropped when it is too much (`Lost`).
        Also after `close`, which tells nothing: its router forgets what it knew of this cache."""
        return [self._event(*told) for told in self._core.take_events()]

    def events_from_scratch(self) -> list[Event]:
        """What there is now, for a router that begins or has lost events: clears of every tier, then every
        page. What nobody has taken yet is part of it, and dropped. Of storage it has what memory has, too.
        Walks over everything: not for every step."""
        return [self._event(*told) for told in self._core.events_from_scratch()]

    def _event(self, what: str, tier: str, pages: list[bytes], came: _tuples.Came | None, lost: int) -> Event:
        if came is not None:
            namespace, extra_key, adapter, parent, tokens = came
            whose = namespace, extra_key, adapter
            return Stored(tier, tuple(pages), parent, tuple(tokens), self.page_size, *whose)
        if what == "removed":
            return Removed(tier, tuple(pages))
        return Cleared(tier) if what == "cleared" else Lost(lost)


def most_events(events: bool | int) -> int:
    """How many announcements of pages are kept; 0: none, since nobody asked for them."""
    if isinstance(events, bool):
        return USUAL if events else 0
    return whole_number("events", events, least=1)


def wire(events: Iterable[Event], media: Mapping[str, str] = MEDIA) -> Iterator[dict[str, Any]]:
    """Events as the maps that routers of SGLang's KV events read: `BlockStored`, `BlockRemoved` and
    `AllBlocksCleared`, without the envelope around them. A page's name there is the first 8 bytes of its
    digest, as a signed number.

    `media`: what tiers are called; other tiers are left out. The maps can't say that one tier alone was
    cleared, nor that events were lost: both become `AllBlocksCleared`, one for all that follow one another.
    Forgetting is always safe; after `Lost`, or a clear of storage alone, send what `events_from_scratch` has.
    `ArgumentError`: unknown tiers."""
    unknown = [tier for tier in media if tier not in ("device", "host", "storage")]
    if unknown:
        raise ArgumentError(f"media: unknown tier {unknown[0]!r}: use device, host or storage")
    return _wire(events, media)


def _wire(events: Iterable[Event], media: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    cleared = False
    for event in events:
        if not isinstance(event, Lost) and event.tier not in media:
            continue
        if isinstance(event, Cleared | Lost):
            if not cleared:
                yield {"type": "AllBlocksCleared"}
            cleared = True
            continue
        cleared = False
        if isinstance(event, Removed):
            yield {
                "type": "BlockRemoved",
                "block_hashes": [_number(page) for page in event.pages],
                "medium": media[event.tier],
            }
        else:
            yield _stored(event, media[event.tier])


def _stored(event: Stored, medium: str) -> dict[str, Any]:
    tokens: list[Any] = list(event.tokens)
    if len(tokens) == 2 * event.page_size * len(event.pages):
        tokens = [list(pair) for pair in zip(tokens[::2], tokens[1::2], strict=True)]
    told = {
        "type": "BlockStored",
        "block_hashes": [_number(page) for page in event.pages],
        "parent_block_hash": None if event.parent is None else _number(event.parent),
        "token_ids": tokens,
        "block_size": event.page_size,
        "lora_id": None,
        "medium": medium,
    }
    return told if event.adapter is None else told | {"lora_name": event.adapter}


def _number(page: bytes) -> int:
    return int.from_bytes(page[:8], "big", signed=True)
