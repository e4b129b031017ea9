"""How a GPU copies, as settings: what is taken, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hicache import ArgumentError, GpuCopies, HiCache, pools


def build(gpu_copies: Any) -> HiCache:
    """A cache on the CPU, which takes the settings and has no use for them."""
    return HiCache([pools.latent("kv", [torch.zeros(8, 4)])], 2, gpu_copies=gpu_copies)


def test_settings_are_pairs_of_numbers_or_sizes() -> None:
    """For loads and for backups; what isn't said is left to the core."""
    given = GpuCopies(engine_from=("128KiB", 65536), staging=["16MiB", 0], multiprocessors=(2, 1))
    assert given.settings() == ((131072, 65536), (16 << 20, 0), (2, 1))
    assert GpuCopies().settings() == (None, None, None)
    for copies in (given, GpuCopies(), None):
        build(copies).close()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (((0, 1), None, None), "runs for the copy engine have at least one byte"),
        ((None, None, (1, 0)), "a kernel needs at least one multiprocessor"),
    ],
)
def test_each_reaches_its_place_in_the_core(
    settings: tuple[Any, ...], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this layer would have refused, the core refuses as what it is."""
    monkeypatch.setattr(GpuCopies, "settings", lambda _: settings)
    with pytest.raises(ArgumentError, match=f"^gpu_copies: {error}"):
        build(GpuCopies())


def test_plain_settings_make_them() -> None:
    """As an engine passes them: JSON."""
    tensors = [pools.latent("kv", [torch.zeros(8, 4)])]
    HiCache.from_config(tensors, '{"page_size": 2, "gpu_copies": {"staging": ["1MiB", 0]}}').close()
    with pytest.raises(ArgumentError, match=r"gpu_copies: .*speed"):
        HiCache.from_config(tensors, {"page_size": 2, "gpu_copies": {"speed": 3}})


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"engine_from": 65536}, "gpu_copies engine_from: need two values"),
        ({"engine_from": "64KiB"}, "gpu_copies engine_from: need two values"),
        ({"engine_from": (1, 2, 3)}, "gpu_copies engine_from: need two values"),
        ({"engine_from": (0, 1)}, "gpu_copies engine_from: must be at least 1"),
        ({"engine_from": ("much", 1)}, "gpu_copies engine_from: 'much' is no size"),
        ({"staging": (-1, 0)}, "gpu_copies staging: must be at least 1"),
        ({"staging": (False, 0)}, "gpu_copies staging: need a whole number"),
        ({"multiprocessors": (0, 1)}, "gpu_copies multiprocessors: must be at least 1"),
        ({"multiprocessors": (1, 2**20)}, "gpu_copies multiprocessors: must be at most 1024"),
        ({"multiprocessors": (1.5, 1)}, "gpu_copies multiprocessors: need a whole number"),
    ],
)
def test_what_can_not_be_meant_is_refused_by_name(settings: dict[str, Any], error: str) -> None:
    """Before there is a cache."""
    with pytest.raises(ArgumentError, match=f"^{error}"):
        build(GpuCopies(**settings))


def test_other_things_are_refused() -> None:
    """A mapping is for `from_config`."""
    with pytest.raises(ArgumentError, match=r"^gpu_copies: need a GpuCopies"):
        build({"staging": (0, 0)})
