"""Settings that are numbers within bounds: shares and times.

On error: `ArgumentError` whose text begins with the setting's name.
"""

from __future__ import annotations

from typing import Any

from hicache.config import brief, moment, real_number
from hicache.errors import ArgumentError


def not_negative(name: str, value: Any) -> float:
    """`value`, of any type of real numbers, as a time in seconds that is zero or more."""
    real = moment(name, value)
    if real < 0:
        raise ArgumentError(f"{name}: must be a number that is not negative, got {brief(value)}")
    return real


def share(name: str, value: Any) -> float:
    """`value`, of any type of real numbers, as a float from 0 to 1."""
    real = real_number(value)
    if not 0 <= real <= 1:
        raise ArgumentError(f"{name}: must be a share from 0 to 1, got {brief(value)}")
    return real
