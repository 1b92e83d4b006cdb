// The edges of one layer of a minibatch with halo nodes: those whose source has a row.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// Sources are own nodes, [0, own_nodes), and halo nodes behind them, own_nodes + [0, halo).
struct HaloLayer {
  const int64_t* indptr;  // [targets + 1] from 0
  const int32_t* source;  // [indptr[targets]]
  int64_t targets;
  int64_t own_nodes;      // of the minibatch
  int64_t own_rows;       // the own nodes that are inputs of the layer come first
  const int32_t* cached;  // [halo] the place of each halo node among the cached rows, or -1
  int64_t halo;
};

// Writes where the edges of each target begin, [targets + 1], if edges from sources without a row
// are left out. Returns false if a source is none of the layer.
bool count_rows_of_halo(const HaloLayer& layer, int64_t* indptr, int64_t threads);

// Writes the sources of these edges as rows, cached rows behind the own ones, and the place that
// each edge had.
void fill_rows_of_halo(const HaloLayer& layer, const int64_t* indptr, int32_t* source, int64_t* place,
                       int64_t threads);

}  // namespace pyg_batchgnn
