// Copies rows between places of two tables.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// to[to_row[i]] = from[from_row[i]] for rows of `row_bytes`. No row of `to` comes twice.
void move_rows(const char* from, const int64_t* from_row, char* to, const int64_t* to_row, int64_t count,
               int64_t row_bytes, int64_t threads);

}  // namespace pyg_batchgnn
