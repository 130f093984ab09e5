"""Operator families: the closed set of operator kinds a task can belong to, with the paper's letters.

Letters A-I are the paper's for its nine Qwen families, so that reports line up; families without a letter
of their own are grouped as ``MoE`` or ``+``.
"""

from enum import StrEnum


class Family(StrEnum):
    """A kind of operator. The value is the name used in files, tables and on the command line."""

    FFN_DOWN = "ffn_down"
    FFN_GATE_UP = "ffn_gate_up"
    GDN_INPUT = "gdn_input"
    ATTENTION_OUTPUT = "attention_output"
    ATTENTION_QKV = "attention_qkv"
    RESIDUAL_RMSNORM = "residual_rmsnorm"
    SILU_GATE = "silu_gate"
    GDN_NORM_GATE = "gdn_norm_gate"
    QK_NORM_ROPE = "qk_norm_rope"
    SHARED_GATE_UP = "shared_gate_up"
    ROUTED_GATE_UP = "routed_gate_up"
    ROUTED_DOWN = "routed_down"
    ROUTER = "router"
    MLA_PROJECTION = "mla_projection"
    LM_HEAD = "lm_head"
    ATTENTION_DECODE = "attention_decode"
    GDN_STEP = "gdn_step"
    RMSNORM = "rmsnorm"
    LINEAR = "linear"
    ELEMENTWISE = "elementwise"
    IMPORTED = "imported"  # a KernelBench file: whatever its author put in it

    @property
    def letter(self) -> str:
        """The paper's letter (``A``-``I``), ``MoE`` for the mixture-of-experts rows, ``+`` for the rest."""
        return _LETTERS.get(self, "+")

    @property
    def order(self) -> int:
        """Position in letter order, the order in which the ledger integrates grafts."""
        return list(Family).index(self)


_LETTERS = {
    Family.FFN_DOWN: "A",
    Family.FFN_GATE_UP: "B",
    Family.GDN_INPUT: "C",
    Family.ATTENTION_OUTPUT: "D",
    Family.ATTENTION_QKV: "E",
    Family.RESIDUAL_RMSNORM: "F",
    Family.SILU_GATE: "G",
    Family.GDN_NORM_GATE: "H",
    Family.QK_NORM_ROPE: "I",
    Family.SHARED_GATE_UP: "MoE",
    Family.ROUTED_GATE_UP: "MoE",
    Family.ROUTED_DOWN: "MoE",
    Family.ROUTER: "MoE",
    Family.MLA_PROJECTION: "MoE",
}
