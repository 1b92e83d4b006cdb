#include "kernels/partition/multilevel/ghosts.h"

#include <bit>
#include <cstddef>

namespace pyg_batchgnn {

template <class Id>
std::vector<Id> number_ghosts(const Id* ids, int64_t count, int64_t first, int64_t nodes, int64_t total,
                              int32_t* local) {
  const int64_t words = total / 64 + 1;
  std::vector<uint64_t> seen(static_cast<size_t>(words));
  for (int64_t e = 0; e < count; ++e) {
    const int64_t id = ids[e];
    if (id < first || id >= first + nodes) seen[id / 64] |= uint64_t{1} << (id % 64);
  }
  std::vector<int32_t> before(static_cast<size_t>(words));  // the ghosts before each word
  std::vector<Id> ghosts;
  for (int64_t word = 0; word < words; ++word) {
    before[word] = static_cast<int32_t>(ghosts.size());
    for (uint64_t bits = seen[word]; bits != 0; bits &= bits - 1)
      ghosts.push_back(static_cast<Id>(64 * word + std::countr_zero(bits)));
  }
  for (int64_t e = 0; e < count; ++e) {
    const int64_t id = ids[e];
    if (id >= first && id < first + nodes) {
      local[e] = static_cast<int32_t>(id - first);
      continue;
    }
    const uint64_t lower = seen[id / 64] & ((uint64_t{1} << (id % 64)) - 1);
    local[e] = static_cast<int32_t>(nodes + before[id / 64] + std::popcount(lower));
  }
  return ghosts;
}

template std::vector<int32_t> number_ghosts(const int32_t*, int64_t, int64_t, int64_t, int64_t, int32_t*);
template std::vector<int64_t> number_ghosts(const int64_t*, int64_t, int64_t, int64_t, int64_t, int32_t*);

}  // namespace pyg_batchgnn
