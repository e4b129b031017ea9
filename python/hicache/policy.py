"""Decisions by an engine's own object: what is written, who waits, what is loaded. docs/policies.md.

`HiCache(..., policy=object)` asks it on the engine's thread, inside the verb: `load` and `write` once per
request, when it is loaded, `stop` once per `decide`. Never per page, and never from another thread. It must
not call the cache.

On error: an object with none of these methods is refused, naming `policy`. A method that raises, or answers
what can't be meant, is no error of the request: the settings decide, `policy_failures` counts it, and the
log (`hicache.policy`) names policy and method, with the traceback the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hicache import _hicache
from hicache.config import POLICIES, brief, whole_number
from hicache.errors import ArgumentError

log = logging.getLogger("hicache.policy")

METHODS = ("write", "stop", "load")
NEVER = "never"
WRITES = (*POLICIES["write"], NEVER)
DECISIONS = ("compute", "wait", "skip")
#: Tokens: more than there are of any prompt.
_MOST = 2**62


@dataclass(frozen=True)
class Waiting:
    """A request of which not all has come from storage, in a step that could run it. Tokens and seconds."""

    #: Of its prompt.
    prompt: int
    #: That the store was asked for.
    requested: int
    #: Of these, that haven't come and still may.
    missing: int
    #: Of these, that are being read, or will be when it is their turn.
    reading: int
    #: Since the first `decide` for it.
    waited: float
    #: How long its oldest read has been under way; None where that isn't known.
    reading_for: float | None
    #: Whether the store still has to say what there is.
    asking: bool
    #: Other requests that could run in this step.
    others: int
    #: That steps which skipped it gave to others.
    overtaken: int


@dataclass(frozen=True)
class Loading:
    """A request that is about to be loaded. All but `budget` are lengths of its prefix, in tokens."""

    #: All of its prompt.
    prompt: int
    #: Usable on the device as it is: used in any case.
    device: int
    #: Usable on device or host: what a load would bring it to.
    host: int
    #: What `load(budget=...)` has for all of its requests; None: no limit.
    budget: int | None


class Writes(NamedTuple):
    """What is copied of a request's path: "write_through", "write_through_selective", "write_back"
    (docs/write-policies.md) or "never"; None: as it is set."""

    host: str | None = None
    storage: str | None = None


class Policy:
    """For subclassing, with any of the three methods. `None` leaves a decision to the settings."""

    def stop(self, waiting: Waiting) -> str | None:
        """Whether a request that waits runs in this step: "compute", "wait" or "skip", as `decide` has
        them."""

    def load(self, loading: Loading) -> int | None:
        """To how many tokens of the prefix a request is loaded, at most: 0 is what is on the device alone. In
        whole pages, and with windows and states as far as they allow. Settings and budget hold besides."""

    def write(self, loading: Loading) -> Writes | str | None:
        """What is copied further down of all that the request uses and inserts: `Writes`, or one word for
        both tiers."""


def asked(policy: object | None) -> Asked | None:
    """A policy as the verbs ask it."""
    if policy is None:
        return None
    if isinstance(policy, (str, type)):
        raise ArgumentError(f"policy: need an object, got {brief(policy)}: names are for write and prefetch")
    methods = {name: method for name in METHODS if (method := _own(policy, name)) is not None}
    if not methods:
        raise ArgumentError(f"policy: {brief(policy)} has none of the methods {', '.join(METHODS)}")
    return Asked(policy, methods)


def _own(policy: object, name: str) -> Callable[[Any], Any] | None:
    method = getattr(policy, name, None)
    if method is None or getattr(method, "__func__", None) is getattr(Policy, name):
        return None
    if not callable(method):
        raise ArgumentError(f"policy: {name} of {brief(policy)} is no method, but {brief(method)}")
    return method  # type: ignore[no-any-return]


class Asked:
    """A policy and what it failed at."""

    def __init__(self, policy: object, methods: dict[str, Callable[[Any], Any]]) -> None:
        self.name, self._methods = type(policy).__name__, methods
        self._failed: set[str] = set()
        self._set = ("", "")

    def begin(self, core: _hicache.Cache, write: str, storage: str) -> None:
        """Tells the core of it; the names are what is written as it is set."""
        core.ask(self.name, "write" in self._methods)
        self._set = (write, storage)

    @property
    def loads(self) -> bool:
        """Whether it is asked about loads."""
        return not self._methods.keys().isdisjoint({"load", "write"})

    def stop(self, core: _hicache.Cache, hit: int, others: int) -> str | None:
        """What a waiting request does; None: the settings decide."""
        if "stop" not in self._methods:
            return None
        told = core.undecided(hit, others)
        if told is None:
            return "compute"
        prompt, requested, missing, reading, waited, age, asking, others, overtaken = told
        since = None if age is None else age / 1e6
        waiting = Waiting(prompt, requested, missing, reading, waited / 1e6, since, asking, others, overtaken)
        word: str | None = self._ask("stop", core, waiting, _decision)
        if word is not None:
            core.decided(hit, word)
        return word

    def load(self, core: _hicache.Cache, hit: int, page_size: int, budget: int | None) -> None:
        """What a request that is about to be loaded, and can be, wants of it, and to be written."""
        device, host, *_ = core.view(hit)
        loading = Loading(core.prompt(hit), device * page_size, host * page_size, budget)
        if "load" in self._methods and (most := self._ask("load", core, loading, _tokens)) is not None:
            core.at_most(hit, most)
        if "write" in self._methods and (wish := self._ask("write", core, loading, _writes)) is not None:
            host_word, storage_word = (word or of for word, of in zip(wish, self._set, strict=True))
            core.wish(hit, _copied(host_word), _copied(storage_word))

    def _ask(self, method: str, core: _hicache.Cache, told: object, read: Callable[[Any], Any]) -> Any:
        """An answer that can be meant, or None."""
        try:
            answer = self._methods[method](told)
            return None if answer is None else read(answer)
        except Exception as error:
            core.policy_failed()
            first = method not in self._failed
            self._failed.add(method)
            log.warning(
                "policy %s: %s failed, the settings decide: %s: %s",
                self.name, method, type(error).__name__, error, exc_info=first,
            )  # fmt: skip
            return None


def _decision(answer: Any) -> str:
    if answer not in DECISIONS:
        raise ArgumentError(f"stop: need {' or '.join(DECISIONS)}, got {brief(answer)}")
    return str(answer)


def _tokens(answer: Any) -> int:
    return whole_number("load: tokens", answer, least=0, most=_MOST)


def _copied(word: str) -> str | None:
    """As the core has it."""
    return None if word == NEVER else word


def _writes(answer: Any) -> tuple[str | None, str | None]:
    host, storage = (answer, answer) if isinstance(answer, str) else answer
    for tier, word in (("host", host), ("storage", storage)):
        if word is not None and word not in WRITES:
            raise ArgumentError(f"write: {tier}: need {' or '.join(WRITES)}, got {brief(word)}")
    return host, storage
