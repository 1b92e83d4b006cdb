// Copies rows of a table to a block, to columns of another table, or between places of two tables.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// The destination of rows, which begin `stride_bytes` apart.
struct RowsOut {
  char* data;
  int64_t stride_bytes;

  char* at(int64_t i) const { return data + i * stride_bytes; }
};

// out[i] = table[index[i]] for rows of `row_bytes`, `stride_bytes` apart. Every index is valid.
template <class Index>
void gather_rows(const char* table, int64_t row_bytes, int64_t stride_bytes, const Index* index,
                 int64_t count, const RowsOut& out, int64_t threads);

// out[i] = table[i]
void copy_rows(const char* table, int64_t row_bytes, int64_t stride_bytes, int64_t count, const RowsOut& out,
               int64_t threads);

// Rows of two tables of the same width: the number of a row of `near`, and ~i for row i of `far`.
struct EitherRows {
  const char *near, *far;
  int64_t row_bytes;
  const int64_t* index;

  const char* at(int64_t i) const {
    return index[i] >= 0 ? near + index[i] * row_bytes : far + ~index[i] * row_bytes;
  }
};

// out[i] = the i-th row. Every index is valid.
void gather_either(const EitherRows& rows, int64_t count, char* out, int64_t threads);

// to[to_row[i]] = from[from_row[i]] for rows of `row_bytes`. No row of `to` comes twice.
void move_rows(const char* from, const int64_t* from_row, char* to, const int64_t* to_row, int64_t count,
               int64_t row_bytes, int64_t threads);

// out[i] = table[index[i]], or table[i] without an index, decoded from codes to `element`: float32
// or bfloat16. Every index is valid.
void gather_decoded(const Matrix& table, int64_t columns, Integers index, int64_t count, const RowsOut& out,
                    Element element, int64_t threads);

}  // namespace pyg_batchgnn
