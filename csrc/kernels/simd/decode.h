// The decoding of rows of codes: code * scale + offset of the column, rounded once. The bits are
// those of one fused multiply-add at every level.
#pragma once

#include <cstdint>

#include "kernels/operand.h"

namespace pyg_batchgnn {

// to[c] = from[c] decoded, for `count` columns. Bfloat16 is rounded from float.
void decode_row(const Code* from, Decoding by, int64_t count, float* to);
void decode_row(const Code* from, Decoding by, int64_t count, double* to);
void decode_row(const Code* from, Decoding by, int64_t count, Bfloat16* to);

}  // namespace pyg_batchgnn
