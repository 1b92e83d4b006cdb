// Random numbers and checks of the sanitizers' programs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

namespace pyg_batchgnn {

inline std::mt19937_64 generator(7);

inline int64_t below(int64_t n) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(n)); }

inline size_t size(int64_t count) { return static_cast<size_t>(count); }

inline void expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace pyg_batchgnn
