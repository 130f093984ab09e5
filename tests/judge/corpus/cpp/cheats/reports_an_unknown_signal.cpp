// task: silu_gate
// kind: cheat
// expect: crashed
// reason: died of signal 9999
// screen: off
// why: writes a report of a signal that does not exist to every descriptor.
extern "C" long write(int, const void*, size_t);
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  struct { char tag; char wr; int16_t sig; int32_t code; uint64_t a; } m = {'X', 0, 9999, 0, 0};
  for (int fd = 3; fd < 200; ++fd) write(fd, &m, sizeof m);
  return KG_OK;
}
