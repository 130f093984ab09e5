// kg.h: everything a C++ candidate of kernelgraft may rely on. Precompiled; contains no torch.
//
// A candidate defines
//
//   extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed);
//
// `in`, `w`, `out` are the task's inputs, weights and outputs in the order of task.json. Outputs are allocated by
// the caller (dense, but possibly permuted: mind the strides), hold garbage, and must be written in full. Inputs
// and weights must not be written.
// Return KG_OK, or KG_UNSUPPORTED for shapes or strides the candidate does not serve.
//
// A candidate may also define a weight-packing step, run once per weight set:
//
//   extern "C" size_t kg_packed_bytes(const kg_tensor* w);
//   extern "C" void   kg_pack(const kg_tensor* w, void* packed);     // page aligned, kg_packed_bytes(w) long
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <algorithm>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

enum kg_dtype : int32_t { KG_F32 = 0, KG_BF16 = 1, KG_F16 = 2, KG_F64 = 3, KG_I64 = 4, KG_I32 = 5, KG_I8 = 6, KG_U8 = 7, KG_BOOL = 8,
                         KG_I16 = 9, KG_F8E4M3 = 10, KG_F8E5M2 = 11 };
enum { KG_OK = 0, KG_UNSUPPORTED = 1 };

struct kg_tensor {
  void* data;             // first element (the storage offset is already applied)
  const int64_t* size;    // ndim sizes, in elements
  const int64_t* stride;  // ndim strides, in elements
  int32_t ndim;
  int32_t dtype;          // kg_dtype
};

typedef uint16_t kg_bf16;

static inline float kg_to_float(kg_bf16 v) {
  uint32_t bits = uint32_t(v) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// Round to nearest even, NaN kept: what torch does.
static inline kg_bf16 kg_to_bf16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return kg_bf16((bits >> 16) | 0x40);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return kg_bf16(bits >> 16);
}

static inline int64_t kg_numel(const kg_tensor& t) {
  int64_t n = 1;
  for (int32_t i = 0; i < t.ndim; ++i) n *= t.size[i];
  return n;
}

static inline bool kg_contiguous(const kg_tensor& t) {
  int64_t expect = 1;
  for (int32_t i = t.ndim - 1; i >= 0; --i) {
    if (t.size[i] != 1 && t.stride[i] != expect) return false;
    expect *= t.size[i];
  }
  return true;
}

static inline int kg_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}
