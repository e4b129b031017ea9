"""When pages are copied further down, as settings of `HiCache`: docs/write-policies.md says which for what.

`write`: "write_through" (a page goes to the host when it comes), "write_through_selective" (when a second
request uses it) or "write_back" (when it is about to leave the device). `write_storage`: the same from the
host to storage. `host_copies`: "give_way" (copies of pages that are on the device leave the host first when
it is short) or "keep". `clean_reserve`: the share of a tier's slots, from 0 to 1, that are free or hold pages
that leave next and are copied already.

On error: `ArgumentError` whose text begins with the setting's name.
"""

from __future__ import annotations

from typing import Any

from hicache.config import policy
from hicache.quantities import share


def writing(write: str, storage: str, host_copies: str, clean_reserve: Any) -> tuple[str, str, str, float]:
    """The four settings as the core takes them."""
    named = {"write": write, "write_storage": storage, "host_copies": host_copies}
    for setting, value in named.items():
        policy(setting, value)
    return write, storage, host_copies, share("clean_reserve", clean_reserve)
