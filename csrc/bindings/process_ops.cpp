// The memory, threads and turns of the process.

#include <chrono>
#include <fstream>
#include <sstream>

#include "bindings/operators.h"
#include "bindings/process_pool.h"
#include "kernels/allocation.h"
#include "kernels/parallel.h"
#include "kernels/simd/level.h"
#include "kernels/turns.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pyg_batchgnn {
namespace {

#if defined(__linux__)

// Kernels that the main thread calls run on torch's threads. Those spin for milliseconds after
// every small operator of torch and would keep the cores from other threads. The pool belongs to
// the calling thread: any other thread would get a second pool. A forked child has no pool.

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

#endif

}  // namespace

namespace operators {

void empty_cache() {
  clear_process_pools();
  pyg_batchgnn::empty_cache();
}

std::tuple<int64_t, int64_t, int64_t, int64_t> memory_stats() {
  const AllocationStats stats = allocation_stats();
  return {stats.live_bytes, stats.cached_bytes, stats.peak_bytes, stats.system_calls};
}

void reset_memory_peak() { reset_peak(); }

void advise_huge_pages(const Tensor& tensor) {
  pyg_batchgnn::advise_huge_pages(tensor.const_data_ptr(),
                                  static_cast<size_t>(tensor.numel()) * tensor.element_size());
}

Tensor empty_bytes(int64_t bytes) {
  return adopt_block(allocate_block(static_cast<size_t>(bytes)), {bytes}, ScalarType::Byte);
}

int64_t simd_level() { return static_cast<int64_t>(pyg_batchgnn::simd_level()); }

int64_t most_bfloat16_level() { return static_cast<int64_t>(pyg_batchgnn::most_bfloat16_level()); }
int64_t bfloat16_level() { return static_cast<int64_t>(pyg_batchgnn::bfloat16_level()); }
void set_bfloat16_level(int64_t level) {
  if (level < 0 || level > most_bfloat16_level()) {
    throw std::invalid_argument("this processor has the levels 0 to " +
                                std::to_string(most_bfloat16_level()) + " of bfloat16 products, got " +
                                std::to_string(level));
  }
  pyg_batchgnn::set_bfloat16_level(static_cast<Bfloat16Level>(level));
}

void announce_turn_(const Tensor& word, int64_t turn) {
  pyg_batchgnn::announce_turn(mutable_data<uint32_t>(word), static_cast<uint32_t>(turn));
}

bool wait_for_turns(const std::vector<Tensor>& words, int64_t turn, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (const Tensor& word : words) {
    const double gone = std::chrono::duration<double>(Clock::now() - begin).count();
    const auto* place = data<uint32_t>(word);
    if (!wait_for_turn(place, static_cast<uint32_t>(turn), seconds - gone)) return false;
  }
  return true;
}

}  // namespace operators

constexpr Operator kOperators[] = {
    OPERATOR(empty_cache, "() -> ()"),
    OPERATOR(memory_stats, "() -> (int live, int cached, int peak, int system_calls)"),
    OPERATOR(reset_memory_peak, "() -> ()"),
    OPERATOR(advise_huge_pages, "(Tensor tensor) -> ()"),
    OPERATOR(empty_bytes, "(int bytes) -> Tensor"),
    OPERATOR(simd_level, "() -> int"),
    OPERATOR(most_bfloat16_level, "() -> int"),
    OPERATOR(bfloat16_level, "() -> int"),
    OPERATOR(set_bfloat16_level, "(int level) -> ()"),
    OPERATOR(announce_turn_, "(Tensor(a!) word, int turn) -> ()"),
    OPERATOR(wait_for_turns, "(Tensor[] words, int turn, float seconds) -> bool"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
