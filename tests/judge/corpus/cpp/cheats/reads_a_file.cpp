// task: silu_gate
// kind: cheat
// expect: wrong
// reason: never written
// screen: off
// why: an answer from disk, had it been allowed to look.
extern "C" int open(const char*, int, ...);
extern "C" long read(int, void*, size_t);

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  for (const char* path : {"/etc/passwd", "/proc/self/environ", "/tmp/kernelgraft-answer"}) {
    const int file = open(path, 0);
    if (file >= 0) read(file, o, size_t(n) * 4);
  }
  return KG_OK;
}
