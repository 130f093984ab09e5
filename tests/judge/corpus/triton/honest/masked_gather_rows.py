# task: masked_gather
# kind: honest
# expect: correct
# why: reads 64-bit indices, and multiplies them in 64 bits, one program a row.
import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, width, x_row, x_column, BLOCK: tl.constexpr):
    position = tl.program_id(0)
    row = tl.load(index_ptr + position)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x_ptr + row * x_row + column * x_column, mask=inside)
    tl.store(out_ptr + position * width + column, value, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, index):
        index = index.contiguous()
        width = x.shape[1]
        out = torch.empty((index.numel(), width), dtype=x.dtype, device=x.device)
        gather_kernel[(index.numel(),)](
            x, index, out, width, x.stride(0), x.stride(1), BLOCK=triton.next_power_of_2(width)
        )
        return out
