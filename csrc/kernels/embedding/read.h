// Gathers rows of two tables into one.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// A row of `near` is named by its number, row i of `far` by ~i, which is negative.
struct TwoTables {
  const char* near;
  const char* far;
  int64_t row_bytes;

  const char* at(int64_t source) const {
    return source >= 0 ? near + source * row_bytes : far + ~source * row_bytes;
  }
};

// out[i] = the row source[i], for rows of the same width. Every source is valid.
void gather_either(const TwoTables& tables, const int64_t* source, int64_t count, char* out, int64_t threads);

}  // namespace pyg_batchgnn
