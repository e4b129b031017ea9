"""The life of a request, told in the cache's verbs, in the order in which it meets them.

    find         match_prefix, prefetch    it arrives: what is known of its prompt, and fetch what storage has
    decided      decide                    it could run: does it wait for what is being fetched?
    load         load                      it may run: its hit comes to the device
    allocate     allocate                  and it gets slots for all the rest
    (compute)    load.wait_layer           the model, just before each layer reads the pool
     reach                                  hybrids: window slots for the tokens of the next step
     keep         insert, free              after each pass, and at the end: whole pages go to the tree
    give_back    free, release             it ends, or is aborted, in any state

What a hybrid model's request has in the pools of windows and states besides is in `parts.py`.

Two verbs are not called here: write-through makes the backups by itself when pages are inserted, and allocate
evicts what it must. `poll` is the engine's, once a step.

For: `admission.py` and `engine.py`.
Assumes: a sequence is waiting (found or not yet), running, or ended.
Refuses to know: the inside of the cache; the model.
On error: no room is a value (False).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from hicache.engines.reference.pool import KVPool
    from hicache.engines.reference.sequence import Sequence
    from hicache.engines.reference.verbs import Cache, Load


def find(cache: Cache, sequence: Sequence, clock: Callable[[], float], computed: int = 1) -> None:
    """Match the prompt and, where storage may have more, fetch it while the request waits.

    At least the last prompt token must be computed, or there would be no logits to sample from: so the limit.
    `computed`: how many must be, at least.
    """
    started = clock()
    prompt = sequence.tokens[: sequence.prompt]
    space = {} if sequence.request.namespace is None else {"namespace": sequence.request.namespace}
    sequence.hit = cache.match_prefix(prompt, **space, limit=sequence.prompt - computed)
    cache.prefetch(sequence.hit)
    sequence.clock.asked = clock()
    sequence.clock.count(restoring=sequence.clock.asked - started)


def decided(cache: Cache, sequence: Sequence, others: int, clock: Callable[[], float]) -> bool:
    """True once the request is to start from what there is. Asked when it could run, as `others` could."""
    if cache.decide(sequence.hit, others) != "compute":
        return False
    if sequence.clock.asked is not None:
        sequence.clock.count(restoring=clock() - sequence.clock.asked)
        sequence.clock.asked = None
    return True


def load(cache: Cache, batch: list[Sequence], clock: Callable[[], float]) -> Load:
    """One load for the batch: afterwards every hit has its final length and its pages are pinned."""
    started = clock()
    copies = cache.load([sequence.hit for sequence in batch])
    for sequence in batch:
        sequence.clock.count(restoring=clock() - started)
    return copies


def missing(sequence: Sequence, pool: KVPool, length: int) -> int:
    """Pages that a request needs besides a hit of `length` tokens, up to its last possible token."""
    return pool.pages_for(sequence.kv_tokens) - pool.pages_for(length)


def allocate(cache: Cache, sequence: Sequence, pool: KVPool) -> bool:
    """Slots for everything that the hit does not cover; False: no room now.

    All of them at once, so that a running request never has to stop for want of a slot.
    """
    hit = sequence.hit
    if sequence.parts is not None and not sequence.parts.take(hit):
        return False
    slots = cache.allocate(missing(sequence, pool, hit.length))
    if slots is None:
        if sequence.parts is not None:
            sequence.parts.give_back()
        return False
    sequence.page_table = torch.cat([hit.slots, slots])
    sequence.computed = sequence.restored = hit.length
    sequence.checkpoint = hit.checkpoint_length
    # What this request's own prefetch brought in was the tail of what the load copied.
    sequence.from_storage = min(hit.storage_length, hit.loaded_length)
    sequence.from_host = hit.loaded_length - sequence.from_storage
    return True


def reach(sequence: Sequence, tokens: int) -> bool:
    """Window slots for the next `tokens` tokens; False: no room for them now."""
    return sequence.parts is None or sequence.parts.reach(sequence.computed + tokens)


def keep(
    cache: Cache, sequence: Sequence, pool: KVPool, computed: int | None = None, *, ahead: int = 0
) -> None:
    """Give the tree every whole page computed since the last time, and use its slots from now on.

    `computed`: tokens whose rows are all there, where those are fewer than `sequence.computed`. `ahead`:
    tokens behind them that their rows depend on, too: the keys are of pairs then.

    Where another request was quicker with the same page, the tree keeps that one and ours is a duplicate: the
    page table is re-pointed first, then the duplicate is freed. A window moves on only after the insert, so
    that the tree gets all that it reached.
    """
    computed = sequence.computed if computed is None else computed
    first, last = sequence.hit.length // pool.page_size, computed // pool.page_size
    if sequence.parts is not None:
        sequence.parts.computed()
    if first < last:
        _insert(cache, sequence, first, last, computed + ahead)
    if sequence.parts is not None:
        sequence.parts.slide(sequence.computed)


def _insert(cache: Cache, sequence: Sequence, first: int, last: int, until: int) -> None:
    tokens = sequence.tokens[sequence.hit.length : until]
    slots = sequence.page_table[first:last]
    if sequence.parts is None:
        done = cache.insert(sequence.hit, tokens, slots)
    else:
        done = sequence.parts.insert(sequence.hit, tokens, slots, first)
    sequence.page_table[first : first + len(done.slots)] = done.slots
    if len(done.duplicates):
        cache.free(done.duplicates)


def give_back(cache: Cache, sequence: Sequence, pool: KVPool) -> None:
    """Free the slots that are still ours (a partial last page, unused reserve) and release the hit."""
    hit = sequence.hit
    if hit is None:
        return
    if len(sequence.page_table):  # else it never ran: a hit that is not loaded has no length
        cache.free(sequence.page_table[hit.length // pool.page_size :])
    if sequence.parts is not None:
        sequence.parts.give_back()
    hit.release(generated=sequence.generated)
    sequence.hit = None
