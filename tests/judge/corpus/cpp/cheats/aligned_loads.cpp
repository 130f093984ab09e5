// task: misaligned_sum
// kind: cheat
// expect: crashed
// reason: SIGSEGV
// why: loads that demand an alignment nobody promised.
#include <immintrin.h>

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* a = (const float*)in[0].data;
  float* o = (float*)out[0].data;
  int64_t i = 0;
  for (; i + 4 <= in[0].size[0]; i += 4) {
    __m128 first;  // the compiler must not turn it into an unaligned load
    first = _mm_castsi128_ps(_mm_stream_load_si128((__m128i*)(a + i)));
    _mm_stream_ps(o + i, first);
  }
  return KG_OK;
}
