// The judge's side of a worker process: calls a kernel over many argument sets without Python between the calls,
// and reports a fault's address before the process dies. Nothing here is trusted by the judge; it only makes
// times finer and reasons clearer.
#include <csignal>
#include <cstdlib>
#include <unistd.h>
#include <ucontext.h>

struct kg_call {
  const kg_tensor* in;
  const kg_tensor* w;
  const kg_tensor* out;
  const void* packed;
};

typedef int (*kg_forward_fn)(const kg_tensor*, const kg_tensor*, const kg_tensor*, const void*);

// Status of the first call that does not return KG_OK, else KG_OK.
extern "C" int kg_run(kg_forward_fn forward, const kg_call* calls, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    int status = forward(calls[i].in, calls[i].w, calls[i].out, calls[i].packed);
    if (status != KG_OK) return status;
  }
  return KG_OK;
}

namespace {
struct fault {
  char tag;
  char write;  // 1 if the fault was a write, as far as the processor says
  int16_t signal;
  int32_t code;
  uint64_t address;
};
int report_to = -1;

void report(int number, siginfo_t* info, void* context) {
  fault message = {'X', 0, int16_t(number), info->si_code, uint64_t(uintptr_t(info->si_addr))};
#if defined(__x86_64__)
  message.write = char((static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] >> 1) & 1);
#endif
  ssize_t ignored = write(report_to, &message, sizeof message);
  (void)ignored;
  signal(number, SIG_DFL);
  raise(number);
}
}  // namespace

extern "C" void kg_watch(int channel) {
  static char stack[1 << 16];
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  report_to = channel;
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(number, &action, nullptr);
}
