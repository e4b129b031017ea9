"""From a URL, a name of a class or an object to a store that a cache, the kit or a command can use.

On error: `ArgumentError` names `storage` and the option. A class that can't be imported or made is one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl

from hicache import _hicache
from hicache.config import brief, flag, number, store_url, text, whole_number
from hicache.errors import ArgumentError
from hicache.storage.serve import Crew
from hicache.storage.store import OUTCOMES, Held, Outcome, Page, Store

#: A class by its module: "package.module:Class", with or without "python://", and its options.
_CLASS = re.compile(
    r"(?:python://)?(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)(?:\?(?P<options>.*))?"
)
#: A store's name for what a client doesn't say.
NOBODY = bytes(32)
MOST_THREADS = 256


@dataclass(frozen=True)
class Served:
    """A store written in Python and how it is served. `verify`: every page goes through it with a checksum
    and its name (104 bytes before the payload), so that it can't serve wrong ones; False trusts it with that.
    `threads`: calls that it gets at once. `timeout`: seconds after which a call is given up."""

    store: Store
    verify: bool = True
    threads: int = 4
    timeout: float = 30.0
    #: Made for the cache: nobody else closes it.
    own: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.store, Store):
            raise ArgumentError(f"storage: need a hicache.storage.Store, got {brief(self.store)}")
        flag("storage: verify", self.verify)
        whole_number("storage: threads", self.threads, least=1, most=MOST_THREADS)
        number("storage: timeout", self.timeout)

    def start(self) -> _hicache.Store:
        """The core's side of it; its threads run until that is closed or gone."""
        if isinstance(self.store, Opened):
            return self.store.core
        # Before there are threads.
        described = _described(self)
        crew = Crew(self.store, self.threads, own=self.own)
        return _hicache.Store.relayed(crew.desk, float(self.timeout), described, self.verify)


def _described(served: Served) -> str:
    """What the store says that it is. One that can't say it is none, and is closed if nobody else does
    that."""
    store = served.store
    try:
        said = store.describe()
        return text("storage: description", said)
    except Exception as error:
        if served.own:
            with suppress(Exception):
                store.close()
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"storage: {type(store).__name__} can't be described: {error}") from error


def served(store: Store, *, verify: bool = True, threads: int = 4, timeout: float = 30.0) -> Served:
    """A store with other settings than the defaults, for `HiCache(storage=...)` and `open`."""
    return Served(store, verify, threads, timeout)


#: What names a store, or is one.
Storage = str | os.PathLike[str] | Store | Served


def resolve(storage: Storage | None) -> str | Served | None:
    """A URL for the core, or a store to serve."""
    if isinstance(storage, Served):
        return storage
    if isinstance(storage, Store):
        return Served(storage)
    if isinstance(storage, str) and (match := _CLASS.fullmatch(text("storage", storage))):
        return _by_class(match["module"], match["name"], _options(storage, match["options"]))
    return store_url(storage)


def open(  # noqa: A001
    storage: Storage,
    identity: bytes = NOBODY,
    *,
    fields: Mapping[str, str] | None = None,
    rank: Sequence[int] = (),
    world: Sequence[int] = (),
) -> Opened:
    """Any store as an object, as a cache would use it: by URL ("file:///directory"), by class
    ("package.module:Class?option=value"), by path, or an object of one's own.

    `identity` (32 bytes) and `fields`: whose store it is, for kinds that keep it. `rank`, `world`: this
    process's place in a grid of ranks, for kinds that give each its own directory.
    """
    found = resolve(storage)
    if found is None:
        raise ArgumentError("storage: need one")
    if isinstance(found, Served):
        return Opened(found.start())
    named = list((fields or {}).items())
    return Opened(_hicache.Store.open(found, identity, named, list(rank), list(world)))


class Opened(Store):
    """A store of the core, over buffers. Calls are answered on the caller's thread, without the interpreter's
    lock. `ArgumentError` for names that aren't 32 bytes and pages that can't be written to."""

    def __init__(self, core: _hicache.Store) -> None:
        self.core = core

    def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        return _named(self.core.exists(identity, list(keys)))

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        return _named(self.core.get(identity, list(keys), [list(page.runs) for page in pages]))

    def put(
        self,
        identity: bytes,
        keys: Sequence[bytes],
        parents: Sequence[bytes | None],
        pages: Sequence[Page],
    ) -> Sequence[Outcome]:
        runs = [list(page.runs) for page in pages]
        return _named(self.core.put(identity, list(keys), list(parents), runs))

    def remove(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        return _named(self.core.remove(identity, list(keys)))

    def clear(self, identity: bytes) -> int:
        return self.core.clear(identity)

    def statistics(self) -> dict[str, int | None]:
        """All of the core's counts."""
        return self.core.statistics()

    def list(self) -> Sequence[Held]:
        return [Held(*row) for row in self.core.list()]

    def compact(self) -> int:
        return self.core.compact()

    def describe(self) -> str:
        return self.core.describe()

    def close(self) -> None:
        self.core.close()


def _named(numbers: bytes) -> list[Outcome]:
    return [OUTCOMES[number] for number in numbers]


def _options(url: str, query: str | None) -> dict[str, str]:
    pairs = parse_qsl(query or "", keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ArgumentError(f"storage: {url!r} has an option twice")
    return options


def _by_class(module: str, name: str, options: dict[str, str]) -> Served:
    try:
        made: Any = import_module(module)
        for part in name.split("."):
            made = getattr(made, part)
    except Exception as error:  # a module may do anything when it is imported
        raise ArgumentError(f"storage: there is no {module}:{name}: {error}") from error
    settings = _settings(options)
    try:
        store = made(**options)
    except Exception as error:  # whatever it needs and hasn't got
        raise ArgumentError(f"storage: {module}:{name} can't be made: {error}") from error
    return Served(store, own=True, **settings)


def _settings(options: dict[str, str]) -> dict[str, Any]:
    """Takes out the options that are not the class's own."""
    kinds: dict[str, Callable[[str], Any]] = {"verify": _yes, "threads": int, "timeout": float}
    settings = {}
    for name, kind in kinds.items():
        if name in options:
            value = options.pop(name)
            try:
                settings[name] = kind(value)
            except ValueError:
                raise ArgumentError(f"storage: {name}: {value!r} can't be meant") from None
    return settings


def _yes(word: str) -> bool:
    if word not in ("yes", "no"):
        raise ValueError(word)
    return word == "yes"
