"""Values of options that are more than a number or a word.

For: turning what a person types into what a command works with.
Assumes: nothing.
Refuses to know: which command asks.
On error: `typer.BadParameter`, which the command line shows with the option's name, exit 2.
"""

from __future__ import annotations

import re
from decimal import Decimal

import typer

UNBOUNDED = "unbounded"
#: Tokens of a page (as `HiCache` has it) and of a turn's input or output.
MOST_PAGE_SIZE = MOST_TURN = 2**20
MOST_CLIENTS = MOST_ROUNDS = 10**6
MOST_PAGES = 2**32 - 1
#: Threads, requests in flight: far more than any machine has use for, and still no crash.
MOST_AT_ONCE = 1024
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def tier_pages(option: str, text: str, page_size: int, *, none: bool) -> int | None:
    """Pages of a tier from its size in tokens.

    `text` is a whole number of tokens (3550000, 3550k, 3.55M), "unbounded", or, where `none` is true,
    "none" or 0. Returns None for unbounded, 0 for no tier, else the whole pages that fit.
    """
    word = text.strip().lower()
    if word == UNBOUNDED:
        return None
    if none and word in ("none", "0"):
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)", word)
    if match is None:
        words = "'unbounded' or 'none'" if none else "or 'unbounded'"
        raise refused(option, f"{text!r} is not a number of tokens (as 3550000 or 3.55M), {words}")
    pages = int(Decimal(match[1]) * _UNITS[match[2]]) // page_size
    if pages == 0:
        raise refused(option, f"{text} tokens hold no page of {page_size} tokens")
    if pages > MOST_PAGES:
        raise refused(option, f"{text} tokens are more than the 2^32 - 1 pages there can be")
    return pages


def clients_by_rounds(option: str, text: str) -> tuple[int, int]:
    """Clients and rounds from text such as "48x60"."""
    match = re.fullmatch(r"(\d+)\s*[x\u00d7*]\s*(\d+)", text.strip().lower())
    if match is None:
        raise refused(option, f"{text!r} is not CLIENTSxROUNDS, as 48x60")
    clients, rounds = Decimal(match[1]), Decimal(match[2])  # however many digits there are
    if not (clients and rounds):
        raise refused(option, f"{text!r} has no request: at least one client and one round")
    if clients > MOST_CLIENTS or rounds > MOST_ROUNDS:
        raise refused(option, f"at most {MOST_CLIENTS:,} clients and {MOST_ROUNDS:,} rounds")
    return int(clients), int(rounds)


def refused(option: str, reason: str) -> typer.BadParameter:
    """The error for a value of `option`."""
    return typer.BadParameter(reason, param_hint=f"'{option}'")
