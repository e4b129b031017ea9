"""Multi-turn conversations and their right answers, which every configuration of the cache must reproduce.

All clients begin with the same system text; two of a pair share the opening as well, then everybody goes on
alone. So there are hits of every kind: across all clients, within a pair, and with one's own history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hicache.engines.reference import Model, Request, Result

CLIENTS, ROUNDS, NEW_TOKENS = 6, 5, 6


@dataclass(frozen=True)
class Turn:
    """One request of one client, and the oracle's answer to it."""

    client: int
    prompt: list[int]
    answer: list[int]


Script = list[list[Turn]]  # by round


def script(model: Model, alone: Callable[[Model, Request], Result]) -> Script:
    """Every round: each client sends its whole history and 7 to 12 new tokens (never whole pages)."""
    generator = torch.Generator().manual_seed(21)

    def words(count: int) -> list[int]:
        return torch.randint(0, model.config.vocabulary, (count,), generator=generator).tolist()

    system, opening = words(26), [words(9) for _ in range(CLIENTS // 2)]
    histories = [system + opening[client // 2] for client in range(CLIENTS)]
    rounds: Script = []
    for _ in range(ROUNDS):
        turns = []
        for client, history in enumerate(histories):
            prompt = history + words(7 + client)
            answer = alone(model, Request(prompt, NEW_TOKENS)).tokens
            turns.append(Turn(client, prompt, answer))
            histories[client] = prompt + answer
        rounds.append(turns)
    return rounds
