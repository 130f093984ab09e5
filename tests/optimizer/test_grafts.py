"""The file of accepted kernels, and the choice of winners."""

import json
from pathlib import Path

import pytest

from extractor.families import Family
from optimizer.candidate import Candidate, Language
from optimizer.grafts import (
    GRAFTS_FILE,
    Contender,
    CorruptGrafts,
    GraftFile,
    GraftRecord,
    NoGrafts,
    choose,
    load_candidate,
)


@pytest.fixture
def record(tmp_path: Path) -> GraftRecord:
    candidate = Candidate(Language.CPP, "int kg_forward(); // ü\n")
    source = tmp_path / "sources" / f"{candidate.sha}.cpp"
    source.parent.mkdir()
    source.write_text(candidate.source, encoding="utf-8")
    return GraftRecord(
        task_id="silu_gate-0123456789",
        op_key="0123456789abcdef",
        family=Family.SILU_GATE,
        language=Language.CPP,
        candidate_sha=candidate.sha,
        source_file=f"sources/{candidate.sha}.cpp",
        workloads=("decode-b1",),
        rows={"decode-b1": 1},
        ratios={"decode-b1": 1.5},
        speedup=1.5,
        trajectory=0,
        turn=1,
        policy="catalog",
        notes={"unroll": "4"},
    )


def save(folder: Path, *records: GraftRecord) -> Path:
    file = GraftFile(machine="m", complete=True, grafts=records)
    file.save(folder)
    return folder / GRAFTS_FILE


def test_round_trip_and_look_up(tmp_path: Path, record: GraftRecord) -> None:
    save(tmp_path, record)
    loaded = GraftFile.load(tmp_path)
    assert loaded.grafts == (record,)
    assert loaded.for_workload(record.op_key, 1) == record
    assert loaded.for_workload(record.op_key, 4) is None
    assert loaded.for_workload("other", 1) is None
    assert load_candidate(tmp_path, record).sha == record.candidate_sha


def test_absent_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(NoGrafts, match="kernelgraft optimize"):
        GraftFile.load(tmp_path)


def test_changed_source_is_refused(tmp_path: Path, record: GraftRecord) -> None:
    save(tmp_path, record)
    (tmp_path / record.source_file).write_text("int kg_forward(); // evil\n")
    with pytest.raises(CorruptGrafts, match="changed after it was judged"):
        GraftFile.load(tmp_path)


def test_missing_source_is_refused(tmp_path: Path, record: GraftRecord) -> None:
    save(tmp_path, record)
    (tmp_path / record.source_file).unlink()
    with pytest.raises(CorruptGrafts, match="cannot be read"):
        GraftFile.load(tmp_path)


def test_source_outside_the_run_is_refused(tmp_path: Path, record: GraftRecord) -> None:
    save(tmp_path, record.model_copy(update={"source_file": "../../etc/passwd"}))
    with pytest.raises(CorruptGrafts, match="outside the run"):
        GraftFile.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "the file"),
        ("\x00\xff", "the file"),
        ('{"machine": "m"}', "complete"),
        ('{"machine": "m", "complete": true, "grafts": [], "colour": 1}', "colour"),
        ('{"schema_version": 99, "machine": "m", "complete": true}', "schema version 99"),
    ],
)
def test_damaged_file_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / GRAFTS_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(CorruptGrafts, match=problem) as caught:
        GraftFile.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert GRAFTS_FILE in str(caught.value)


def test_file_is_plain_json(tmp_path: Path, record: GraftRecord) -> None:
    data = json.loads(save(tmp_path, record).read_text(encoding="utf-8"))
    assert data["schema_version"] == 1
    assert data["grafts"][0]["family"] == "silu_gate"


def pick(*contenders: Contender) -> dict[str, tuple[str, ...]]:
    return {contender.sha: workloads for contender, workloads in choose(contenders)}


def test_one_candidate_within_two_percent_everywhere_is_picked_alone() -> None:
    even = Contender("even", {"b1": 1.97, "b4": 1.98}, 1.975)
    assert pick(Contender("b1", {"b1": 2.0}, 1.5), Contender("b4", {"b4": 2.0}, 1.5), even) == {
        "even": ("b1", "b4")
    }


def test_specialists_share_when_no_candidate_is_near_everywhere() -> None:
    even = Contender("even", {"b1": 1.5, "b4": 1.5}, 1.5)
    assert pick(Contender("one", {"b1": 2.0}, 1.4), Contender("four", {"b4": 2.0}, 1.6), even) == {
        "one": ("b1",),
        "four": ("b4",),
    }


def test_workload_weights_decide_who_is_taken_first() -> None:
    left = Contender("left", {"a": 2.0, "b": 2.0}, 1.0)
    right = Contender("right", {"b": 2.0, "c": 2.0}, 1.0)
    picked = choose([left, right], weight=lambda w: 10.0 if w == "c" else 1.0)
    assert [(c.sha, w) for c, w in picked] == [("right", ("b", "c")), ("left", ("a",))]


def test_nobody_wins() -> None:
    assert choose([]) == []


def test_noise_of_the_best_widens_what_is_nearly_as_good_up_to_a_limit() -> None:
    def chosen(noise: float, ratio: float) -> set[str]:
        best = Contender("best", {"b1": 2.0}, 1.0, {"b1": noise})
        even = Contender("even", {"b1": ratio, "b4": 2.0}, 1.9)
        return set(pick(best, even))

    assert chosen(0.0, 1.93) == {"best", "even"}
    assert chosen(0.04, 1.93) == {"even"}
    assert chosen(0.50, 1.93) == {"even"}
    assert chosen(0.50, 1.80) == {"best", "even"}
