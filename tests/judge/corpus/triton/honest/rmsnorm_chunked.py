# task: rmsnorm
# kind: honest
# expect: correct
# why: two passes over chunks of 32 columns, so any width fits; the sum is carried in a vector.
import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, out_ptr, width, x_row, x_column, eps, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    partial = tl.zeros((CHUNK,), dtype=tl.float32)
    for start in range(0, width, CHUNK):
        column = start + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + row * x_row + column * x_column, mask=column < width, other=0.0)
        partial += x * x
    scale = tl.rsqrt(tl.sum(partial, axis=0) / width + eps)
    for start in range(0, width, CHUNK):
        column = start + tl.arange(0, CHUNK)
        inside = column < width
        x = tl.load(x_ptr + row * x_row + column * x_column, mask=inside, other=0.0)
        weight = tl.load(weight_ptr + column, mask=inside, other=0.0)
        tl.store(out_ptr + row * width + column, x * scale * weight, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(128))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
        rmsnorm_kernel[(rows.shape[0],)](
            rows, self.weight, out, rows.shape[1], rows.stride(0), rows.stride(1), 1e-6, CHUNK=32
        )
        return out.view(x.shape)
