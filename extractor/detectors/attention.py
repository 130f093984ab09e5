"""``attention_decode``: the attention core from query, key and value tensors to the input of the output projection.

Two forms: ``scaled_dot_product_attention``, and the written-out ``softmax(q @ k^T * scale + mask) @ v`` with
whatever stands between the two products (soft caps, sinks, casts, dropout). Repetition of key/value heads is part
of the region, so that a kernel may read the cache directly; the cache update is not, as it writes in place.
"""

from __future__ import annotations

from torch import fx

from extractor.detectors.context import Context, only_user
from extractor.families import Family
from extractor.graph import is_inplace, op_name, shape_of

_SCORE_OPS = frozenset(
    {
        "add",
        "mul",
        "truediv",
        "div",
        "sub",
        "cat",
        "getitem",
        "max",
        "to",
        "float",
        "type",
        "clamp",
        "where",
        "masked_fill",
        "tanh",
        "dropout",
        "softmax",
    }
)
_HEAD_OPS = frozenset(
    {
        "getitem",
        "expand",
        "reshape",
        "view",
        "transpose",
        "unsqueeze",
        "repeat_interleave",
        "contiguous",
    }
)
_TAIL_OPS = frozenset(["transpose", "contiguous", "reshape", "view", "flatten", "permute"])
_PRODUCTS = ("matmul", "bmm")


def detect_attention(context: Context) -> None:
    """Claim every attention core."""
    for node in context.view.named("scaled_dot_product_attention"):
        if node not in context.claimed:
            _claim_fused(context, node)
    for node in context.view.named("softmax"):
        if node not in context.claimed:
            _claim_written_out(context, node)


def _claim_fused(context: Context, core: fx.Node) -> None:
    names = ("query", "key", "value", "attn_mask")
    given = dict(zip(names, core.args, strict=False)) | core.kwargs
    query, key, value, mask = (given.get(name) for name in names)
    if not (isinstance(query, fx.Node) and isinstance(key, fx.Node) and isinstance(value, fx.Node)):
        return
    roles: dict[fx.Node, str] = {query: "query"}
    members = {core}
    members |= _heads(context, key, roles, "key") | _heads(context, value, roles, "value")
    if isinstance(mask, fx.Node):
        roles[mask] = "mask"
    _claim(context, core, members, core, roles)


def _claim_written_out(context: Context, softmax: fx.Node) -> None:
    scores = _scores(context, softmax)
    if scores is None:
        return
    first, middle = scores
    second = _second_product(softmax, middle)
    if second is None or len(second.args) < 2 or len(first.args) < 2:
        return
    query, key, value = first.args[0], first.args[1], second.args[1]
    if not (isinstance(query, fx.Node) and isinstance(key, fx.Node) and isinstance(value, fx.Node)):
        return
    roles: dict[fx.Node, str] = {query: "query"}
    members = {first, second, *middle}
    for node in list(members):
        for operand in node.all_input_nodes:
            made = context.from_weights(operand)
            if operand not in members and made:
                members |= made
    for node in middle:
        for operand in node.all_input_nodes:
            if operand not in members and not context.is_weight(operand):
                roles.setdefault(operand, "mask")
    members |= _heads(context, key, roles, "key") | _heads(context, value, roles, "value")
    _claim(context, softmax, members, second, roles)


def _scores(context: Context, softmax: fx.Node) -> tuple[fx.Node, set[fx.Node]] | None:
    """The query-key product before ``softmax`` and the nodes from it to the softmax, inclusive."""
    reached: dict[fx.Node, bool] = {}
    products: set[fx.Node] = set()

    def visit(node: fx.Node) -> bool:
        if op_name(node) in _PRODUCTS:
            products.add(node)
            return True
        if op_name(node) not in _SCORE_OPS or is_inplace(node):
            return False
        if node not in reached:
            reached[node] = any([visit(operand) for operand in node.all_input_nodes])
        return reached[node]

    if not visit(softmax) or len(products) != 1:
        return None
    return next(iter(products)), {node for node, on_path in reached.items() if on_path}


def _second_product(softmax: fx.Node, middle: set[fx.Node]) -> fx.Node | None:
    """Follow the probabilities to the product with the values, adding the nodes between to ``middle``."""
    node = softmax
    while (user := only_user(node)) is not None:
        if op_name(user) in _PRODUCTS:
            return user if user.args[0] is node else None
        if op_name(user) not in _SCORE_OPS or is_inplace(user):
            return None
        middle.add(user)
        node = user
    return None


def _heads(context: Context, node: fx.Node, roles: dict[fx.Node, str], role: str) -> set[fx.Node]:
    """The nodes that repeat and transpose key or value heads; names the tensor they start from."""
    found: set[fx.Node] = set()
    while (
        op_name(node) in _HEAD_OPS
        and node not in context.claimed
        and isinstance(node.args[0], fx.Node)
        and len(node.users) == 1
        and shape_of(node.args[0])
        and not is_inplace(node)
    ):
        found.add(node)
        node = node.args[0]
    roles[node] = role
    return found


def _claim(
    context: Context, core: fx.Node, members: set[fx.Node], last: fx.Node, roles: dict[fx.Node, str]
) -> None:
    """Add the transposition back to rows and claim; shorter if that is what it takes to be legal."""
    tail: list[fx.Node] = []
    node = last
    while (user := only_user(node)) is not None and op_name(user) in _TAIL_OPS and user.args[0] is node:
        tail.append(user)
        node = user
    context.masks |= {node for node, role in roles.items() if role == "mask"}
    if context.claim(Family.ATTENTION_DECODE, members | set(tail), focus=core, roles=roles) is None and tail:
        context.claim(Family.ATTENTION_DECODE, members, focus=core, roles=roles)
