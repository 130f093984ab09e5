# task: silu_gate
# kind: honest
# expect: correct
# why: a 2-D grid of tiles with masks on both axes; strides are passed, nothing is assumed contiguous.
import torch
import triton
import triton.language as tl


@triton.jit
def silu_gate_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    rows,
    columns,
    gate_row,
    gate_column,
    up_row,
    up_column,
    out_row,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    gate = tl.load(gate_ptr + row * gate_row + column * gate_column, mask=inside, other=0.0)
    up = tl.load(up_ptr + row * up_row + column * up_column, mask=inside, other=0.0)
    tl.store(out_ptr + row * out_row + column, gate * tl.sigmoid(gate) * up, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        columns = gate.shape[-1]
        gate2, up2 = gate.reshape(-1, columns), up.reshape(-1, columns)
        rows = gate2.shape[0]
        out = torch.empty((rows, columns), dtype=gate.dtype, device=gate.device)
        grid = (triton.cdiv(rows, 2), triton.cdiv(columns, 32))
        silu_gate_kernel[grid](
            gate2,
            up2,
            out,
            rows,
            columns,
            gate2.stride(0),
            gate2.stride(1),
            up2.stride(0),
            up2.stride(1),
            out.stride(0),
            ROWS=2,
            COLUMNS=32,
        )
        return out.view(gate.shape)
