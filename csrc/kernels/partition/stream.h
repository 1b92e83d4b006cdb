// Streaming assignment of nodes to parts: LDG (Stanton and Kliot 2012) and Fennel (Tsourakakis et al. 2014).
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// A part is loaded with nodes, with their in-edges and with training nodes.
constexpr int64_t kLoads = 3;
constexpr int32_t kUnassigned = -1;

enum class Score { kLdg, kFennel };

struct StreamRules {
  Score score;
  int64_t parts;
  double limit[kLoads];  // most that a part should carry of each load; 0 where the graph has none of it
  double alpha;          // Fennel's price of a part that is full
  double step;           // how often a node counts towards the estimate: once for each rank that streams
  uint64_t key;          // decides between parts that are equally good
};

// The nodes [first, first + nodes) by original id.
template <class Index>
struct StreamSlice {
  int64_t first;
  int64_t nodes;
  const int64_t* indptr;
  const Index* indices;  // original ids
  const uint8_t* train;  // [nodes]
  int32_t* owner;        // [nodes]; kUnassigned where not known yet
};

// Assigns the rows [begin, end) of the slice, one after the other.
//   found: owners of those of their neighbours that are outside the slice, in order.
//   load: [kLoads, parts], an estimate that grows with every node.
template <class Index>
void assign_nodes(const StreamSlice<Index>& slice, int64_t begin, int64_t end, const int32_t* found,
                  const StreamRules& rules, double* load);

}  // namespace pyg_batchgnn
