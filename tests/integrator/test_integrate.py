"""The real path on preset:qwen3-tiny: extracted tasks, hand-made C++ kernels, ledger, patch, load."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from extractor.families import Family
from extractor.models import load_model
from extractor.run_folder import RunFolder, read_json, write_json
from integrator import ledger as rules
from integrator.fit import WrongModel
from integrator.integrate import NoSuchBatch, UnmeasuredDevice, integrate
from integrator.kernels import UnknownTask
from integrator.ledger_schema import Ledger, RollbackReason, Rung
from integrator.load import HANDLE, load
from integrator.patch import NothingToPatch, patch
from optimizer.grafts import GraftFile, NoGrafts
from tests.integrator.handmade import LINEAR_FAMILIES, extracted_run, write_grafts

IDS = torch.arange(1, 7).unsqueeze(0)


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return extracted_run(tmp_path_factory.mktemp("runs") / "with space")


@pytest.fixture
def run(extracted: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A private copy of the run with hand-made grafts; steps of half a millisecond are too short to time."""
    monkeypatch.setattr(rules, "PLAUSIBLE_SLACK", 1.0)
    copied = RunFolder(Path(shutil.copytree(extracted.path, tmp_path / "run")))
    write_grafts(copied)
    return copied


def test_handmade_kernels_reach_every_site_and_the_ledger_is_on_disk(run: RunFolder) -> None:
    ledger = integrate(run, rounds=2, keep_all=True)
    assert read_json(run.ledger_path, Ledger) == ledger
    (batch,) = ledger.batches
    assert {row.family for row in batch.grafts if row.kept} == {*LINEAR_FAMILIES, Family.SILU_GATE}
    assert {row.sites for row in batch.grafts} == {1, 2}  # the head once, all others once a layer
    assert all(row.launches == row.expected_launches > 0 for row in batch.grafts)
    assert all(row.share is not None and 0 < row.share < 1 for row in batch.grafts)
    assert [row.letter for row in batch.grafts][:4] == ["A", "B", "D", "E"]
    assert {row.family for row in batch.unserved} >= {Family.QK_NORM_ROPE, Family.ATTENTION_DECODE}
    assert batch.final.parity is not None
    assert batch.final.parity.rms_error <= 1.5 * batch.stock_parity.rms_error
    assert batch.headline.stronger_left_out == (Rung.INDUCTOR_MAX, Rung.INDUCTOR)
    assert any("Prefill runs stock" in note for note in ledger.notes)


def test_a_wrong_kernel_is_rolled_back_and_patch_leaves_it_out(run: RunFolder) -> None:
    write_grafts(run, {Family.FFN_DOWN: 1.25})
    ledger = integrate(run, rounds=2, keep_all=True)
    lost = {row.graft: row.reason for row in ledger.batches[0].grafts if not row.kept}
    assert list(lost.values()) == [RollbackReason.PARITY]
    with patch(load_model("preset:qwen3-tiny").model, run.path) as handle:
        assert handle.grafts.isdisjoint(lost)
        assert len(handle.grafts) == len(ledger.batches[0].grafts) - 1


def test_patched_generate_at_another_length_is_engaged_and_near_stock(run: RunFolder) -> None:
    model = load_model("preset:qwen3-tiny").model
    options = {
        "max_new_tokens": 12,
        "do_sample": False,
        "cache_implementation": "static",
        "output_logits": True,
    }
    stock = model.generate(IDS, return_dict_in_generate=True, **options)
    with patch(model, run.path) as handle:
        found = model.generate(IDS, return_dict_in_generate=True, **options)
        assert handle.engagement.patched_steps == 11
        assert all(count in (11, 22) for count in handle.engagement.launches.values())
    first = torch.stack(found.logits[:3]), torch.stack(stock.logits[:3])
    torch.testing.assert_close(*first, rtol=0.05, atol=0.1)
    again = model.generate(IDS, return_dict_in_generate=True, **options)
    assert torch.equal(again.sequences, stock.sequences)


def test_load_gives_a_patched_model_that_generates(run: RunFolder) -> None:
    model = load(run.path)
    assert model.generate(IDS, max_new_tokens=4, do_sample=False).shape == (1, 10)
    assert getattr(model, HANDLE).engagement.patched_steps == 3


def test_patch_before_integrate_uses_every_accepted_kernel(run: RunFolder) -> None:
    with patch(load_model("preset:qwen3-tiny").model, run.path) as handle:
        assert len(handle.grafts) == len(GraftFile.load(run.path).grafts)


def test_bad_runs_are_one_sentence(run: RunFolder, extracted: RunFolder) -> None:
    with pytest.raises(NoGrafts, match="kernelgraft optimize"):
        integrate(extracted)
    with pytest.raises(NoSuchBatch, match="extracted for batches 1, not 3"):
        integrate(run, batches=[3])
    grafts = GraftFile.load(run.path)
    grafts.model_copy(update={"grafts": ()}).save(run.path)
    with pytest.raises(NothingToPatch, match="no accepted kernel"):
        patch(load_model("preset:qwen3-tiny").model, run.path)
    grafts.save(run.path)
    shutil.rmtree(run.tasks_dir / grafts.grafts[0].task_id)
    with pytest.raises(UnknownTask, match="optimize the run again"):
        integrate(run)
    write_json(run.manifest_path, run.manifest.model_copy(update={"device": "cuda"}))
    with pytest.raises(UnmeasuredDevice, match="extract with --device cpu"):
        integrate(run)


@pytest.mark.parametrize(
    ("name", "dtype", "words"),
    [
        ("preset:qwen3-tiny", "float32", "is float32 .* load preset:qwen3-tiny in bfloat16"),
        ("preset:phi3-tiny", "bfloat16", r"down_proj.weight is bfloat16 \[128, 160\], not"),
    ],
)
def test_a_model_that_no_kernel_fits_is_refused(run: RunFolder, name: str, dtype: str, words: str) -> None:
    model = load_model(name, dtype=dtype).model
    forward = model.forward
    with pytest.raises(WrongModel, match=words):
        patch(model, run.path)
    assert model.forward == forward
