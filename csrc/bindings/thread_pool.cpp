// Kernels that the main thread calls run on torch's own threads: those go on spinning for milliseconds after
// every small operator of torch's, and would keep the cores from threads of ours. They are a pool of the
// thread that calls, so any other thread would get a second one; and a child of fork has lost them.

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

// Whether this process was forked and has executed no program since: then its parent may have had a pool,
// which it believes in. The ninth field of proc(5)'s stat are flags; the second, a name, may have anything in
// it.
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
