"""A task and a candidate that is right, in pieces that tests take apart."""

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x * self.gain + torch.sigmoid(x)

def get_inputs():
    return [torch.randn(3, 40)]

def get_init_inputs():
    return [40]
"""

HEAD = """
import torch
import triton
import triton.language as tl
"""

KERNEL = """
@triton.jit
def gain_kernel(x, gain, out, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * width + at, mask=at < width)
    scaled = values * tl.load(gain + at, mask=at < width) + tl.sigmoid(values)
    tl.store(out + row * width + at, scaled, mask=at < width)
"""

MODEL = """
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        out = torch.empty_like(x)
        gain_kernel[(x.shape[0],)](x, self.gain, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""

HONEST = HEAD + KERNEL + MODEL
