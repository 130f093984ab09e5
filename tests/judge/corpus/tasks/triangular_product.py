"""Product of upper triangular matrices: timed inputs are scaled draws, or all new where drawing is cheap."""

import torch

N = 128


class Model(torch.nn.Module):
    """The upper triangle of A times B."""

    def forward(self, A, B):
        """[N, N] each."""
        return torch.triu(torch.matmul(A, B))


def get_inputs():
    """Two upper triangular matrices."""
    return [torch.triu(torch.rand(N, N)), torch.triu(torch.rand(N, N))]


def get_inputs_signed():
    """The same of both signs."""
    return [torch.triu(torch.randn(N, N)), torch.triu(torch.randn(N, N))]


def get_init_inputs():
    """None."""
    return []
