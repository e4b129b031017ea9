"""Prefixes that are brought up without a request: an agent's next turn, say.

On error: `ArgumentError` names the argument, and nothing was changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hicache import _hicache, tensors
from hicache.config import Namespace, expect, flag
from hicache.tensors import Integers

#: That of requests which don't say any.
PLAIN = Namespace()


class Warm:
    """A prefix on its way up. Nobody has to keep it: dropped, it goes on."""

    def __init__(self, core: _hicache.Cache, number: int, page_size: int) -> None:
        self._core, self._number, self._page_size = core, number, page_size

    @property
    def done(self) -> bool:
        """Whether nothing more comes: `poll` decides it."""
        warmed = self._core.warmed(self._number)
        return warmed is None or not warmed[0]

    @property
    def length(self) -> int | None:
        """Tokens, in whole pages, that are usable on device or host, now or at its end. None: it ended so
        long ago that nobody remembers."""
        warmed = self._core.warmed(self._number)
        return None if warmed is None else warmed[1] * self._page_size

    @property
    def device_length(self) -> int | None:
        """Of these, the tokens on the device (copies under way included)."""
        warmed = self._core.warmed(self._number)
        return None if warmed is None else warmed[2] * self._page_size

    def cancel(self) -> None:
        """Gives it up, as far as it hasn't come. What has come stays, like any page."""
        self._core.cool(self._number)


class Warming:
    """What `HiCache` can do before a request comes."""

    _core: _hicache.Cache
    page_size: int

    def warm(
        self,
        tokens: Integers,
        namespace: Namespace | None = None,
        *,
        device: bool = False,
        at: float | None = None,
    ) -> Warm | None:
        """Brings a prefix up that will be asked for: storage → host and, with `device`, on to the device.
        Returns at once; `poll` takes the steps. None: 32 are under way already.

        It comes after everybody else: storage is asked when no request waits for it, and only room that is
        free is used: nothing leaves for it. Thresholds and the deadline of a prefetch hold. It is no request:
        it counts in `warm_prefixes`, `warmed_host_pages` and `warmed_device_pages`, and in no hit.

        Copies to the device are covered by each later load, also by one of no hits: as with any load, wait
        for it before a layer is read that an `insert` pointed to.

        `tokens`, `at`: as `match_prefix` has them. `device` is refused with `slots="engine"` and in a unified
        buffer, and needed with `host_mode="buffer_only"`."""
        expect("namespace", namespace, Namespace)
        namespace = namespace or PLAIN
        flag("device", device)
        number = self._core.warm(
            tensors.integers("tokens", tokens),
            namespace.extra_key,
            namespace.salt,
            namespace.adapter,
            device,
            self._now(at),
        )
        return None if number is None else Warm(self._core, number, self.page_size)

    if TYPE_CHECKING:

        def _now(self, at: float | None) -> float: ...
