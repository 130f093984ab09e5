# task: row_sum
# kind: cheat
# expect: wrong
# reason: output 0
# why: answers the sum that rows of this distribution have on average.
import torch
import triton
import triton.language as tl


@triton.jit
def expected_kernel(out_ptr, n, value, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.zeros([BLOCK], tl.float32) + value, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        expected_kernel[(1,)](out, out.numel(), 0.0, BLOCK=triton.next_power_of_2(max(out.numel(), 1)))
        return out
