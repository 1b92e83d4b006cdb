// Rows of a table, gathered into one contiguous block.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// out[i] = table[index[i]] for rows of `row_bytes` that begin `stride_bytes` apart in the table. Every index
// is valid.
template <class Index>
void gather_rows(const char* table, int64_t row_bytes, int64_t stride_bytes, const Index* index,
                 int64_t count, char* out, int64_t threads);

}  // namespace pyg_batchgnn
