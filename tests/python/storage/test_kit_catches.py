"""The kit's own test: each clause fails for a store that breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import broken
import broken_processes as processes
import pytest
from plain_file import PlainFileStore

from hicache.storage import Store
from hicache.testing.memory import MemoryStore
from hicache.testing.stores import StoreKit

#: Which test must notice which store.
CAUGHT: list[tuple[str, type[Store]]] = [
    ("test_one_answer_a_key", broken.TwiceTheAnswers),
    ("test_one_answer_a_key", broken.OtherOrder),
    ("test_one_answer_a_key", broken.Booleans),
    ("test_one_answer_a_key", broken.NoEmptyBatch),
    ("test_one_answer_a_key", broken.At128),
    ("test_a_key_twice_in_a_batch", broken.OncePerBatch),
    ("test_the_very_bytes", broken.WholeSectors),
    ("test_the_very_bytes", broken.FirstRun),
    ("test_the_source_may_change_afterwards", broken.NoCopies),
    ("test_another_length_is_no_hit", broken.LengthBlind),
    ("test_another_length_is_no_hit", broken.ShortIsAbsent),
    ("test_another_length_is_no_hit", broken.NeverMends),
    ("test_identities_are_apart", broken.OneIdentity),
    ("test_names_that_look_alike", broken.HalfNames),
    ("test_written_once", broken.Overwrites),
    ("test_removal", broken.NeverMends),
    ("test_removal", broken.RemovesAll),
    ("test_clear", broken.ClearsAll),
    ("test_clear", broken.ClearsNothing),
    ("test_list", broken.ListsOneIdentity),
    ("test_removal_wins", broken.ComesBack),
    ("test_half_a_page_is_absent", broken.InPieces),
    ("test_threads", broken.OneScratch),
    ("test_nothing_is_kept", broken.NoCopies),
    ("test_nothing_is_kept", broken.KeepsArrays),
    ("test_nothing_is_kept", broken.LateWriter),
    ("test_close", broken.NeverCloses),
    ("test_close", broken.OpenAfterClose),
    ("test_close", broken.Raises),
    ("test_close_while_others_call", broken.HangsOnceClosed),
    ("test_close_while_others_call", broken.NeverCloses),
    ("test_never_more_than_it_was_given", broken.Unbounded),
    ("test_never_more_than_it_was_given", broken.FailsWhenFull),
    ("test_what_is_larger_than_all_of_it", broken.EvictsInVain),
    ("test_children_leave_first", broken.EvictsInVain),
    ("test_a_smaller_size_after_reopening", PlainFileStore),
    ("test_damaged_objects", broken.RaisesOnShort),
    ("test_swapped_objects", PlainFileStore),
    ("test_objects_that_are_gone", broken.RaisesOnGone),
    ("test_nothing_is_unpickled", broken.NoPickles),
]
KITS: list[tuple[str, type[StoreKit]]] = [
    ("test_killed_while_it_writes", processes.InPlaceKit),
    ("test_killed_while_it_writes", processes.WriteBehindKit),
    ("test_two_processes", processes.OneAtATimeKit),
]


def kit_of(kind: type[Store]) -> StoreKit:
    opened = broken.opened(kind)

    def bounded(_: object, where: Path, capacity: int) -> Store:
        return kind(capacity) if issubclass(kind, MemoryStore) else kind(where)  # type: ignore[call-arg]

    members: dict[str, Any] = {
        "open": opened,
        "open_bounded": bounded,
        "objects": lambda _, where: [file for file in where.rglob("*") if file.is_file()],
        "persistent": issubclass(kind, PlainFileStore),
        "overhead": 0,
        "patience": 1.0,
    }
    return type("Kit", (StoreKit,), members)()


def must_fail(kit: StoreKit, clause: str, *arguments: Any) -> None:
    try:
        getattr(kit, clause)(*arguments)
    except Exception:
        return
    except BaseException as skipped:
        pytest.fail(f"{clause} was skipped: {skipped}")
    pytest.fail(f"{clause} noticed nothing")


@pytest.mark.parametrize(("clause", "kind"), CAUGHT, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_store_is_caught(clause: str, kind: type[Store], tmp_path: Path) -> None:
    arguments = ["half"] if clause == "test_damaged_objects" else []
    must_fail(kit_of(kind), clause, *arguments, tmp_path)


@pytest.mark.parametrize("damage", ["a bit at the beginning", "a bit at the end", "foreign", "zeros"])
def test_unverified_bytes_are_caught(damage: str, tmp_path: Path) -> None:
    must_fail(kit_of(PlainFileStore), "test_damaged_objects", damage, tmp_path)


@pytest.mark.parametrize(("clause", "kit"), KITS, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_store_is_caught_by_another_process(
    clause: str, kit: type[StoreKit], tmp_path: Path
) -> None:
    must_fail(kit(), clause, tmp_path)


def test_every_clause_has_caught_something() -> None:
    clauses = {member for member in dir(StoreKit) if member.startswith("test_")}
    assert {clause for clause, _ in [*CAUGHT, *KITS]} == clauses
