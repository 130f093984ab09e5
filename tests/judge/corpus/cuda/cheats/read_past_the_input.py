# task: row_sum
# kind: cheat
# expect: wrong,crashed
# reason: output|NaN|nan|error|illegal
# why: each row adds the element after its end; after the last row that is not its own.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sum_kernel(const float* x, float* out, int width) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i <= width; i += 32) sum += x[static_cast<int64_t>(blockIdx.x) * width + i];
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lane);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

torch::Tensor row_sum(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::empty({x.size(0)}, x.options());
  row_sum_kernel<<<static_cast<unsigned>(x.size(0)), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(x.size(1)));
  return out;
}
"""

CPP = "torch::Tensor row_sum(torch::Tensor x);"

extension = load_inline(
    name="cheats_read_past_the_input",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["row_sum"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
