"""A policy that remembers what it was asked, and whole requests of an engine that has one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fake_engine import Engine, Request

from hicache.policy import Loading, Waiting


class Logs:
    """Answers what it was given, and remembers what it was told."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.told = answers, dict[str, list[Any]](stop=[], load=[], write=[])

    def _say(self, method: str, told: Any) -> Any:
        self.told[method].append(told)
        answer = self.answers.get(method)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stop(self, waiting: Waiting) -> Any:
        return self._say("stop", waiting)

    def load(self, loading: Loading) -> Any:
        return self._say("load", loading)

    def write(self, loading: Loading) -> Any:
        return self._say("write", loading)

    @property
    def times(self) -> Counter[str]:
        return Counter({method: len(told) for method, told in self.told.items()})


def serve(engine: Engine, tokens: list[int], chunk: int | None = None) -> Request:
    """A whole request, whose copies have landed."""
    request = engine.run(tokens, chunk=chunk)
    engine.finish(request)
    assert engine.cache.drain(10)
    engine.check()
    return request


def host_only(engine: Engine) -> None:
    """What is cached is on the host alone."""
    assert engine.cache.drain(10)
    engine.cache.evict(16)
    assert engine.cache.stats()["device_resident"] == 0
