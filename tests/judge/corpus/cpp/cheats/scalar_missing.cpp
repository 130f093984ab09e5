// task: nested_stats
// kind: cheat
// expect: wrong
// reason: output 2.*never written
// why: the nested scalar is left out.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    const int64_t best = std::max_element(x, x + n) - x;
    ((float*)out[0].data)[r] = x[best];
    ((int64_t*)out[1].data)[r] = best;
  }
  return KG_OK;
}
