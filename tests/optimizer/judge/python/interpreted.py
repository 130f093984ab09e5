"""A program, run by test_interpreter in a process of its own: bfloat16 and fp8 operations against torch's."""

import os
import sys

sys.path.insert(0, sys.argv[1])
os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from optimizer.judge.python import interpreter

interpreter.install()
N = 64


@triton.jit
def kernel(x, y, out, scalars, integers, small, SIZE: tl.constexpr):  # noqa: N803
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + SIZE + i, tl.where(a > b, a, -b))
    tl.store(out + 2 * SIZE + i, tl.abs(a) * 2.0)
    tl.store(out + 3 * SIZE + i, tl.cumsum(a, axis=0))
    tl.store(out + 4 * SIZE + i, tl.full((SIZE,), 1.5, tl.bfloat16) + tl.sum(a, axis=0))
    tl.store(out + 5 * SIZE + i, tl.exp(a.to(tl.float32)).to(tl.bfloat16))
    tl.store(out + 6 * SIZE + i, tl.fma(a, b, a))
    tl.store(out + 7 * SIZE + i, tl.clamp(a, -0.5, 0.5))
    tl.store(out + 8 * SIZE + i, a.to(tl.float16).to(tl.bfloat16))
    tl.store(small + i, a.to(tl.float8e4nv))
    tl.store(out + 9 * SIZE + i, tl.load(small + i).to(tl.bfloat16))
    tl.store(integers + i, (a * 4).to(tl.int32))
    tl.store(scalars, tl.max(a, axis=0))
    tl.store(scalars + 1, tl.min(b, axis=0))


torch.manual_seed(0)
x, y = torch.randn(N).bfloat16(), torch.randn(N).bfloat16()
out = torch.empty(10, N, dtype=torch.bfloat16)
scalars, integers = torch.empty(2, dtype=torch.bfloat16), torch.empty(N, dtype=torch.int32)
small = torch.empty(N, dtype=torch.float8_e4m3fn)
kernel[(1,)](x, y, out, scalars, integers, small, N)
wide = x.float()
expected = (
    x + y,
    torch.where(x > y, x, -y),
    x.abs() * 2,
    wide.cumsum(0).bfloat16(),
    (1.5 + wide.sum().bfloat16()).expand(N),
    wide.exp().bfloat16(),
    (wide * y.float() + wide).bfloat16(),
    x.clamp(-0.5, 0.5),
    x.half().bfloat16(),
    x.to(torch.float8_e4m3fn).bfloat16(),
)
for number, right in enumerate(expected):
    torch.testing.assert_close(out[number], right, rtol=0, atol=0, msg=f"operation {number}")
torch.testing.assert_close(scalars, torch.stack([x.max(), y.min()]), rtol=0, atol=0)
torch.testing.assert_close(integers, (x * 4).int())
print("equal")
