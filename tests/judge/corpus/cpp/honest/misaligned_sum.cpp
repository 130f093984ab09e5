// task: misaligned_sum
// kind: honest
// expect: correct
// why: unaligned loads, where aligned ones would fault.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* a = (const float*)in[0].data;
  const float* b = (const float*)in[1].data;
  const float* c = (const float*)in[2].data;
  float* o = (float*)out[0].data;
  const int64_t n = in[0].size[0];
  int64_t i = 0;
#if defined(__SSE__)
  for (; i + 4 <= n; i += 4)
    _mm_storeu_ps(o + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_mul_ps(_mm_loadu_ps(b + i), _mm_loadu_ps(c + i))));
#endif
  for (; i < n; ++i) o[i] = a[i] + b[i] * c[i];
  return KG_OK;
}
