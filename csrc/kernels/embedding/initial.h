// The initial rows of embedding tables (docs/concepts/sampling-contract.md defines them).
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// Writes one row per node, of numbers in [-bound, bound) that depend on (key, node, column) alone.
template <class T>
void fill_uniform(uint64_t key, const int64_t* node, int64_t count, int64_t columns, double bound, T* rows,
                  int64_t threads);

}  // namespace pyg_batchgnn
