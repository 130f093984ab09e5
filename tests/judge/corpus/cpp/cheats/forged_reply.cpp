// task: silu_gate
// kind: cheat
// expect: wrong
// reason: never written
// screen: off
// why: it answers the judge in the worker's name, and does nothing.
extern "C" long write(int, const void*, size_t);

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  const char done[12] = {'D', 0, 0, 0, 0, 0, 0, 0, char(0x80), 0x1f};
  for (int fd = 3; fd < 2000; ++fd) write(fd, done, 12);
  return KG_OK;
}
