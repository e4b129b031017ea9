"""Settings: the host tier, namespaces, and the names of policies.

Engines pass strings (options, JSON): policies are names, and sizes in bytes are accepted as text ("64GiB").
Other numbers are numbers, NumPy's too.
On error: `ArgumentError` whose text begins with the setting's name, before anything is allocated.
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from hicache import _hicache
from hicache.errors import ArgumentError

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _UNITS |= {_letter: 10 ** (3 * _power), f"{_letter}B": 10 ** (3 * _power)}
    _UNITS |= {f"{_letter}I": 2 ** (10 * _power), f"{_letter}IB": 2 ** (10 * _power)}
#: The largest time, in seconds: 3,000 years. Milliseconds since 1970 are more.
_LATEST = 1e11
LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head", "page_unified")
ARRIVALS = ("auto", "layers", "together")
#: The values there are for each policy setting.
POLICIES = {
    **dict.fromkeys(("write", "write_storage"), ("write_through", "write_through_selective", "write_back")),
    "prefetch": ("timeout", "best_effort", "wait_complete"),
    "eviction": ("lru",),
    "host_copies": ("give_way", "keep"),
    "keys": ("tokens", "bigrams"),
    "slots": ("cache", "engine"),
    "host_mode": ("cache", "buffer_only"),
}


@dataclass(frozen=True)
class Namespace:
    """Who may share a prefix: namespaces never share, in any tier.

    `extra_key`: any text by which requests are told apart (the empty text is one of its own); `salt`: a
    tenant's secret (the empty text is none); `adapter`: the adapter whose weights took part. Each is text
    that UTF-8 can encode, or None; `ArgumentError` names the field.
    """

    extra_key: str | None = None
    salt: str | None = None
    adapter: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None:
                text(name, value)


@dataclass(frozen=True)
class Host:
    """The host tier. At most one of: `size` in bytes (a number, text such as "64GiB", or "auto": four fifths
    of what memory there is, at most `ratio` 2), `tokens`, or `ratio` of the device pool's tokens (default
    2.0).

    `layout`: "page_unified" (a page is one contiguous run; the default), "page_first_direct", "page_first",
    "page_head" or "layer_first"; ARCHITECTURE.md has their axes. `head_groups`: parts that "page_unified"
    keeps a page's KV heads in, so that a rank of another tensor-parallel size finds its heads in one run.
    `shared`: memory that other processes can map by the descriptors in `HiCache.host_memory`. `prefault`:
    whether all of it is taken at once, by several threads, instead of when it is first used. `numa_node`: the
    node to take it from, where there are several. `copy_threads`: threads that copy in each direction (None:
    by the processors that this process may use). `arrival` of a load's layers: "auto", "layers" (one after
    another) or "together": where a layer's share of a host page is in pieces (page_first, page_head, head
    groups), one after another costs half the rate, and "auto" takes them together. `restart`: a directory on
    a memory file system, such as "/dev/shm/hicache", for memory that outlives the process (docs/restart.md);
    needs `identity`.
    """

    size: int | str | None = None
    tokens: int | None = None
    ratio: float | None = None
    layout: str = "page_unified"
    head_groups: int = 1
    shared: bool = False
    prefault: bool = True
    numa_node: int | None = None
    copy_threads: int | None = None
    arrival: str = "auto"
    restart: str | os.PathLike[str] | None = None

    def slots(self, page_size: int, page_bytes: int, device_slots: int) -> int:
        """Pages that fit: at least one. `page_bytes`: payload of a page over all pools, in bytes."""
        given = [name for name in ("size", "tokens", "ratio") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ArgumentError(f"host: give one of size, tokens and ratio, not {' and '.join(given)}")
        if self.size == "auto":
            pages = min(2 * device_slots, memory_available() * 4 // 5 // max(page_bytes, 1))
        elif self.size is not None:
            pages = parse_size("host size", self.size) // max(page_bytes, 1)
        elif self.tokens is not None:
            pages = whole_number("host tokens", self.tokens, least=1) // page_size
        else:
            ratio = number("host ratio", 2.0 if self.ratio is None else self.ratio)
            pages = int(min(device_slots * ratio, 2.0**32))  # an infinite product is no int
        if pages < 1:
            raise ArgumentError(f"host: no room for a single page of {page_size} tokens ({page_bytes} bytes)")
        return _few(pages)

    def groups(self) -> int:
        """Parts that a page's heads are kept in; only "page_unified" has more than one."""
        groups = whole_number("host head_groups", self.head_groups, least=1, most=2**16)
        if groups > 1 and self.layout != "page_unified":
            raise ArgumentError(f"host head_groups: only page_unified has several, not {self.layout}")
        return groups

    def spaces(self, page_size: int, page_bytes: Sequence[int], device_slots: Sequence[int]) -> list[int]:
        """Pages of each space of slots, which share the memory as they share the device's: all have as
        many on the host for one on the device. `page_bytes` and `device_slots` are by space too."""
        own = device_slots[0]
        device = sum(size * slots for size, slots in zip(page_bytes, device_slots, strict=True))
        first = self.slots(page_size, -(-device // own), own)
        return [first, *(_few(max(1, first * slots // own)) for slots in device_slots[1:])]

    def memory(
        self, page_size: int, page_bytes: Sequence[int], device_slots: Sequence[int]
    ) -> tuple[list[int], str, bool, int, int | None]:
        """Slots of each space, layout, shared, threads that touch it beforehand, node: as the binding takes
        them."""
        if self.layout not in LAYOUTS:
            raise ArgumentError(f"layout: unknown layout {self.layout!r}: use {' or '.join(LAYOUTS)}")
        shared, prefault = flag("host shared", self.shared), flag("host prefault", self.prefault)
        node = self.numa_node
        node = None if node is None else whole_number("host numa_node", node, least=0, most=2**16)
        threads = min(8, _hicache.processors()) if prefault else 0
        return self.spaces(page_size, page_bytes, device_slots), self.layout, shared, threads, node

    def copies(self) -> tuple[int | None, str]:
        """Threads and arrival, as the binding takes them."""
        threads = self.copy_threads
        if threads is not None:
            threads = whole_number("host copy_threads", threads, least=1, most=256)
        if self.arrival not in ARRIVALS:
            raise ArgumentError(f"host arrival: unknown value {self.arrival!r}: use {' or '.join(ARRIVALS)}")
        return threads, self.arrival


def _few(pages: int) -> int:
    """So many pages, if there can be."""
    if pages >= 2**32:
        raise ArgumentError("host: more pages than the 2^32 - 1 there can be")
    return pages


def memory_available() -> int:
    """Bytes that this process may still take: the least of what the machine and its control groups have."""
    available = _hicache.memory_available()
    if available is None:
        raise ArgumentError("host size: how much memory there is can't be read here: say a size")
    return available


def flag(name: str, value: Any) -> bool:
    """`value` if it is a boolean."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: need True or False, got {value!r}")
    return value


def parse_size(name: str, value: int | str) -> int:
    """Bytes from a number or a text such as "200GB" (10^9) or "64GiB" (2^30)."""
    if not isinstance(value, str):
        return whole_number(name, value, least=1)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].upper() not in _UNITS:
        raise ArgumentError(f"{name}: {value!r} is no size: use bytes, or a number with KiB, MiB, GiB, GB …")
    size = float(match[1]) * _UNITS[match[2].upper()]
    if size > 2**62:
        raise ArgumentError(f"{name}: must be at most {2**62} bytes, got {value!r}")
    return whole_number(name, int(size), least=1)


def text(name: str, value: Any) -> str:
    """`value` if it is text that UTF-8 can encode: half of a surrogate pair is none."""
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: need text, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name}: {value!r} is no UTF-8 text: {error.reason}") from None
    return value


def whole_number(name: str, value: Any, least: int, most: int = 2**62) -> int:
    """`value`, of any integer type, as an int from `least` to `most`; booleans and fractions are refused."""
    if type(value) is int and least <= value <= most:
        return value
    try:
        whole = operator.index(value)
    except (TypeError, ValueError):
        whole = None
    # NumPy's and torch's booleans say what they are by their dtype only.
    if whole is None or isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        raise ArgumentError(f"{name}: need a whole number, got {value!r}")
    if whole < least:
        raise ArgumentError(f"{name}: must be at least {least}, got {whole}")
    if whole > most:
        raise ArgumentError(f"{name}: must be at most {most}, got {whole}")
    return whole


def number(name: str, value: Any) -> float:
    """`value`, of any type of real numbers, as a positive, finite float."""
    real = real_number(value)
    if not 0 < real < float("inf"):
        raise ArgumentError(f"{name}: must be a positive number, got {value!r}")
    return real


def moment(name: str, value: Any) -> float:
    """`value` if it is a time in seconds that a clock may show: milliseconds since 1970 are beyond that."""
    real = real_number(value)
    if not abs(real) <= _LATEST:
        raise ArgumentError(f"{name}: need a time in seconds, at most {_LATEST:g} from 0, got {brief(value)}")
    return real


def brief(value: object) -> str:
    """`value` for a message. Python refuses to write numbers of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} that is too long to write"
    return text if len(text) <= 80 else f"{text[:77]}..."


def seconds(timeout: float) -> float:
    """`timeout` if it is a wait: zero or more seconds, infinity included."""
    real = real_number(timeout)
    if not real >= 0:
        raise ArgumentError(f"timeout: must be a number of seconds that is not negative, got {timeout!r}")
    return real


def real_number(value: Any) -> float:
    """`value` as a float; not a number (NaN) if it is none, or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return float("nan")
    try:
        return float(value)
    except OverflowError:
        return float("nan")


def expect(name: str, value: object, kind: type) -> None:
    """Refuses a value that is neither None nor of the class."""
    if value is not None and not isinstance(value, kind):
        raise ArgumentError(f"{name}: need a {kind.__name__}, got {value!r}")


def policy(setting: str, value: str) -> str:
    """`value` if it is one of the setting's policies."""
    if value not in POLICIES[setting]:
        raise ArgumentError(f"{setting}: unknown value {value!r}: use {' or '.join(POLICIES[setting])}")
    return value


def store_url(storage: str | os.PathLike[str] | None) -> str | None:
    """The store's URL, as the core parses it: a path is the file store's. A path given as text is taken as
    it is, as long as it is absolute and no "?" in it may be meant to begin options."""
    if storage is None:
        return None
    if isinstance(storage, os.PathLike):
        return Path(storage).absolute().as_uri()
    if not isinstance(storage, str):
        raise ArgumentError(f"storage: need a URL or a path, got {storage!r}")
    return text("storage", storage)


def settings(
    config: Mapping[str, Any] | str, known: Collection[str], grouped: Mapping[str, type]
) -> dict[str, Any]:
    """Keyword arguments for `HiCache` from plain values: a mapping, or JSON text. `grouped`: classes of
    settings that are mappings of their own."""
    try:
        arguments = dict(json.loads(config) if isinstance(config, str) else config)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"config: need a mapping or the JSON text of one: {error}") from None
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise ArgumentError(f"{unknown[0]}: unknown setting; there are {', '.join(sorted(known))}")
    if "page_size" not in arguments:
        raise ArgumentError("page_size: is missing")
    for name, group in grouped.items():
        if isinstance(arguments.get(name), Mapping):
            try:
                arguments[name] = group(**arguments[name])
            except TypeError as error:
                raise ArgumentError(f"{name}: {error}") from None
    return arguments
