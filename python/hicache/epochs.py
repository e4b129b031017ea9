"""Epochs: what is done when the weights change while a cache lives.

On error: nothing was changed.
"""

from __future__ import annotations

from dataclasses import replace

from hicache import _hicache
from hicache.identity import ModelIdentity


class WithEpochs:
    """What `HiCache` can do when the weights change."""

    _core: _hicache.Cache
    _identity: ModelIdentity | None

    @property
    def identity(self) -> ModelIdentity | None:
        """Whose pages these are now, as it was given, with the epoch that the weights are in. A process that
        is started later with this identity finds what is stored from now on."""
        return self._identity

    def bump_epoch(self) -> tuple[int, int]:
        """The weights are others from now on: nothing of before is found again, in no tier and by no reader,
        and storage is asked for (and given) pages of the next `weights_epoch`. Returns how many pages left
        the device and the host at once.

        Call it between two forwards, when the new weights are in place. Requests that wait find nothing any
        more and compute. Requests that run keep what they hold and may go on (their KV is of the old weights,
        and nobody else ever finds it: what they insert is neither backed up nor stored, and leaves with
        them); to start one anew, release its hit and match again. Their cursors are stale. Costs a walk over
        what is cached."""
        gone = self._core.bump_epoch()
        if self._identity is not None:
            self._identity = replace(self._identity, weights_epoch=self._identity.weights_epoch + 1)
        return gone
