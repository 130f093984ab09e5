"""Small torch modules for the catalog's tests, each after the transformers code it stands for (named per class)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class RmsNorm(nn.Module):
    """LlamaRMSNorm: rounds before the weight."""

    def __init__(self, width: int, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = nn.Parameter((1 + 0.2 * torch.randn(width)).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + 1e-6)
        return self.weight * hidden.to(self.dtype)


class ZeroCentredNorm(RmsNorm):
    """Gemma3RMSNorm: ``1 + w`` in float32, rounds after the weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.float()
        hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (hidden * (1.0 + self.weight.float())).to(self.dtype)


class WeightlessNorm(RmsNorm):
    """DeepseekV4's unweighted norm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.float()
        return (hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)).to(self.dtype)


class ResidualNorm(nn.Module):
    """Qwen3DecoderLayer: residual add, then norm; both are returned."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = residual + x
        return hidden, self.norm(hidden)


class GatedNorm(RmsNorm):
    """Qwen3_5RMSNormGated: norm, round, weight, then silu(gate) in float32."""

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(x)
        return (hidden * F.silu(gate.to(torch.float32))).to(self.dtype)


class SiluGate(nn.Module):
    """Qwen3MLP's activation."""

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return F.silu(gate) * up


class ChunkedGelu(nn.Module):
    """Phi3MLP's chunk and operand order, with Gemma's activation."""

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        gate, up = packed.chunk(2, dim=-1)
        return up * F.gelu(gate, approximate="tanh")


class QkNormRope(nn.Module):
    """Qwen3Attention's q/k norm and rotary embedding; ``rotary`` narrower than ``width`` is Qwen3Next's partial one."""

    def __init__(
        self, width: int, rotary: int, *, norm: bool = True, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        super().__init__()
        self.width, self.rotary, self.norm = width, rotary, norm
        self.q_norm, self.k_norm = RmsNorm(width, dtype), RmsNorm(width, dtype)

    def turn(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = self.rotary // 2
        turned, rest = x[..., : self.rotary], x[..., self.rotary :]
        swapped = torch.cat((-turned[..., half:], turned[..., :half]), dim=-1)
        turned = turned * cos + swapped * sin
        return turned if self.rotary == self.width else torch.cat((turned, rest), dim=-1)

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        q, k = q.unflatten(-1, (-1, self.width)), k.unflatten(-1, (-1, self.width))
        if self.norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return self.turn(q.transpose(1, 2), cos, sin), self.turn(k.transpose(1, 2), cos, sin)


class InterleavedRope(nn.Module):
    """DeepseekV3's ``apply_rotary_pos_emb_interleave`` on a slice of the head."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        cos, sin, half = cos.unsqueeze(1), sin.unsqueeze(1), self.width // 2
        x = x.unflatten(-1, (half, 2)).transpose(4, 3).flatten(3, 4)
        swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + swapped * sin


class Linears(nn.Module):
    """Sibling projections, as in Qwen3Attention or Qwen3MLP."""

    def __init__(
        self, k: int, widths: tuple[int, ...], *, bias: bool = False, dtype: torch.dtype = torch.bfloat16
    ):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(k, n, bias=bias, dtype=dtype) for n in widths)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(part(x) for part in self.parts)


class GatedOutput(nn.Module):
    """Qwen3NextAttention: ``o_proj(x * sigmoid(gate))``."""

    def __init__(self, k: int, n: int) -> None:
        super().__init__()
        self.o_proj = nn.Linear(k, n, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return self.o_proj(x * torch.sigmoid(gate))


class Attention(nn.Module):
    """``eager_attention_forward`` and ``sdpa_attention_forward`` of Qwen3 over a static cache."""

    def __init__(self, cache: tuple[int, int, int, int], heads: int, kind: str, softcap: float | None = None):
        super().__init__()
        self.cache, self.heads, self.kind, self.softcap = cache, heads, kind, softcap
        self.dtype = torch.bfloat16

    def repeat(self, x: torch.Tensor) -> torch.Tensor:
        batch, kv, length, width = self.cache
        if kv == self.heads:
            return x
        wide = x[:, :, None, :, :].expand(batch, kv, self.heads // kv, length, width)
        return wide.reshape(batch, self.heads, length, width)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        k, v, scale = self.repeat(k), self.repeat(v), self.cache[3] ** -0.5
        if self.kind == "sdpa":
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=0.0, scale=scale, is_causal=False
            )
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) * scale
            if self.softcap is not None:
                scores = torch.tanh(scores / self.softcap) * self.softcap
            weights = F.softmax(scores + mask, dim=-1, dtype=torch.float32).to(self.dtype)
            out = torch.matmul(F.dropout(weights, p=0.0, training=False), v)
        return out.transpose(1, 2).contiguous().flatten(2, 3)
