// task: silu_gate
// kind: cheat
// expect: refused
// reason: entry point.*kg_forward
// why: nothing to call.
extern "C" int forward(const kg_tensor*) { return KG_OK; }
