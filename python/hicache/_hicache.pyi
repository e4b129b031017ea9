"""The binding's export list: the core's verbs, in path order."""

from typing import Any, final

__all__ = [
    "Cache",
    "Call",
    "Desk",
    "Layout",
    "Load",
    "Place",
    "Reader",
    "Replay",
    "Slots",
    "Store",
    "__version__",
    "cuda_status",
    "memory_available",
]

__version__: str

def cuda_status() -> str:
    """Of GPU copies: "ok", "no driver", "no device", CUDA's error, or "not built" (no feature `cuda`)."""

#: Name; planes as (layer, role, bytes of a row); (heads, head groups); whether rows are pages; whose slots;
#: needs: 0 all pages, 1 the last one, else 1 + a window's tokens.
_Pool = tuple[str, list[tuple[int, int, int]], tuple[int, int], bool, str, int]
#: (address, bytes) of each plane of each pool.
_Memory = list[list[tuple[int, int]]]
#: Slots, layout, shared, threads that touch it beforehand, NUMA node.
_Host = tuple[list[int], str, bool, int, int | None]
#: The model's fields (name and text), rank, world.
_Identity = tuple[list[tuple[str, str]], list[int], list[int]]
#: Backups, loads, stores, prefetches, strays.
_Counts = tuple[int, int, int, int, int]

@final
class Place:
    """Where a released hit ended."""

    @property
    def depth(self) -> int:
        """In pages."""

def memory_available() -> int | None:
    """Bytes that this process may still take."""

@final
class Slots:
    """Many slots: a buffer of int32 in the machine's order. Its length is in bytes, as a bytearray's."""

    def __len__(self) -> int: ...

#: int32 in the machine's order.
_Slots = Slots | bytearray

@final
class Layout:
    """Where a pool's bytes are in host memory. Offsets and sizes in bytes."""

    def __new__(cls, layout: str, pool: _Pool, page_size: int, slots: int) -> Layout: ...
    @property
    def bytes(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...
    def address(self, layer: int, role: int, slot: int, row: int, head: int) -> int: ...
    def runs(self, slot: int) -> list[tuple[int, int]]: ...
    def window(self, slot: int, group: int, start: int, end: int) -> tuple[int, int]: ...
    def pieces(self, most: int) -> list[tuple[int, int]]: ...

@final
class Load:
    """How far one load is."""

    def wait(self, layers: int, timeout: float) -> None: ...
    def order(self, layer: int, stream: int) -> None:
        """Lets a stream of the GPU (`cudaStream_t`) wait for a layer."""
    @property
    def finished(self) -> bool: ...

@final
class Cache:
    """The core. `hit` is the number that `match_prefix` returned."""

    def __new__(
        cls,
        *,
        page_size: int,
        bigrams: bool,
        pools: list[_Pool],
        memory: _Memory | None,
        keep: object | None,
        device_slots: list[int],
        engine_owns_slots: bool,
        unified: int | None,
        checkpoints_per_path: int,
        eviction: str,
        host: _Host,
        restart: str | None,
        copies: tuple[int | None, str],
        gpu: int | None,
        gpu_copies: tuple[tuple[int, int] | None, tuple[int, int] | None, tuple[int, int] | None],
        storage: str | Store | None,
        identity: _Identity,
        io_threads: int,
        write_queue: int,
        prefetch: tuple[str, float, float],
        prefetch_deadline: float,
        store_deadline: float,
        prefetch_threshold: int,
        load_threshold: int,
    ) -> Cache: ...
    def attach(self, memory: _Memory, keep: object, device_slots: list[int], gpu: int | None) -> None: ...
    def detach(self) -> int:
        """Pages that had no host copy."""
    @property
    def attached(self) -> bool: ...
    def host_memory(self) -> list[tuple[int, int, int | None]]:
        """Address, bytes, descriptor."""
    def host_restart(self) -> str | None: ...
    def match_prefix(
        self,
        tokens: Any,
        extra_key: str | None,
        salt: str | None,
        adapter: str | None,
        after: Place | None,
        limit: int | None,
        at: float,
    ) -> int: ...
    def view(self, hit: int) -> tuple[int, int, int, int, bool, bool, int | None]:
        """Pages on the device, usable, copied, stored; waiting; loaded; where a checkpoint would help."""
    def hit_slots(self, hit: int) -> _Slots: ...
    def hit_parts(self, hit: int) -> list[_Slots]: ...
    def prefetch(self, hit: int) -> bool: ...
    def decide(self, hit: int, others: int) -> tuple[str, int]:
        """A word; tokens, where it is "part"."""
    def stepped(self, tokens: int, seconds: float, ahead: int) -> None: ...
    def load(self, hits: list[int], given: Any, budget: int | None) -> tuple[Load, _Slots]: ...
    def follow(self, stream: int) -> None: ...
    def allocate(self, pages: int) -> _Slots | None: ...
    def insert(self, hit: int, tokens: Any, given: Any) -> tuple[int, _Slots, int]: ...
    def free(self, given: Any) -> None: ...
    def bump_epoch(self) -> tuple[int, int]: ...
    def allocate_part(self, part: int, count: int) -> _Slots | None: ...
    def insert_parts(
        self, hit: int, tokens: Any, given: Any, parts: list[tuple[int, Any]]
    ) -> tuple[int, _Slots, int, list[_Slots]]: ...
    def free_part(self, part: int, given: Any) -> None: ...
    def evict_part(self, part: int, host: bool, count: int) -> _Slots: ...
    def frames(self, space: int) -> _Slots: ...
    def frames_version(self) -> int: ...
    def begin_forward(self) -> int: ...
    def end_forward(self, forward: int) -> None: ...
    def part_stats(self, part: int) -> dict[str, int]: ...
    def backup(self, hit: int) -> int: ...
    def evict(self, host: bool, pages: int) -> _Slots: ...
    def ready(self) -> _Counts: ...
    def poll(self, limits: _Counts | None, at: float) -> _Counts: ...
    def release(self, hit: int, generated: int) -> Place: ...
    def reader(self) -> Reader: ...
    def digest(self) -> int: ...
    def copying(self) -> int:
        """Copies between device and host."""
    def in_flight(self) -> int:
        """Transfers of every kind."""
    def stats(self) -> dict[str, int]: ...
    def check(self) -> None: ...
    def close(self, timeout: float) -> None: ...

@final
class Reader:
    """For any thread."""

    def would_hit(
        self, tokens: Any, extra_key: str | None, salt: str | None, adapter: str | None
    ) -> tuple[int, int]:
        """Tokens on the device, and on device or host."""
    def stats(self) -> dict[str, int]: ...

@final
class Replay:
    """Traces through the real tree, with pools that hold no bytes. Sizes are pages; None is unlimited."""

    def __new__(
        cls, *, page_size: int, device: int | None = None, host: int | None = None, storage: bool = False
    ) -> Replay: ...
    def request(self, tokens: Any, prompt: int) -> tuple[int, int, int, int]:
        """Hits on device, host and storage, and the ceiling, in tokens."""
    def evicted(self) -> tuple[int, int]: ...
    def resident(self) -> tuple[int, int, int]: ...
    def check(self) -> None: ...

@final
class Call:
    """A call of a relayed store, which a thread has taken. What ends it says whether it is over: while
    anybody still has the memory of its pages it is not."""

    @property
    def verb(self) -> str: ...
    @property
    def identity(self) -> bytes: ...
    @property
    def keys(self) -> list[bytes]: ...
    @property
    def parents(self) -> list[bytes | None]: ...
    @property
    def pages(self) -> list[list[memoryview]]: ...
    def outcomes(self, numbers: bytes) -> bool: ...
    def number(self, number: int) -> bool: ...
    def held(self, pages: list[tuple[bytes, bytes, int, int]]) -> bool: ...
    def fail(self, why: str, nonsense: bool) -> bool: ...
    def revoke(self) -> bool:
        """Takes the memory of a call that is late back, and ends it for who waits."""

@final
class Desk:
    """Where calls of a relayed store wait. `take` and `late` wait without the GIL, and end with the desk."""

    def __new__(cls, queue: int) -> Desk: ...
    def take(self) -> Call | None: ...
    def late(self) -> Call | None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def counts(self) -> dict[str, int]: ...
    def holds(self, pages: int, size: int, capacity: int | None, evicted: int, expired: int) -> None: ...

#: A page: its runs, anything with the buffer protocol.
_Runs = list[Any]

@final
class Store:
    """Any store. Names are 32 bytes, outcomes numbers, a byte for each key."""

    @staticmethod
    def open(
        url: str,
        identity: bytes,
        fields: list[tuple[str, str]],
        rank: list[int],
        world: list[int],
    ) -> Store: ...
    @staticmethod
    def relayed(desk: Desk, timeout: float, description: str, verify: bool) -> Store: ...
    def exists(self, identity: bytes, keys: list[bytes]) -> bytes: ...
    def get(self, identity: bytes, keys: list[bytes], pages: list[_Runs]) -> bytes: ...
    def put(
        self, identity: bytes, keys: list[bytes], parents: list[bytes | None], pages: list[_Runs]
    ) -> bytes: ...
    def remove(self, identity: bytes, keys: list[bytes]) -> bytes: ...
    def clear(self, identity: bytes) -> int: ...
    def statistics(self) -> dict[str, int | None]: ...
    def describe(self) -> str: ...
    def list(self) -> list[tuple[bytes, bytes, int, int]]: ...
    def compact(self) -> int: ...
    def close(self) -> None: ...
