#include <chrono>

#include "bindings/operators.h"
#include "kernels/turns.h"

namespace pyg_batchgnn {
namespace operators {

void announce_turn_(const Tensor& word, int64_t turn) {
  pyg_batchgnn::announce_turn(static_cast<uint32_t*>(word.mutable_data_ptr()), static_cast<uint32_t>(turn));
}

bool wait_for_turns(const std::vector<Tensor>& words, int64_t turn, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (const Tensor& word : words) {
    const double gone = std::chrono::duration<double>(Clock::now() - begin).count();
    const auto* place = static_cast<const uint32_t*>(word.const_data_ptr());
    if (!wait_for_turn(place, static_cast<uint32_t>(turn), seconds - gone)) return false;
  }
  return true;
}

}  // namespace operators
}  // namespace pyg_batchgnn
