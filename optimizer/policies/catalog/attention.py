"""Decode attention: softmax(q k^T * scale + mask) v over the static cache, read where it lies.

Covers transformers' ``eager`` form (repeat_kv, matmul, scale, mask, fp32 softmax, matmul) and the ``sdpa`` form,
with grouped heads. Sinks, soft caps, dropout and causal flags are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.policies.catalog.graph import Graph, NotCovered, Value, dtype_of, operand
from optimizer.policies.catalog.row_ops import FLOATS, is_identity
from optimizer.policies.catalog.row_shapes import axis_order, subscripts


@dataclass(frozen=True)
class DecodeAttention:
    """Positions among the task's inputs, head counts and widths, and how the output lies.

    ``layout`` is ``"bhsd"``, ``"bshd"`` or ``"bs(hd)"``: the logical axes of the output.
    ``scale`` multiplies the products; ``mask`` is ``None``, ``"additive"`` or ``"bool"``.
    """

    q: int
    k: int
    v: int
    mask_input: int | None
    mask: str | None
    heads: int
    kv_heads: int
    width: int
    v_width: int
    scale: float
    layout: str
    dtype: str
    empty_rows: str  # what a row whose positions are all masked gives: "mean" (additive) or "zero" (bool)


def derive_attention(graph: Graph) -> DecodeAttention:
    """The decode attention of a whole task. Raises NotCovered."""
    (output,) = _exactly_one(graph.outputs)
    layout, core = _output_layout(graph, output)
    assert core.op is not None
    if core.op.op == "scaled_dot_product_attention":
        return _sdpa(graph, core, layout)
    if core.op.op == "matmul":
        return _eager(graph, core, layout)
    raise NotCovered(f"attention ends in {core.op.op}")


def _exactly_one(values: tuple[Value, ...]) -> tuple[Value]:
    if len(values) != 1:
        raise NotCovered(f"{len(values)} outputs")
    return (values[0],)


def _output_layout(graph: Graph, output: Value) -> tuple[str, Value]:
    """Walk from the output back over copies, the head merge and the transpose to the core's (b, h, s, d)."""
    merged = transposed = False
    value = output
    while value.op is not None and value.op.op not in ("matmul", "scaled_dot_product_attention"):
        source = graph.value(operand(value.op, 0, "input"))
        if is_identity(value.op):
            if source.dtype != value.dtype:
                raise NotCovered("attention that casts its output")
        elif value.op.op in ("reshape", "view", "flatten"):
            if source.shape != value.shape:
                b, s, rest = source.shape[0], source.shape[1], source.shape[2:]
                if merged or transposed or len(rest) != 2 or value.shape != (b, s, rest[0] * rest[1]):
                    raise NotCovered("an output reshape that does not merge heads")
                merged = True
        elif value.op.op == "transpose":
            if transposed or len(value.shape) != 4 or axis_order(value.op, 4) != [0, 2, 1, 3]:
                raise NotCovered("an output transpose that does not swap heads and positions")
            transposed = True
        else:
            raise NotCovered(f"op {value.op.op} after the attention")
        value = source
    if value.op is None or len(value.shape) != 4 or (merged and not transposed):
        raise NotCovered("no attention core")
    return ("bs(hd)" if merged else "bshd" if transposed else "bhsd"), value


def _cache(graph: Graph, value: Value) -> tuple[Value, int]:
    """Undo ``repeat_kv``: the cache input of (b, kv heads, length, width), and the repeats."""
    repeats = 1
    while value.kind == "op":
        op = value.op
        assert op is not None
        if is_identity(op):
            source = graph.value(operand(op, 0, "input"))
            if source.dtype != value.dtype:
                raise NotCovered("a cache that is cast")
            value = source
            continue
        if op.op not in ("reshape", "view"):
            raise NotCovered(f"op {op.op} between the cache and the attention")
        expanded = graph.value(operand(op, 0, "input"))
        if expanded.op is None or expanded.op.op != "expand" or len(expanded.shape) != 5 or repeats != 1:
            raise NotCovered("a cache reshape that is no repeat of heads")
        inserted = graph.value(operand(expanded.op, 0, "input"))
        if inserted.op is None:
            raise NotCovered("an expand of something else than a new axis")
        source = graph.value(operand(inserted.op, 0, "input"))
        if inserted.op.op == "getitem":
            items = subscripts(inserted.op, len(source.shape))
            full = [None, None, None]
            if [item for item, _ in items] != [full, full, None, full, full]:
                raise NotCovered("a subscript of the cache that is no new head axis")
        elif not (inserted.op.op == "unsqueeze" and operand(inserted.op, 1, "dim") == 2):
            raise NotCovered(f"op {inserted.op.op} before a head repeat")
        b, h, r, length, width = expanded.shape
        if inserted.shape != (b, h, 1, length, width) or value.shape != (b, h * r, length, width):
            raise NotCovered("a head repeat of unexpected shape")
        repeats, value = r, source
    if value.kind != "input" or len(value.shape) != 4:
        raise NotCovered("keys or values that are no input")
    return value, repeats


def _sdpa(graph: Graph, core: Value, layout: str) -> DecodeAttention:
    op = core.op
    assert op is not None
    q, k, v = (
        graph.value(operand(op, position, name)) for position, name in enumerate(("query", "key", "value"))
    )
    mask = operand(op, 3, "attn_mask")
    if operand(op, 4, "dropout_p", 0.0) != 0.0 or operand(op, 5, "is_causal", False) is not False:
        raise NotCovered("attention with dropout or a causal flag")
    scale = op.kwargs.get("scale")
    value = float(scale) if isinstance(scale, int | float) else q.shape[-1] ** -0.5
    if scale is not None and not isinstance(scale, int | float):
        raise NotCovered("a scale that is no constant")
    return _assemble(graph, q, k, v, None if mask is None else graph.value(mask), value, layout)


def _eager(graph: Graph, core: Value, layout: str) -> DecodeAttention:
    assert core.op is not None
    weights, v = graph.value(operand(core.op, 0, "input")), graph.value(operand(core.op, 1, "other"))
    while weights.op is not None and is_identity(weights.op):
        weights = graph.value(operand(weights.op, 0, "input"))
    if weights.op is None or weights.op.op != "softmax" or operand(weights.op, 1, "dim") not in (-1, 3):
        raise NotCovered("attention weights that are no softmax over positions")
    if dtype_of(weights.op.kwargs.get("dtype")) not in (None, "float32"):
        raise NotCovered("a softmax of another dtype than float32")
    scores = graph.value(operand(weights.op, 0, "input"))
    mask: Value | None = None
    if scores.op is not None and scores.op.op in ("add", "iadd"):
        mask = graph.value(operand(scores.op, 1, "other"))
        scores = graph.value(operand(scores.op, 0, "input"))
    scale = 1.0
    if scores.op is not None and scores.op.op in ("mul", "truediv", "div"):
        constant = operand(scores.op, 1, "other")
        if isinstance(constant, bool) or not isinstance(constant, int | float):
            raise NotCovered("a scale that is no constant")
        scale = float(constant) if scores.op.op == "mul" else 1.0 / float(constant)
        scores = graph.value(operand(scores.op, 0, "input"))
    product = scores.op
    if product is None or product.op != "matmul":
        raise NotCovered("scores that are no product of queries and keys")
    q, turned = graph.value(operand(product, 0, "input")), graph.value(operand(product, 1, "other"))
    if turned.op is None or turned.op.op != "transpose" or axis_order(turned.op, 4) != [0, 1, 3, 2]:
        raise NotCovered("keys that are not transposed")
    return _assemble(graph, q, graph.value(operand(turned.op, 0, "input")), v, mask, scale, layout)


def _mask(graph: Graph, mask: Value | None, length: int) -> tuple[int | None, str | None]:
    """Input position and kind of the mask; a full subscript on the way is passed through."""
    if mask is None:
        return None, None
    while mask.op is not None and mask.op.op == "getitem":
        source = graph.value(operand(mask.op, 0, "input"))
        for item, axis in subscripts(mask.op, len(source.shape)):
            whole = item == [None, None, None] or (
                isinstance(item, list)
                and item[0] in (None, 0)
                and item[1] == source.shape[axis]
                and item[2] in (None, 1)
            )
            if not whole:
                raise NotCovered("a mask that is cut")
        mask = source
    if mask.kind != "input" or len(mask.shape) != 4 or mask.shape[-1] != length or mask.shape[1] != 1:
        raise NotCovered("a mask that is no (batch, 1, rows, length) input")
    if mask.dtype == "bool":
        return mask.position, "bool"
    if mask.dtype not in FLOATS:
        raise NotCovered(f"a mask of dtype {mask.dtype}")
    return mask.position, "additive"


def _assemble(
    graph: Graph, q: Value, k: Value, v: Value, mask: Value | None, scale: float, layout: str
) -> DecodeAttention:
    if q.kind != "input" or len(q.shape) != 4:
        raise NotCovered("queries that are no input")
    keys, repeats = _cache(graph, k)
    values, v_repeats = _cache(graph, v)
    heads, kv_heads = q.shape[1], keys.shape[1]
    if (
        heads % kv_heads
        or values.shape[1] != kv_heads
        or repeats not in (1, heads // kv_heads)
        or v_repeats != repeats
    ):
        raise NotCovered("head counts that do not divide")
    if keys.shape[:3] != values.shape[:3] or keys.shape[3] != q.shape[3]:
        raise NotCovered("keys and values of different lengths")
    dtypes = {q.dtype, keys.dtype, values.dtype}
    if len(dtypes) != 1 or q.dtype not in FLOATS:
        raise NotCovered(f"attention of mixed dtypes {sorted(dtypes)}")
    position, kind = _mask(graph, mask, keys.shape[2])
    if (
        kind == "additive"
        and mask is not None
        and graph.spec.workloads[0].inputs[position or 0].dtype != q.dtype
    ):
        raise NotCovered("an additive mask of another dtype")
    known = {
        "getitem",
        "expand",
        "reshape",
        "view",
        "transpose",
        "matmul",
        "mul",
        "truediv",
        "div",
        "add",
        "iadd",
    }
    known |= {"softmax", "scaled_dot_product_attention", "unsqueeze", "flatten"}
    for op in graph.spec.ops:
        if op.op not in known and not is_identity(op):
            raise NotCovered(f"op {op.op} in an attention")
    return DecodeAttention(
        q=q.position,
        k=keys.position,
        v=values.position,
        mask_input=position,
        mask=kind,
        heads=heads,
        kv_heads=kv_heads,
        width=q.shape[3],
        v_width=values.shape[3],
        scale=scale,
        layout=layout,
        dtype=q.dtype,
        empty_rows="zero" if kind == "bool" else "mean",
    )
