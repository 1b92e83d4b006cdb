// Kernels that the main thread calls run on torch's threads. Those spin for milliseconds after
// every small operator of torch and would keep the cores from other threads. The pool belongs to
// the calling thread: any other thread would get a second pool. A forked child has no pool.

#include <torch/csrc/stable/ops.h>

#include <fstream>
#include <sstream>
#include <string>

#include "kernels/parallel.h"

#if defined(__linux__)
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pyg_batchgnn {
namespace {

bool run_on_torch(int64_t slots, void (*work)(void*, int64_t), void* context) {
  if (syscall(SYS_gettid) != getpid() || slots > torch::stable::get_num_threads()) return false;
  torch::stable::parallel_for(0, slots, 1, [=](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) work(context, slot);
  });
  return true;
}

// Returns whether this process was forked and has not executed a program since. Then its runtime
// may believe in a pool of its parent. The flags are the ninth field of stat, see proc(5). The
// second field is a name, which may contain any character.
bool is_forked() {
  constexpr unsigned long kForkedNoExec = 0x40;  // PF_FORKNOEXEC
  std::string line, skipped;
  std::getline(std::ifstream("/proc/self/stat"), line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return true;
  std::istringstream fields(line.substr(name_end + 1));
  for (int field = 3; field < 9; ++field) fields >> skipped;
  unsigned long flags = kForkedNoExec;
  fields >> flags;
  return (flags & kForkedNoExec) != 0;
}

const struct Offer {
  Offer() {
    if (is_forked()) return;
    offer_thread_pool(&run_on_torch);
    pthread_atfork(nullptr, nullptr, [] { offer_thread_pool(nullptr); });
  }
} kOffer;

}  // namespace
}  // namespace pyg_batchgnn

#endif
