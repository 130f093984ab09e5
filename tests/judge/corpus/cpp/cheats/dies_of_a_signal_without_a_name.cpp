// task: silu_gate
// kind: cheat
// expect: crashed
// reason: died of signal 40
// screen: off
// why: raises a real-time signal, which has a number and no name.
extern "C" int(raise)(int);
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  return (raise)(40);
}
