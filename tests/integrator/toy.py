"""A detector-free world for the integrator's tests: two kinds of seams found by weight name, torch-only kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from extractor.families import Family
from integrator.graph_patch import placeholders
from integrator.seams import Seam

DOWN, GATE_UP = "key-down", "key-gate-up"


def toy_model(seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A two-layer qwen3 with eager attention, deterministic in ``seed``; buffers stay float32, as in real models."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        **{
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "vocab_size": 97,
            "tie_word_embeddings": True,
            "max_position_embeddings": 128,
            "attn_implementation": "eager",
        }
        | options
    )
    model = Qwen3ForCausalLM(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.mul_(5.0)
        parameter.data = parameter.data.to(dtype)
    return model


def find_toy_seams(model: Any) -> Callable[[fx.GraphModule, Sequence[Any]], list[Seam]]:
    """Seams of the MLPs: ``down_proj`` alone, and ``gate_proj`` with ``up_proj`` as siblings."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def find(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> list[Seam]:
        weight_name = {
            node: names.get(id(value), "")
            for node, value in zip(placeholders(graph_module), example_inputs, strict=True)
        }
        linears = {
            weight_name[node.args[1]]: node
            for node in graph_module.graph.nodes
            if node.op == "call_function" and node.target is torch._C._nn.linear
        }
        seams = []
        for name, node in linears.items():
            batch = node.args[0].meta["example_value"].shape[0]
            if name.endswith("down_proj.weight"):
                seams.append(_seam(Family.FFN_DOWN, DOWN, name, batch, (node,)))
            elif name.endswith("gate_proj.weight"):
                pair = (node, linears[name.replace("gate_proj", "up_proj")])
                seams.append(_seam(Family.FFN_GATE_UP, GATE_UP, name, batch, pair))
        return seams

    return find


def _seam(family: Family, key: str, site: str, batch: int, nodes: tuple[fx.Node, ...]) -> Seam:
    return Seam(
        family=family,
        op_key=key,
        exact_key=f"{key}-{batch}",
        site=site,
        batch=batch,
        rows=batch,
        nodes=nodes,
        inputs=(nodes[0].args[0],),  # type: ignore[arg-type]
        outputs=nodes,
        weights=tuple(node.args[1] for node in nodes),  # type: ignore[misc]
        anchor=nodes[0],  # silu(gate) comes before up, and both read one input
    )


@dataclass
class ToyGraft:
    """Linears by torch, then ``spoil``; counts its calls unless ``silent``."""

    weights: Sequence[torch.Tensor]
    spoil: Callable[[torch.Tensor], torch.Tensor]
    silent: bool
    calls: int = 0

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.calls += not self.silent
        return tuple(self.spoil(torch.nn.functional.linear(inputs[0], weight)) for weight in self.weights)


@dataclass
class ToyKernel:
    """A :class:`integrator.graft.Kernel` that computes a toy seam with torch."""

    id: str
    op_key: str
    family: Family
    packs_weights: bool = False
    batches: tuple[int, ...] = (1, 2)
    spoil: Callable[[torch.Tensor], torch.Tensor] = lambda value: value
    silent: bool = False
    bound: list[ToyGraft] = field(default_factory=list)

    def serves(self, batch: int, rows: int) -> bool:
        return rows in self.batches

    def bind(
        self,
        weights: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> ToyGraft:
        self.bound.append(ToyGraft(weights, self.spoil, self.silent))
        return self.bound[-1]


def down(**options: Any) -> ToyKernel:
    """A kernel for ``down_proj``, id ``down``."""
    return ToyKernel(**({"id": "down", "op_key": DOWN, "family": Family.FFN_DOWN} | options))


def gate_up(**options: Any) -> ToyKernel:
    """A kernel for ``gate_proj`` + ``up_proj``, id ``gate_up``."""
    return ToyKernel(**({"id": "gate_up", "op_key": GATE_UP, "family": Family.FFN_GATE_UP} | options))
