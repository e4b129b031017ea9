"""Traces become paths of units."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hicache.cli.multiturn import Multiturn
from hicache.cli.traces import Trace, TraceError, TraceFormat, read_trace


def paths(trace: Trace) -> list[list[int]]:
    return [list(request.path) for request in trace.requests]


@pytest.mark.parametrize(
    ("name", "form", "page_size", "count"),
    [("mooncake_excerpt.jsonl", "mooncake", 512, 10), ("session.json", "kv-cache-tester", 64, 4)],
)
def test_the_format_is_seen_and_a_page_is_an_id(
    data: Path, name: str, form: str, page_size: int, count: int
) -> None:
    trace = read_trace(data / name, TraceFormat.auto, None)
    assert (trace.format, trace.page_size, trace.unit, trace.count) == (form, page_size, page_size, count)
    assert len(paths(trace)) == count


def test_a_session_on_one_line_is_seen_too(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "one_line.json"
    file.write_text(json.dumps(json.loads((data / "session.json").read_text())))
    assert read_trace(file, TraceFormat.auto, None).format == "kv-cache-tester"


def test_requests_of_a_sub_agent_stand_where_their_time_puts_them(data: Path) -> None:
    trace = read_trace(data / "session.json", TraceFormat.auto, None)
    assert paths(trace) == [[1, 2, 3], [1, 7], [1, 2, 3, 4], [1, 7, 8]]


@pytest.mark.parametrize(("page_size", "unit"), [(512, 512), (64, 64), (8192, 512), (768, 256), (7, 1)])
def test_a_unit_divides_pages_and_ids(data: Path, page_size: int, unit: int) -> None:
    trace = read_trace(data / "mooncake_excerpt.jsonl", TraceFormat.mooncake, page_size)
    assert trace.unit == unit
    first = next(iter(trace.requests))
    assert len(first.path) == first.prompt == 6 * 512 // unit
    assert list(first.path) == [708 + i * unit // 512 for i in range(len(first.path))]


def test_a_trace_can_be_read_twice_and_cut(data: Path) -> None:
    trace = read_trace(data / "session.json", TraceFormat.auto, 32)
    assert paths(trace) == paths(trace)
    assert (trace.first(2).count, paths(trace.first(2))) == (2, paths(trace)[:2])
    assert trace.first(99).count == 4


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"hash_ids": [1]}\n{"hash_ids": [1, -2]}\n', "line 2"),
        ('{"hash_ids": [1]}\n\n{"hash_ids": "1"}\n', "line 3"),
        ('{"hash_ids": [1.5]}', "line 1"),
        ('{"hash_ids": [9223372036854775808]}', "line 1"),
        ('{"hash_ids": [1]}\nnot json\n', "line 2"),
        ("[]", "line 1"),
    ],
)
def test_a_bad_mooncake_line_is_named(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(TraceError, match=place):
        read_trace(file, TraceFormat.mooncake, None)


@pytest.mark.parametrize(
    ("session", "place"),
    [
        ([], "block_size"),
        ({"requests": []}, "block_size"),
        ({"block_size": 0, "requests": []}, "block_size"),
        ({"block_size": 10**15, "requests": []}, "block_size"),
        ({"block_size": 64}, "requests"),
        ({"block_size": 64, "requests": [{"hash_ids": [1]}]}, r"session.requests\[0\]"),
        (
            {"block_size": 64, "requests": [{"t": 0, "requests": [{"t": 0, "hash_ids": [-1]}]}]},
            r"session.requests\[0\].requests\[0\]",
        ),
    ],
)
def test_a_bad_session_entry_is_named(tmp_path: Path, session: object, place: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(session))
    with pytest.raises(TraceError, match=place):
        read_trace(file, TraceFormat.kv_cache_tester, None)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="text"):
        read_trace(file, TraceFormat.auto, None)


def test_conversations_grow_and_share_nothing() -> None:
    trace = Multiturn(clients=3, rounds=4, input=8, output=4).trace(page_size=16)
    assert (trace.unit, trace.count) == (4, 12)
    requests = list(trace.requests)
    assert [request.round for request in requests] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    for number, request in enumerate(requests):
        turn, client = divmod(number, 3)
        assert request.prompt == (8 * (turn + 1) + 4 * turn) // 4
        assert len(request.path) == 12 * (turn + 1) // 4
        assert list(request.path[: len(requests[client].path)]) == list(requests[client].path)
    last = [set(request.path) for request in requests[-3:]]
    assert len(set.union(*last)) == 3 * 12
