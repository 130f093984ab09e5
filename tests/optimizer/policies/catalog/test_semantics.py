"""What the catalog derives from op records, and what it must decline."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn

from optimizer.policies.catalog.attention import DecodeAttention
from optimizer.policies.catalog.linear import LinearGroup
from optimizer.policies.catalog.plans import render
from optimizer.policies.catalog.rows import RowProgram
from optimizer.policies.catalog.semantics import derive, explain
from tests.optimizer.policies.catalog import models
from tests.optimizer.policies.catalog.harness import plan_for
from tests.optimizer.policies.catalog.tracing import trace

BF16 = torch.bfloat16


def draw(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def source_of(module: nn.Module, *inputs: torch.Tensor) -> str:
    spec = trace(module, [inputs])
    semantics = derive(spec)
    assert semantics is not None
    return render(spec, semantics, plan_for(spec, "portable"))


def lines_with(source: str, *parts: str) -> list[str]:
    return [line for line in source.splitlines() if all(part in line for part in parts)]


def test_norms_keep_their_rounding_order_weight_and_eps() -> None:
    plain = source_of(models.RmsNorm(32), draw(1, 1, 32))
    assert lines_with(plain, "+ 1e-06f")
    assert lines_with(plain, "= round_bf16(weight * to_")  # rounded before the weight, and after it
    centred = source_of(models.ZeroCentredNorm(32), draw(1, 1, 32))
    assert lines_with(centred, "+ 1e-05f")
    assert lines_with(centred, "= 1.0f + weight")
    assert len(lines_with(centred, "const vec", "round_bf16(")) == 1
    assert "w[0]" not in source_of(models.WeightlessNorm(32), draw(1, 1, 32))


def test_a_residual_norm_is_one_nest_with_two_outputs() -> None:
    spec = trace(models.ResidualNorm(models.RmsNorm(16)), [[draw(1, 1, 16), draw(1, 1, 16)]])
    program = derive(spec)
    assert isinstance(program, RowProgram)
    (nest,) = program.nests
    assert [position for position, _, _ in nest.outputs] == [0, 1]
    assert program.reductions == 1
    assert program.row == 16
    assert program.shared


def test_linear_groups_know_weights_biases_and_order() -> None:
    spec = trace(models.Linears(24, (8, 4), bias=True), [[draw(1, 1, 24)]])
    group = derive(spec)
    assert isinstance(group, LinearGroup)
    assert (group.k, group.n, group.x_input, group.prologue) == (24, 12, 0, None)
    assert [part.n for part in group.parts] == [8, 4]
    assert [spec.weights[part.weight].attribute for part in group.parts] == [
        "parts.0.weight",
        "parts.1.weight",
    ]
    assert all(spec.weights[part.bias or 0].attribute.endswith("bias") for part in group.parts)


def test_a_gated_output_has_a_prologue() -> None:
    group = derive(trace(models.GatedOutput(16, 8), [[draw(1, 1, 16), draw(1, 1, 16)]]))
    assert isinstance(group, LinearGroup)
    assert group.prologue is not None
    assert group.x_input is None


def test_attention_in_both_forms() -> None:
    cache, heads = (2, 2, 12, 16), 4
    mask = torch.zeros(2, 1, 1, 12, dtype=BF16)
    inputs = [draw(2, heads, 1, 16), draw(*cache), draw(*cache)]
    eager = derive(trace(models.Attention(cache, heads, "eager"), [[*inputs, mask]]))
    sdpa = derive(trace(models.Attention(cache, heads, "sdpa"), [[*inputs, mask == 0]]))
    assert isinstance(eager, DecodeAttention)
    assert isinstance(sdpa, DecodeAttention)
    assert (eager.heads, eager.kv_heads, eager.width, eager.scale, eager.layout) == (4, 2, 16, 0.25, "bs(hd)")
    assert (eager.mask, eager.empty_rows) == ("additive", "mean")
    assert (sdpa.mask, sdpa.empty_rows) == ("bool", "zero")


def test_softcapped_attention_is_declined() -> None:
    cache = (1, 2, 12, 16)
    inputs = [draw(1, 2, 1, 16), draw(*cache), draw(*cache), torch.zeros(1, 1, 1, 12, dtype=BF16)]
    semantics, why = explain(trace(models.Attention(cache, 2, "eager", softcap=30.0), [inputs]))
    assert semantics is None
    assert "product of queries and keys" in why


class _Odd(nn.Module):
    """One small module per thing that no template covers."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case
        self.down = nn.Linear(16, 4, bias=False, dtype=BF16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.case:
            case "unknown op":
                return torch.cumsum(x, dim=-1)
            case "another axis":
                return x - x.mean(1, keepdim=True)
            case "not kept":
                return x * x.sum(-1)
            case "strange power":
                return x.pow(1.7)
            case "gelu variant":
                return F.gelu(x, approximate="none").cumsum(-1)
            case "integers":
                return x.to(torch.int64) * 2
            case "epilogue":
                return self.down(x) * 2
            case _:
                return F.linear(x, x[0, :, :])


def test_what_no_template_covers_is_declined() -> None:
    cases = (
        "unknown op",
        "another axis",
        "not kept",
        "strange power",
        "gelu variant",
        "integers",
        "epilogue",
        "?",
    )
    for case in cases:
        shape = (1, 16, 16)
        semantics, why = explain(trace(_Odd(case), [[draw(*shape)]]))
        assert (semantics is None, bool(why)) == (True, True), case


def test_garbled_op_records_are_declined_not_fatal() -> None:
    """Any damage to an op's arguments gives semantics or a reason, never an exception."""
    dice = random.Random(0)
    cache = (1, 2, 12, 16)
    angle = torch.rand(1, 1, 16)
    specs = [
        trace(models.QkNormRope(32, 16), [[draw(1, 1, 64), draw(1, 1, 32), angle, angle]]),
        trace(models.ChunkedGelu(), [[draw(1, 1, 32)]]),
        trace(models.GatedOutput(16, 8), [[draw(1, 1, 16), draw(1, 1, 16)]]),
        trace(
            models.Attention(cache, 4, "eager"),
            [[draw(1, 4, 1, 16), draw(*cache), draw(*cache), draw(1, 1, 1, 12)]],
        ),
    ]
    junk = [None, "x", 3.5, -7, True, [], {"slice": [1, None, 2]}, {"ref": "nope"}, {"dtype": "int64"}, [[1]]]
    declined = 0
    for spec in specs:
        for _ in range(80):
            ops = list(spec.ops)
            where = dice.randrange(len(ops))
            args, kwargs = list(ops[where].args), dict(ops[where].kwargs)
            match dice.randrange(4):
                case 0:
                    args.pop(dice.randrange(len(args)))
                case 1:
                    args[dice.randrange(len(args))] = dice.choice(junk)
                case 2:
                    args.append(dice.choice(junk))
                case _:
                    kwargs["dim"] = dice.choice(junk)
            ops[where] = ops[where].model_copy(update={"args": tuple(args), "kwargs": kwargs})
            semantics, why = explain(spec.model_copy(update={"ops": tuple(ops)}))
            assert (semantics is None) == bool(why)
            declined += semantics is None
    assert declined > 150
