"""From a region to the text of ``task.py`` and the op records that say the same without parsing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from extractor.expressions import HELPERS, NodeWriter
from extractor.graph import op_name, result, shape_of, source_text
from extractor.keys import dtype_name
from extractor.naming import name_values
from extractor.regions import Region
from extractor.schema import Law, LawKind, OpRecord, TensorSpec, WeightSpec
from extractor.shapes import SizeWriter, Variant


@dataclass(frozen=True)
class Program:
    """The operator as text and as records. ``inputs`` and ``outputs`` are value names in the task's order."""

    forward: tuple[str, ...]  # statements of forward, in order
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[OpRecord, ...]
    linears: dict[str, bool]  # module attribute -> has a bias; called as modules
    lines: tuple[str, ...]  # the source lines the operator came from
    helpers: tuple[str, ...]  # definitions the statements call


def write_program(variants: Sequence[Variant]) -> Program:
    """Write the operator so that one program serves every variant (same op_key, other sizes).

    Raises:
        Unwritable, Inexpressible: it cannot be said with torch alone, or not for all sizes at once.
    """
    region = variants[0].region
    names = name_values(region)
    for attribute, node in region.weights.items():
        names[node] = f"self.{attribute}"
    fixed = _from_weights(region)
    sizes = SizeWriter(variants, names, fixed)
    device = f"{names[region.inputs[0]]}.device" if region.inputs else '"cpu"'
    writer = NodeWriter(names, sizes.sizes, device)
    linears = _linear_modules(region)
    statements: list[str] = []
    for node in region.nodes:
        module = _module_of(node, region, linears)
        if module is not None:
            statements.append(f"{names[node]} = self.{module}({writer.value(node.args[0])})")
        else:
            statements += writer.statement(node).split("\n")
    refs = {value: name.removeprefix("self.") for value, name in names.items()}
    return Program(
        forward=tuple(statements),
        inputs=tuple(names[node] for node in region.inputs),
        outputs=tuple(names[node] for node in region.outputs),
        ops=tuple(_record(node, refs) for node in region.nodes),
        linears=linears,
        helpers=tuple(
            HELPERS[name] for name in sorted({_bare(node) for node in region.nodes} & HELPERS.keys())
        ),
        lines=tuple(dict.fromkeys(line for line in map(source_text, region.nodes) if line)),
    )


def _bare(node: fx.Node) -> str:
    return op_name(node).partition(".")[0]


def _from_weights(region: Region) -> set[fx.Node]:
    fixed = set(region.weights.values())
    for node in region.nodes:
        if node.all_input_nodes and all(operand in fixed for operand in node.all_input_nodes):
            fixed.add(node)
    return fixed


def _linear_modules(region: Region) -> dict[str, bool]:
    """Attributes that can be an ``nn.Linear``: weight (and bias) used by exactly one linear."""
    attribute_of = {node: attribute for attribute, node in region.weights.items()}
    inside = set(region.nodes)
    found: dict[str, bool] = {}
    for node in region.nodes:
        if op_name(node) != "linear" or len(node.args) < 2:
            continue
        weight, bias = node.args[1], node.args[2] if len(node.args) > 2 else None
        name = attribute_of.get(weight)  # type: ignore[arg-type]
        if name is None or not name.endswith(".weight"):
            continue
        assert isinstance(weight, fx.Node)
        prefix = name.removesuffix(".weight")
        alone = sum(user in inside for user in weight.users) == 1
        if alone and (bias is None or attribute_of.get(bias) == f"{prefix}.bias"):  # type: ignore[arg-type]
            found[prefix] = bias is not None
    return found


def _module_of(node: fx.Node, region: Region, linears: dict[str, bool]) -> str | None:
    if op_name(node) != "linear":
        return None
    for prefix in linears:
        if region.weights.get(f"{prefix}.weight") is node.args[1]:
            return prefix
    return None


def _record(node: fx.Node, refs: dict[fx.Node, str]) -> OpRecord:
    value = result(node)
    tensor = isinstance(value, torch.Tensor)
    return OpRecord(
        name=refs[node],
        op=_bare(node),
        args=tuple(_plain(argument, refs) for argument in node.args),
        kwargs={key: _plain(argument, refs) for key, argument in node.kwargs.items()},
        shape=shape_of(node),
        dtype=dtype_name(value.dtype) if tensor else "",
    )


def _plain(value: Any, refs: dict[fx.Node, str]) -> Any:
    match value:
        case fx.Node():
            return {"ref": refs[value]}
        case tuple() | list():
            return [_plain(item, refs) for item in value]
        case torch.dtype():
            return {"dtype": dtype_name(value)}
        case torch.device():
            return {"device": value.type}
        case slice():
            return {"slice": [_plain(part, refs) for part in (value.start, value.stop, value.step)]}
        case float() if value in (float("inf"), float("-inf")):
            return {"float": str(value)}
        case bool() | None | int() | float() | str():
            return value
        case _ if value is Ellipsis:
            return {"ellipsis": True}
    return {"text": str(value)}


def write_task_source(
    program: Program,
    *,
    title: str,
    notes: Sequence[str],
    weights: Sequence[WeightSpec],
    inputs: Sequence[TensorSpec],
) -> str:
    """The text of ``task.py``: a KernelBench file that imports torch only.

    Args:
        title: the docstring's first line.
        notes: further docstring lines.
        weights, inputs: specs of the weights, and of the inputs of the workload ``get_inputs`` imitates.
    """
    doc = [title, "", *notes]
    if program.lines:
        doc += ["", "Source lines:", *(f"    {line}" for line in program.lines)]
    text = ["\n".join(_escape(line) for line in doc).strip()]
    out = [
        f'"""{text[0]}\n"""',
        "",
        "import torch",
        "import torch.nn.functional as F",
        "from torch import nn",
        "",
    ]
    if _needs_helper(program, weights):
        out += ["", *_PARAMETER_HELPER]
    for helper in program.helpers:
        out += ["", helper]
    out += ["", "class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    out += [f"        {line}" for line in _constructor(program, weights)]
    signature = ", ".join(["self", *program.inputs])
    out += ["", f"    def forward({signature}):"]
    out += [f"        {line}" for line in program.forward]
    returned = ", ".join(program.outputs)
    out += [f"        return {returned}", "", ""]
    out += ["def get_inputs():", "    torch.manual_seed(0)", "    return ["]
    out += [f"        {_random_input(spec)},  # {spec.name}" for spec in inputs]
    out += ["    ]", "", "", "def get_init_inputs():", "    return []", ""]
    return "\n".join(out)


_PARAMETER_HELPER = [
    "def parameter(shape, dtype, mean, std):",
    "    return nn.Parameter((torch.randn(shape) * std + mean).to(dtype), requires_grad=False)",
    "",
]


def _escape(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"""', "'''").rstrip()


def _needs_helper(program: Program, weights: Sequence[WeightSpec]) -> bool:
    return any(_plain_parameter(weight, program) for weight in weights)


def _plain_parameter(weight: WeightSpec, program: Program) -> bool:
    return weight.attribute.rpartition(".")[0] not in program.linears


def _constructor(program: Program, weights: Sequence[WeightSpec]) -> list[str]:
    lines: list[str] = []
    made: set[str] = set()

    def ensure(path: str) -> None:
        if path and path not in made:
            ensure(path.rpartition(".")[0])
            made.add(path)
            lines.append(f"self.{path} = nn.Module()")

    for weight in weights:
        home = weight.attribute.rpartition(".")[0]
        if home in program.linears:
            if home not in made:
                ensure(home.rpartition(".")[0])
                made.add(home)
                rows, columns = weight.shape
                bias = program.linears[home]
                lines.append(
                    f"self.{home} = nn.Linear({columns}, {rows}, bias={bias}, dtype=torch.{weight.dtype})"
                )
            continue
        ensure(home)
        law = weight.law
        shape = f"({', '.join(map(str, weight.shape))}{',' if len(weight.shape) == 1 else ''})"
        lines.append(
            f"self.{weight.attribute} = parameter({shape}, torch.{weight.dtype}, {law.mean:.4g}, {law.std:.4g})"
        )
    return lines


def _random_input(spec: TensorSpec) -> str:
    """An expression for a fresh input of the spec's law, with its strides."""
    law, shape = spec.law, tuple(spec.shape)
    values = _random_values(law, shape, spec.dtype)
    dense = _dense_strides(shape)
    if all(size == 1 or a == b for size, a, b in zip(shape, spec.stride, dense, strict=True)):
        return values
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, spec.stride, strict=True))
    flat = _random_values(law, (span,), spec.dtype)
    return f"torch.as_strided({flat}, {shape}, {tuple(spec.stride)})"


def _random_values(law: Law, shape: tuple[int, ...], dtype: str) -> str:
    match law.kind:
        case LawKind.INTEGERS if dtype == "bool":
            return f"torch.rand({shape}) < 0.5"
        case LawKind.OFFSETS:
            ends = f"torch.linspace(0, {int(law.high)}, {shape[0] + 1})[1:]"
            return f"{ends}.round().to(torch.{dtype})"
        case LawKind.INTEGERS:
            return f"torch.randint({int(law.low)}, {int(law.high)}, {shape}, dtype=torch.{dtype})"
        case LawKind.UNIFORM:
            return f"torch.empty({shape}).uniform_({law.low:.4g}, {law.high:.4g}).to(torch.{dtype})"
        case LawKind.ROTARY:
            return f"torch.cos(torch.rand({shape}) * 6.2832).to(torch.{dtype})"
        case LawKind.PREFIX_MASK | LawKind.CAUSAL_MASK:
            maker = "torch.ones" if dtype == "bool" else "torch.zeros"
            return f"{maker}({shape}, dtype=torch.{dtype})"
        case LawKind.NORMAL:
            return f"(torch.randn({shape}) * {law.std:.4g} + {law.mean:.4g}).to(torch.{dtype})"
    return f"torch.zeros({shape}, dtype=torch.{dtype})"


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
