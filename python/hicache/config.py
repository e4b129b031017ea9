"""Settings: the host tier, namespaces, and the names of policies.

Engines pass strings (options, JSON), so that sizes and numbers are accepted as text.
On error: `ArgumentError` whose text begins with the setting's name, before anything is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache.errors import ArgumentError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
LAYOUTS = ("layer_first", "page_unified")
#: The values there are for each policy setting.
POLICIES = {
    "write": ("write_through",),
    "prefetch": ("wait_complete",),
    "eviction": ("lru",),
    "host_copies": ("keep",),
    "slots": ("cache", "engine"),
}


@dataclass(frozen=True)
class Namespace:
    """Who may share a prefix: namespaces never share, in any tier.

    `extra_key`: any text by which requests are told apart (the empty text is one of its own); `salt`: a
    tenant's secret (the empty text is none); `adapter`: the adapter whose weights took part.
    """

    extra_key: str | None = None
    salt: str | None = None
    adapter: str | None = None


@dataclass(frozen=True)
class Host:
    """The host tier. Exactly one of: `size` in bytes (a number, or text such as "64GiB"), `tokens`, or
    `ratio` of the device pool's tokens (default 2.0).

    `layout`: "page_unified" (a page is one contiguous run; the default) or "layer_first".
    """

    size: int | str | None = None
    tokens: int | None = None
    ratio: float | None = None
    layout: str = "page_unified"

    def slots(self, page_size: int, page_bytes: int, device_slots: int) -> int:
        """Pages that fit: at least one. `page_bytes`: payload of a page over all pools, in bytes."""
        given = [name for name in ("size", "tokens", "ratio") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ArgumentError(f"host: give one of size, tokens and ratio, not {' and '.join(given)}")
        if self.layout not in LAYOUTS:
            raise ArgumentError(f"layout: unknown layout {self.layout!r}: use {' or '.join(LAYOUTS)}")
        if self.size is not None:
            pages = parse_size("host size", self.size) // max(page_bytes, 1)
        elif self.tokens is not None:
            pages = whole_number("host tokens", self.tokens, least=1) // page_size
        else:
            pages = int(device_slots * number("host ratio", 2.0 if self.ratio is None else self.ratio))
        if pages < 1:
            raise ArgumentError(f"host: no room for a single page of {page_size} tokens ({page_bytes} bytes)")
        if pages >= 2**32:
            raise ArgumentError(f"host: {pages} pages are more than the 2^32 - 1 there can be")
        return pages


def parse_size(name: str, value: int | str) -> int:
    """Bytes from a number or a text such as "200GB" (10^9) or "64GiB" (2^30)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return whole_number(name, value, least=1)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
    if match is None or match[2].upper() not in _UNITS:
        raise ArgumentError(f"{name}: {value!r} is no size: use bytes, or a number with KiB, MiB, GiB, GB …")
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    return whole_number(name, size, least=1)


def whole_number(name: str, value: Any, least: int) -> int:
    """`value` as an int of at least `least`; booleans and fractions are refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{name}: need a whole number, got {value!r}")
    if value < least:
        raise ArgumentError(f"{name}: must be at least {least}, got {value}")
    return value


def number(name: str, value: Any) -> float:
    """`value` as a positive, finite float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ArgumentError(f"{name}: must be a positive number, got {value!r}")
    return float(value)


def policy(setting: str, value: str) -> str:
    """`value` if it is one of the setting's policies."""
    if value not in POLICIES[setting]:
        raise ArgumentError(f"{setting}: unknown value {value!r}: use {' or '.join(POLICIES[setting])}")
    return value


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for `HiCache` from a mapping of plain values, as configuration files have them."""
    arguments = dict(config)
    unknown = sorted(set(arguments) - _SETTINGS)
    if unknown:
        raise ArgumentError(f"{unknown[0]}: unknown setting; there are {', '.join(sorted(_SETTINGS))}")
    if isinstance(arguments.get("host"), Mapping):
        try:
            arguments["host"] = Host(**arguments["host"])
        except TypeError as error:
            raise ArgumentError(f"host: {error}") from None
    return arguments


_SETTINGS = {"page_size", "host", "storage", *POLICIES}
_SETTINGS |= {"io_threads", "write_queue", "prefetch_deadline", "store_deadline", "prefetch_threshold"}
