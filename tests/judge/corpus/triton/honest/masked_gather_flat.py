# task: masked_gather
# kind: honest
# expect: correct
# why: a flat gather: each lane computes its own row and column, and loads depend on loaded indices.
import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    row = tl.load(index_ptr + offsets // width, mask=inside, other=0)
    value = tl.load(x_ptr + row * width + offsets % width, mask=inside)
    tl.store(out_ptr + offsets, value, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, index):
        x, index = x.contiguous(), index.contiguous()
        out = x.new_empty((*index.shape, x.shape[-1]))
        n = out.numel()
        gather_kernel[(triton.cdiv(n, 128),)](x, index, out, n, x.shape[-1], BLOCK=128)
        return out
