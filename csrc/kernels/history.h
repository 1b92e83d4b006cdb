// The lines of a historical embedding cache (DistGNN-MB, section 3.2): which line has which node.
//
// A hash table finds the line of a node. A list through all lines in use has them in the order in
// which they were stored. The oldest line makes room where all lines are in use.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

constexpr int32_t kNoLine = -1;

// The arrays are the caller's. At first slots are 0, and ends are kNoLine, kNoLine and 0.
struct CacheLines {
  int32_t* slot;  // [slots] a line + 1, or 0; slots are a power of two, at least twice the lines
  int64_t slots;
  int64_t* node;    // [lines] the node of each line in use
  int64_t* stored;  // [lines] the step in which each line in use was stored
  int32_t* older;   // [lines] the line that was stored before, or kNoLine
  int32_t* newer;   // [lines] the line that was stored next, or kNoLine
  int64_t* ends;    // [3] the oldest line, the newest line, the number of lines in use
  int64_t lines;
};

// Writes the line of each node, or kNoLine for one that was not stored since the step `since`.
void search_lines(const CacheLines& cache, const int64_t* node, int64_t count, int64_t since, int32_t* line,
                  int64_t threads);

// Stores nodes one after the other and writes the line of each. A node that is stored again later
// in the call, or that makes room for a later one, gets kNoLine. `step` ascends.
void store_lines(CacheLines& cache, const int64_t* node, const int64_t* step, int64_t count, int32_t* line);

// Writes the lines in use, the oldest first.
void list_lines(const CacheLines& cache, int32_t* line);

// The edges of one layer of a minibatch with halo nodes: those whose source has a row.

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

// Writes the sources of these edges as rows, cached ones behind own ones, and each edge's place.
void fill_rows_of_halo(const HaloLayer& layer, const int64_t* indptr, int32_t* source, int64_t* place,
                       int64_t threads);

// The choice of the nodes that a rank pushes to its peers (DistGNN-MB, section 3.2.1).

constexpr int64_t kPushAll = -1;

// The peers that have each node of a part in their halo, ascending.
struct HaloPeers {
  const int64_t* ptr;     // [nodes + 1]
  const int32_t* peer;    // [ptr[nodes]]
  const int32_t* degree;  // as peer, edges from the node into the peer's part, at least 1
  int64_t nodes;
};

struct PushRules {
  int64_t peers;
  int64_t most;  // nodes for each peer, or kPushAll
  uint64_t key;  // of the seed, the epoch, the step and the layer
};

// The chosen places of a minibatch's nodes, ascending, for peer 0 first.
struct Pushed {
  Buffer<int64_t> place;
  std::vector<int64_t> counts;      // by peer
  std::vector<int64_t> candidates;  // by peer, before the choice
};

// Chooses among some nodes those of each peer's halo. Where there are more than `most`, they are
// drawn without replacement in proportion to their degree. The draw of a node depends on the key,
// the peer and the node's name alone.
//
// `row`: [count] rows of the part; negative ones are left out. `name`: [count] original ids.
Pushed choose_pushed(const HaloPeers& halo, const int64_t* row, const int64_t* name, int64_t count,
                     const PushRules& rules, int64_t threads);

}  // namespace pyg_batchgnn
