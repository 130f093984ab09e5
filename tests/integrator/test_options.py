"""Command-line text becomes checked settings."""

import pytest

from extractor.families import Family
from integrator.ledger_schema import Rung
from integrator.options import BadBatch, UnknownFamily, ledger_options, parse_batches, parse_families


@pytest.mark.parametrize(
    ("texts", "sizes"), [(["1"], (1,)), (["4", "1"], (1, 4)), (["1,4", "8,4"], (1, 4, 8))]
)
def test_batches(texts, sizes):
    assert parse_batches(texts) == sizes


@pytest.mark.parametrize("texts", [["0"], ["-1"], ["two"], [""], ["1.5"], ["²"]])
def test_bad_batches_are_one_sentence(texts):
    with pytest.raises(BadBatch, match="is not a positive whole number; give"):
        parse_batches(texts)


def test_families_by_name_and_letter():
    assert parse_families(None) is None
    assert parse_families(["i,A", "lm_head"]) == (Family.FFN_DOWN, Family.QK_NORM_ROPE, Family.LM_HEAD)
    assert parse_families(["ad,RN"]) == (Family.ATTENTION_DECODE, Family.RMSNORM)
    assert Family.ROUTER in (parse_families(["moe"]) or ())


def test_unknown_family_lists_the_known():
    with pytest.raises(UnknownFamily, match=r"'\+'; choose from: A ffn_down, .*lm_head"):
        parse_families(["+"])


def test_rungs():
    assert ledger_options(rungs=None, rounds=None, keep_all=False).rungs is None
    assert ledger_options(rungs=["sdpa,inductor"], rounds=4, keep_all=True).rungs == (
        Rung.SDPA,
        Rung.INDUCTOR,
    )
