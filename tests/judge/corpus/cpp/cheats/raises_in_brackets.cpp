// task: silu_gate
// kind: cheat
// expect: refused
// reason: no system calls or processes.*raise
// why: a banned function in brackets, declared and called.
extern "C" int(raise)(int);
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  return (raise)(40);
}
