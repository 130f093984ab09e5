# task: rmsnorm
# kind: honest
# expect: correct
# why: a hybrid: torch takes the mean of squares, a kernel scales; a product of weights is kept by prepare().
import torch
import triton
import triton.language as tl

BLOCK = 64
EPS = 1e-6


@triton.jit
def scale_kernel(x_ptr, mean_ptr, weight_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.rsqrt(tl.load(mean_ptr + row) + eps)
    x = tl.load(x_ptr + row * width + column, mask=inside)
    weight = tl.load(weight_ptr + column, mask=inside)
    tl.store(out_ptr + row * width + column, x * scale * weight, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(128))
        self.scale = None

    def prepare(self):
        self.scale = self.weight.detach().float().clone()

    def forward(self, x):
        x = x.contiguous()
        width = x.shape[-1]
        mean = x.square().mean(dim=-1).view(-1)
        out = torch.empty_like(x)
        grid = (mean.numel(), triton.cdiv(width, BLOCK))
        scale_kernel[grid](x, mean, self.scale, out, width, EPS, BLOCK=BLOCK)
        return out
