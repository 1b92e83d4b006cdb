// The decoding of rows of codes: code * scale + offset of the column, rounded once. The bits are
// those of one fused multiply-add at every level. Scales and offsets are finite, and no value NaN.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// to[c] = from[c] decoded, for `count` columns. Bfloat16 is rounded from float.
void decode_row(const Code* from, Decoding by, int64_t count, float* to);
void decode_row(const Code* from, Decoding by, int64_t count, double* to);
void decode_row(const Code* from, Decoding by, int64_t count, Bfloat16* to);

// Rows that share the loads of scales and offsets.
constexpr int kDecodedRows = 4;

// The same for kDecodedRows rows that `from` points to. They begin `stride` elements apart in `to`.
void decode_rows(const Code* const* from, Decoding by, int64_t count, float* to, int64_t stride);
void decode_rows(const Code* const* from, Decoding by, int64_t count, Bfloat16* to, int64_t stride);

constexpr int64_t kStreamedColumns = 1024;

// The same past the caches, for a multiple of 4 columns, at most kStreamedColumns. `to` is aligned
// to lines, and rows follow one another. `end_rows` makes them visible to other threads.
void stream_rows(const Code* const* from, Decoding by, int64_t count, float* to);
void end_rows();

}  // namespace pyg_batchgnn
