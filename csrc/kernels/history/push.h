// The choice of the nodes that a rank pushes to its peers (DistGNN-MB, section 3.2.1).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

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
