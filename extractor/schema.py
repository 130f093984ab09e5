"""``task.json``: the schema-versioned sidecar of a task folder, as pydantic models.

Vocabulary. A *task* is one operator of one model as a standalone program. A *site* is one place of the model
where that operator occurs (one task usually has one site a layer). A *workload* is one shape set of the task:
a phase, a batch, and the exact sizes, strides and aliasing of its inputs there. An *op record* is one node of
the captured graph, in execution order, with every value named; it says what ``task.py`` computes in a form
that needs no parsing.
"""

import math
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from extractor.families import Family

SCHEMA_VERSION = 1
# torch's names of what a tensor may hold. Not all can be judged.
_DTYPES = frozenset(
    {
        "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
        "float8_e5m2fnuz", "float8_e8m0fnu", "complex128", "complex64", "complex32", "int64", "int32", "int16", "int8",
        "uint64", "uint32", "uint16", "uint8", "bool",
    }
)  # fmt: skip
_MOST_ELEMENTS = 1 << 46  # no address space holds more; products of larger numbers overflow 64 bits


def _known_dtype(name: str) -> str:
    if name not in _DTYPES:
        raise ValueError(f"unknown dtype {name!r}")
    return name


Dtype = Annotated[str, AfterValidator(_known_dtype)]
Size = Annotated[int, Field(ge=0, le=_MOST_ELEMENTS)]
Count = Annotated[int, Field(ge=0, le=1 << 40)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Phase(StrEnum):
    """Which part of generation a workload was captured in."""

    PREFILL = "prefill"
    DECODE = "decode"


class LawKind(StrEnum):
    """How fresh values of a tensor are drawn in trials."""

    NORMAL = "normal"  # mean, std
    UNIFORM = "uniform"  # low, high
    PREFIX_MASK = "prefix_mask"  # bool or additive mask over the last axis: a prefix of random length is kept
    CAUSAL_MASK = "causal_mask"  # prefill mask: row i of the second-to-last axis keeps i more than row 0
    INTEGERS = "integers"  # low <= value < high; for bool: either
    OFFSETS = "offsets"  # where each group of sorted rows ends: non-decreasing, the last one is ``high``
    ROTARY = "rotary"  # cos/sin tables: redrawn together, as cos/sin of fresh angles
    RECORDED = "recorded"  # no valid law is known: the recorded values are reused
    SOURCE = "source"  # drawn by the task's own code, all inputs of a workload together: Task.source_inputs


class Law(_Record):
    """The law a tensor's trial values follow, measured at capture."""

    kind: LawKind
    mean: float = 0.0
    std: float = 1.0
    low: float = 0.0
    high: float = 1.0
    partner: str | None = None  # rotary: the other table's input name


class TensorSpec(_Record):
    """One tensor exactly as the model passes it: strides, offset and aliasing are part of a task.

    ``shape`` and ``stride`` are in elements. Tensors with the same ``alias_group`` share one storage.
    """

    name: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: Dtype  # "bfloat16", "float32", "int64", "bool", ...
    storage_offset: Size = 0
    alias_group: int | None = None
    law: Law = Law(kind=LawKind.NORMAL)

    @model_validator(mode="after")
    def _strides_fit(self) -> Self:
        if len(self.stride) != len(self.shape):
            raise ValueError(f"{self.name} has {len(self.shape)} sizes and {len(self.stride)} strides")
        reach = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True) if size)
        if max(math.prod(self.shape), self.storage_offset + reach) > _MOST_ELEMENTS:
            raise ValueError(f"{self.name} reaches over more than 2^46 elements")
        return self


class WeightSpec(_Record):
    """A parameter or buffer of the task's ``Model``.

    ``attribute`` is its dotted name in ``Model`` (as in the source module, so that ``load_state_dict`` works).
    """

    attribute: str
    shape: tuple[Size, ...]
    dtype: Dtype

    @model_validator(mode="after")
    def _shape_fits(self) -> Self:
        if math.prod(self.shape) > _MOST_ELEMENTS:
            raise ValueError(f"{self.attribute} has more than 2^46 elements")
        return self

    law: Law = Law(kind=LawKind.NORMAL, std=0.02)


class Site(_Record):
    """One occurrence in the model; ``parameters`` maps each weight attribute to the model's parameter name."""

    name: str  # "model.layers.3.mlp"
    owner: str  # class name of the owning module, "Qwen3MLP"
    source: str  # "modeling_qwen3.py:81", the first source line of the region
    parameters: dict[str, str] = Field(default_factory=dict)


class Workload(_Record):
    """One shape set. ``rows`` is M: batch times query length. ``calls`` is calls per step of that phase."""

    id: str  # "decode-b1", "prefill-b1-s32"
    phase: Phase
    batch: Count
    rows: Count
    cache_len: Count
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    calls: Count
    share: float | None = None  # share of the step's time (census), 0..1
    exact_key: str  # sha1 over op_key and all exact shapes, strides and dtypes


class OpRecord(_Record):
    """One node of the region, in execution order.

    ``op`` is the bare function or method name (``linear``, ``pow``, ``mean``, ``rsqrt``, ``mul``, ``to``,
    ``softmax``, ``matmul``, ``getitem``, ``cat``, ...). In ``args``/``kwargs`` a value is ``{"ref": name}``
    where ``name`` is an input, a weight attribute or an earlier op's name; a dtype is ``{"dtype": "float32"}``,
    a slice ``{"slice": [start, stop, step]}``, an ellipsis ``{"ellipsis": true}``, a device ``{"device": "cpu"}``;
    numbers, strings, booleans, ``None`` and lists stand for themselves.
    ``shape``/``dtype`` describe the result in the first workload.
    """

    name: str
    op: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = Field(default_factory=dict)
    shape: tuple[int, ...] = ()
    dtype: str = ""


class Tolerance(_Record):
    """The ``paper`` profile's elementwise tolerance; the ``strict`` profile needs none (it measures eager)."""

    atol: float = 0.01
    rtol: float = 0.01


class Health(_Record):
    """What the self-check found. A task with ``flags`` is published but marked in every table."""

    bit_exact: bool
    flags: tuple[str, ...] = ()

    @property
    def sick(self) -> bool:
        """Whether a wrong kernel could pass: such a task is searched and scored only on request."""
        return bool(self.flags)


class WeightSource(_Record):
    """Where the weights come from: by reference, or a copy inside the task folder."""

    model: str  # what the user typed: a Hub id, a folder, or preset:NAME
    revision: str | None = None
    seed: int | None = None  # presets: the seed random weights are drawn with
    copied: bool = False  # True: weights.safetensors lies in the folder


class TaskSpec(_Record):
    """Everything ``task.py`` cannot say about itself."""

    schema_version: int = SCHEMA_VERSION
    task_id: str  # "<family>-<first 10 hex digits of op_key>"
    family: Family
    op_key: (
        str  # sha1 of the structure: ops, constants, weight shapes; batch, length and cache size abstracted
    )
    dtype: str
    weights: tuple[WeightSpec, ...]
    workloads: tuple[Workload, ...] = Field(min_length=1)
    sites: tuple[Site, ...]
    ops: tuple[OpRecord, ...]
    output_refs: tuple[str, ...]  # names of the ops (or inputs) returned, in order
    tolerance: Tolerance = Tolerance()
    health: Health
    weight_source: WeightSource
    attention: str  # attn_implementation the model was captured with; empty for an imported file
    # True: the weights are what Model's constructor draws under a seed (Task.construct), and other weights are those
    # of another seed, so that tensors derived in the constructor are right too. Weight laws mean nothing then.
    constructed: bool = False
    init: tuple[Any, ...] = ()  # arguments of Model and ModelNew, as JSON literals
    # Arguments of forward that are no tensors (None, bool, int, float, str), by position among all arguments; the
    # same in every workload. ``Workload.inputs`` are the other arguments, in order.
    constants: dict[int, bool | int | float | str | None] = Field(default_factory=dict)
    versions: dict[str, str]  # torch, transformers, python, kernelgraft
    file_hashes: dict[str, str] = Field(default_factory=dict)  # sha256 of task.py and inputs.safetensors

    @model_validator(mode="after")
    def _workloads_differ(self) -> Self:
        ids = [workload.id for workload in self.workloads]
        if len(set(ids)) != len(ids):
            raise ValueError("two workloads have the same id")
        return self

    @property
    def label(self) -> str:
        """``B ffn_gate_up``: the letter and name shown in tables."""
        return f"{self.family.letter} {self.family.value}"

    def workload(self, workload_id: str) -> Workload:
        """The workload of that id; ``KeyError`` names it if there is none."""
        for workload in self.workloads:
            if workload.id == workload_id:
                return workload
        raise KeyError(workload_id)
