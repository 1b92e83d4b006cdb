#include "kernels/embedding/initial.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kGrain = 1 << 16;  // fewer numbers do not pay for a thread

// The number of a word in [-1, 1): its upper 53 bits.
double signed_unit(uint64_t word) {
  return static_cast<double>(static_cast<int64_t>(word >> 11)) * 0x1p-52 - 1;
}

}  // namespace

template <class T>
void fill_uniform(uint64_t key, const int64_t* node, int64_t count, int64_t columns, double bound, T* rows,
                  int64_t threads) {
  const int64_t grain = kGrain / std::max<int64_t>(columns, 1) + 1;
  run_ranges(count, grain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      WordStream words(fold(key, static_cast<uint64_t>(node[i])));
      for (int64_t c = 0; c < columns; ++c) {
        rows[i * columns + c] = static_cast<T>(bound * signed_unit(words.next()));
      }
    }
  });
}

template void fill_uniform(uint64_t, const int64_t*, int64_t, int64_t, double, float*, int64_t);
template void fill_uniform(uint64_t, const int64_t*, int64_t, int64_t, double, double*, int64_t);

}  // namespace pyg_batchgnn
