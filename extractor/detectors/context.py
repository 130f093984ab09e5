"""What all detectors share: the graph, what is claimed so far, and walks through uninteresting nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import fx

from extractor.binding import Binding
from extractor.families import Family
from extractor.graph import GraphView, StepDims, is_tensor, op_name, result
from extractor.regions import Illegal, Region, build_region

# Nodes that only re-describe a tensor; roles are looked up through them.
VIEWS = frozenset(
    {
        "view",
        "reshape",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "flatten",
        "contiguous",
        "expand",
        "getitem",
        "chunk",
        "split",
        "dropout",
        "unbind",
        "to",
        "type",
        "type_as",
        "float",
        "repeat_interleave",
    }
)
CASTS = frozenset(["to", "float", "type", "type_as", "half", "bfloat16"])


@dataclass(frozen=True)
class Rejected:
    """A candidate region a detector found and the legality check refused."""

    family: Family
    site: str
    reason: str


@dataclass
class Context:
    """State of one detection run over one graph."""

    view: GraphView
    binding: Binding
    dims: StepDims
    regions: list[Region] = field(default_factory=list)
    claimed: dict[fx.Node, Region] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    tables: set[fx.Node] = field(default_factory=set)  # rotary cos/sin and what derives from them alone
    masks: set[fx.Node] = field(default_factory=set)  # attention masks as they enter attention

    def claim(
        self,
        family: Family,
        members: set[fx.Node],
        *,
        focus: fx.Node | None = None,
        roles: Mapping[fx.Node, str] | None = None,
    ) -> Region | None:
        """Make ``members`` a region if they are free and legal; otherwise note why not and return ``None``."""
        if any(node in self.claimed for node in members):
            return None
        try:
            region = build_region(family, members, self.view, self.binding, focus=focus, roles=roles)
        except Illegal as reason:
            where = self.view.path(focus if focus is not None else self.view.in_order(members)[0])
            self.rejected.append(Rejected(family, where, str(reason)))
            return None
        self.regions.append(region)
        self.claimed.update(dict.fromkeys(region.nodes, region))
        return region

    def is_weight(self, node: object) -> bool:
        """Whether ``node`` is a parameter or buffer."""
        return isinstance(node, fx.Node) and node in self.binding.weights

    def from_weights(self, node: fx.Node) -> set[fx.Node] | None:
        """The nodes that compute ``node`` from weights alone (empty for a weight itself), or ``None``."""
        if self.is_weight(node):
            return set()
        if node.op not in ("call_function", "call_method") or not node.all_input_nodes:
            return None
        found = {node}
        for operand in node.all_input_nodes:
            inner = self.from_weights(operand)
            if inner is None:
                return None
            found |= inner
        return found

    def producer(self, node: fx.Node) -> fx.Node:
        """Walk back through views and casts to the node that computed the values."""
        while op_name(node) in VIEWS and node.args and isinstance(node.args[0], fx.Node):
            if self.region(node) is not None:
                break
            node = node.args[0]
        return node

    def consumers(self, node: fx.Node) -> list[fx.Node]:
        """The nodes that use the values, looking through unclaimed views and casts."""
        found: list[fx.Node] = []
        pending, seen = [node], {node}
        while pending:
            for user in pending.pop().users:
                if user in seen:
                    continue
                seen.add(user)
                if op_name(user) in VIEWS and user not in self.claimed:
                    pending.append(user)
                else:
                    found.append(user)
        return found

    def region(self, node: fx.Node) -> Region | None:
        """The region that claimed ``node``, if any."""
        return self.claimed.get(node)

    def families_after(self, node: fx.Node) -> set[Family]:
        """Families of the regions that use ``node``'s values."""
        return {self.claimed[user].family for user in self.consumers(node) if user in self.claimed}


Detector = Callable[[Context], None]


def tensor_args(node: fx.Node) -> list[fx.Node]:
    """The operands that are tensors or tuples of tensors."""
    return [operand for operand in node.all_input_nodes if is_tensor(operand) or op_name(operand) in VIEWS]


def is_floating(node: fx.Node) -> bool:
    """Whether the node's result is a floating-point tensor."""
    return is_tensor(node) and result(node).is_floating_point()


def only_user(node: fx.Node) -> fx.Node | None:
    """The node's user if it has exactly one."""
    return next(iter(node.users)) if len(node.users) == 1 else None
