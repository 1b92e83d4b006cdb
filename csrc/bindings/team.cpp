// Kernels that the main thread calls run on torch's own threads: those go on spinning for milliseconds after
// every small operator of torch's, and would keep the cores from threads of ours. They are a pool of the
// thread that calls, so any other thread would get a second one; and a child of fork has lost them.

#include <torch/csrc/stable/ops.h>

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

const struct Offer {
  Offer() {
    offer_team(&run_on_torch);
    pthread_atfork(nullptr, nullptr, [] { offer_team(nullptr); });
  }
} kOffer;

}  // namespace
}  // namespace pyg_batchgnn

#endif
