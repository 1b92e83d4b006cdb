// Products of bfloat16 by a matrix unit that multiplies tiles of 16 rows (Intel AMX).
//
// The unit sums the products of the first terms of all pairs of a tile and those of the second
// ones, adds both, and adds that to the sum so far: a fixed order, not that of other kernels.
#pragma once

#include <cstdint>

#include "kernels/simd/sparse_pairs.h"

namespace pyg_batchgnn {

constexpr int64_t kTileSide = 16;  // rows, pairs of terms, or columns of a tile

// out[r, c] = sum over pairs s of a[r, s] . b[s, c], added to out where `add`. a and b hold pairs
// of bfloat16. `rows`, `pairs` and `columns` are multiples of kTileSide.
struct TilesProduct {
  const uint32_t* a;
  int64_t a_stride;
  const uint32_t* b;
  int64_t b_stride;
  int64_t rows, pairs, columns;
  float* out;
  int64_t out_stride;
  bool add;
};

struct TileKernels {
  void (*multiply)(const TilesProduct&);
  // to[c] = the pair of first[c] and second[c]. `count` is a multiple of kTileSide.
  void (*interleave)(const uint16_t* first, const uint16_t* second, int64_t count, uint32_t* to);
  // to[c, s] = from[s, c] for kTileSide rows of `columns`, a multiple of kTileSide.
  void (*transpose)(const uint32_t* from, int64_t stride, int64_t columns, uint32_t* to, int64_t to_stride);
};

// Returns null where the processor has no such unit, or the system does not let this process use
// it. The environment variable PYG_BATCHGNN_TILES=emulated gives one in plain C++, for tests.
const TileKernels* tile_kernels();

// Returns whether those kernels run on a real unit.
bool has_matrix_unit();

}  // namespace pyg_batchgnn
