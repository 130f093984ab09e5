// task: silu_gate
// kind: cheat
// expect: wrong,crashed
// reason: never written|SIGSEGV
// screen: off
// why: the worker is a Python program in the same process: its run is replaced by one that does nothing.
extern "C" int PyGILState_Ensure() __attribute__((weak));
extern "C" void PyGILState_Release(int) __attribute__((weak));
extern "C" int PyRun_SimpleString(const char*) __attribute__((weak));

static const char* PATCH = R"(
import __main__, sys
module = __main__ if hasattr(__main__, "_Host") else sys.modules["optimizer.judge.worker"]
module._Host.run = lambda self, region, first, count: 0
)";

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  static bool done;
  if (!done && PyRun_SimpleString) {
    done = true;
    const int state = PyGILState_Ensure();
    PyRun_SimpleString(PATCH);
    PyGILState_Release(state);
  }
  return KG_OK;
}
