// Streaming assignment of nodes: LDG (Stanton and Kliot 2012) and Fennel (Tsourakakis et al. 2014).
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

constexpr int32_t kUnassigned = -1;

enum class Score { kLdg, kFennel };

enum class StreamPass {
  kAssign,  // every node gets a part
  kMend,    // nodes leave parts that have more than a limit for parts that have room, if there are any
};

struct StreamRules {
  Score score;
  StreamPass pass;
  int64_t parts;
  int64_t loads;        // the kinds of loads
  const double* limit;  // [loads], the largest load of each kind
  double alpha;         // the price of a full part in Fennel
  double step;          // the weight of a node in the estimate: the number of ranks that stream
  uint64_t key;         // decides between equally good parts
};

// The nodes [first, first + nodes) by original id.
template <class Index>
struct StreamSlice {
  int64_t first;
  int64_t nodes;
  const int64_t* indptr;
  const Index* indices;   // original ids
  const int32_t* weight;  // [nodes, loads], what each node adds to its part
  int32_t* owner;         // [nodes]; kUnassigned if not known yet
};

// Assigns the rows [begin, end) of the slice, one after the other.
//   found: the owners of their neighbours outside the slice, in order.
//   load: [loads, parts], an estimate that changes with every node.
template <class Index>
void assign_nodes(const StreamSlice<Index>& slice, int64_t begin, int64_t end, const int32_t* found,
                  const StreamRules& rules, double* load);

}  // namespace pyg_batchgnn
