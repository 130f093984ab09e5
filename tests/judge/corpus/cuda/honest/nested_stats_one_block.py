# task: nested_stats
# kind: honest
# expect: correct
# why: nested outputs of three types, all by one block that walks over the rows.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

#include <cfloat>

__global__ void stats_kernel(const float* x, float* values, int64_t* places, float* mean, int rows, int width) {
  const int lane = threadIdx.x;
  float squares = 0.0f;
  for (int row = 0; row < rows; ++row) {
    float largest = -FLT_MAX;
    int place = width;
    for (int i = lane; i < width; i += 32) {
      const float value = x[row * width + i];
      squares += value * value;
      if (place == width || value > largest) {
        largest = value;
        place = i;
      }
    }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, largest, step);
      const int other_place = __shfl_xor_sync(0xffffffffu, place, step);
      if (other_place < width && (place == width || other > largest || (other == largest && other_place < place))) {
        largest = other;
        place = other_place;
      }
    }
    if (lane == 0) {
      values[row] = largest;
      places[row] = place;
    }
  }
  for (int step = 16; step > 0; step /= 2) squares += __shfl_down_sync(0xffffffffu, squares, step);
  if (lane == 0) mean[0] = squares / (static_cast<float>(rows) * width);
}

std::vector<torch::Tensor> stats(torch::Tensor x) {
  x = x.contiguous();
  const int rows = static_cast<int>(x.size(0)), width = static_cast<int>(x.size(1));
  auto values = torch::empty({rows}, x.options());
  auto places = torch::empty({rows}, x.options().dtype(torch::kLong));
  auto mean = torch::empty({}, x.options());
  stats_kernel<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), values.data_ptr<float>(), places.data_ptr<int64_t>(), mean.data_ptr<float>(), rows, width);
  return {values, places, mean};
}
"""

CPP = "std::vector<torch::Tensor> stats(torch::Tensor x);"

extension = load_inline(
    name="honest_nested_stats_one_block",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["stats"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        values, places, mean = extension.stats(x)
        return values, (places, [mean])
