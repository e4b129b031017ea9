"""Why a request got what it got: tokens by tier and, for the rest, a reason for every token.

Always on: verbs take down a few words a decision, and the explanation is made when it is asked for.
On error: `HitError` for a request that was released long ago.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache import _hicache
from hicache.errors import ArgumentError
from hicache.hit import Hit


@dataclass(frozen=True)
class Reason:
    """Why some tokens are computed."""

    #: How many.
    tokens: int
    #: For counting: "never_seen", "evicted", "left_meanwhile", "other_namespace", "part_missing",
    #: "not_asked", "below_prefetch_threshold", "below_load_threshold", "over_budget",
    #: "declined_by_policy", "path_not_on_host", "path_not_on_device", "not_stored", "corrupt", "read_failed",
    #: "timed_out", "revoked", "host_full", "device_full", "new_weights", "cleared", "waiting", "limit" or
    #: "partial_page".
    code: str
    #: For people, with the numbers that decided.
    text: str


@dataclass(frozen=True)
class Explanation:
    """A request, token by token: `tokens == device + host + storage + computed`. As text, one line."""

    #: Whether it was loaded: else this is what a load would find now (or would have, at its release).
    loaded: bool
    #: Tokens of the prompt, those before a cursor included.
    tokens: int
    #: That the device had.
    device: int
    #: That came from the host.
    host: int
    #: That came from storage, by this request's prefetch.
    storage: int
    #: The others, in order of the prompt.
    reasons: tuple[Reason, ...]
    #: All of it as text.
    line: str

    @property
    def computed(self) -> int:
        """Tokens that no tier gave."""
        return sum(reason.tokens for reason in self.reasons)

    def __str__(self) -> str:
        return self.line


class WithExplanations:
    """What `HiCache` tells about requests."""

    _core: _hicache.Cache

    def explain(self, hit: Hit) -> Explanation:
        """Why a request got what it got, or would get now, if it isn't loaded yet: tokens by tier and, for
        the rest, reasons. Released hits can be explained for a while: the last 256, less if their prompts
        were very long. Reasons are from memory: "evicted" is remembered for the last 16,384 times that
        something was cut off, and by a fingerprint (namespace, depth, the page's tokens), so that another
        history with the same page at the same depth may be told instead; "never seen" may be long ago.
        "other_namespace" is told only within one salt: tenants never learn of one another."""
        if not isinstance(hit, Hit):
            raise ArgumentError(f"hit: need a hit, as match_prefix gives it, got {hit!r}")
        if hit._cache is not self:
            raise ArgumentError("hit: belongs to another cache")
        loaded, tokens, device, host, storage, reasons, line = self._core.explain(hit._number)
        told = tuple(Reason(*reason) for reason in reasons)
        return Explanation(loaded, tokens, device, host, storage, told, line)
