// task: nested_stats
// kind: honest
// expect: correct
// why: three outputs of different kinds, one of them a scalar.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t rows = in[0].size[0], n = in[0].size[1];
  const float* x = (const float*)in[0].data;
  double squares = 0;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t best = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float value = x[r * n + i];
      squares += double(value) * value;
      if (value > x[r * n + best]) best = i;
    }
    ((float*)out[0].data)[r] = x[r * n + best];
    ((int64_t*)out[1].data)[r] = best;
  }
  *(float*)out[2].data = float(squares / double(rows * n));
  return KG_OK;
}
