// task: silu_gate
// kind: cheat
// expect: hung
// reason: killed
// screen: off
// why: text without end, in case somebody keeps it.
extern "C" long write(int, const void*, size_t);

static char block[65536];

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  for (;;) {
    write(1, block, sizeof block);
    write(2, block, sizeof block);
  }
  return KG_OK;
}
