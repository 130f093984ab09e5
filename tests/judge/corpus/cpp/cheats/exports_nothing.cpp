// task: silu_gate
// kind: cheat
// expect: build_failed
// reason: exports no
// why: the name is there, the function is not.
extern "C" int kg_forward_(const kg_tensor*);

static int kg_forward = 0;
