"""Makes a task spec out of a small torch module, so that the catalog's tests need no extractor and no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from extractor.families import Family
from extractor.schema import Health, OpRecord, Phase, TaskSpec, TensorSpec, WeightSource, WeightSpec, Workload


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return False


def trace(
    module: torch.nn.Module,
    batches: Sequence[Sequence[torch.Tensor]],
    *,
    family: Family = Family.ELEMENTWISE,
    rows: Sequence[int] = (1,),
) -> TaskSpec:
    """The spec of ``module`` with one decode workload for each of ``batches`` (its inputs); ops are the first's."""
    graph = _Tracer().trace(module)
    placeholders = [node.name for node in graph.nodes if node.op == "placeholder"]
    values = _run(module, graph, batches[0])
    weights = [node for node in graph.nodes if node.op == "get_attr"]
    attributes = list(dict.fromkeys(str(node.target) for node in weights))
    names = {node.name: str(node.target) for node in weights}
    ops, returned = [], ()
    for node in graph.nodes:
        if node.op in ("call_function", "call_method"):
            target = node.target if isinstance(node.target, str) else node.target.__name__
            result = values[node.name]
            tensor = isinstance(result, torch.Tensor)
            ops.append(
                OpRecord(
                    name=node.name,
                    op=target.strip("_"),
                    args=tuple(_argument(item, names) for item in node.args),
                    kwargs={key: _argument(item, names) for key, item in node.kwargs.items()},
                    shape=tuple(result.shape) if tensor else (),
                    dtype=dtype_name(result.dtype) if tensor else "",
                )
            )
        elif node.op == "output":
            result = node.args[0]
            returned = tuple(item.name for item in (result if isinstance(result, tuple) else (result,)))
    state = dict(module.state_dict())
    workloads = []
    for position, inputs in enumerate(batches):
        with torch.no_grad():
            outputs = module(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        workloads.append(
            Workload(
                id=f"decode-b{rows[position]}",
                phase=Phase.DECODE,
                batch=rows[position],
                rows=rows[position],
                cache_len=64,
                inputs=tuple(_tensor(n, t) for n, t in zip(placeholders, inputs, strict=True)),
                outputs=tuple(_tensor(f"out{i}", t) for i, t in enumerate(outputs)),
                calls=1,
                exact_key=f"{position:040d}",
            )
        )
    return TaskSpec(
        task_id=f"{family.value}-0123456789",
        family=family,
        op_key="0" * 40,
        dtype=dtype_name(batches[0][0].dtype),
        weights=tuple(
            WeightSpec(attribute=name, shape=tuple(state[name].shape), dtype=dtype_name(state[name].dtype))
            for name in attributes
        ),
        workloads=tuple(workloads),
        sites=(),
        ops=tuple(ops),
        output_refs=tuple(names.get(name, name) for name in returned),
        health=Health(bit_exact=True),
        weight_source=WeightSource(model="test"),
        attention="eager",
        versions={},
    )


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.bfloat16`` -> ``"bfloat16"``."""
    return str(dtype).removeprefix("torch.")


def _run(module: torch.nn.Module, graph: fx.Graph, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            seen[n.name] = super().run_node(n)
            return seen[n.name]

    with torch.no_grad():
        Recorder(fx.GraphModule(module, graph)).run(*inputs)
    return seen


def _tensor(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(
        name=name, shape=tuple(tensor.shape), stride=tensor.stride(), dtype=dtype_name(tensor.dtype)
    )


def _argument(item: Any, weights: dict[str, str]) -> Any:
    if isinstance(item, fx.Node):
        return {"ref": weights.get(item.name, item.name)}
    if isinstance(item, torch.dtype):
        return {"dtype": dtype_name(item)}
    if isinstance(item, slice):
        return {"slice": [item.start, item.stop, item.step]}
    if item is Ellipsis:
        return {"ellipsis": True}
    if isinstance(item, list | tuple):
        return [_argument(part, weights) for part in item]
    return item
