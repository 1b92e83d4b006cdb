// The answering side of a relay: an owner picks for the nodes that others ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/object_pool.h"
#include "kernels/relay/messages.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// The in-edges of the nodes that this rank owns.
template <class Index>
struct OwnPart {
  const TypedGraph<Index>& graph;  // num_nodes: of this part; sources are ids of the whole graph;
                                   // edge_ids are not null if they are wanted
  const int64_t* node;             // original ids, by type, for the keys of choices
  int64_t first;                   // the id of the first node
  int64_t num_nodes;               // of the whole graph
  std::vector<int64_t> num_edges;  // by relation, of the whole graph

  // Returns the first id of each type.
  std::vector<int64_t> firsts() const {
    std::vector<int64_t> out{first};
    for (const int64_t nodes : graph.num_nodes) out.push_back(out.back() + nodes);
    return out;
  }
};

// The questions to this rank, concatenated.
template <class Index>
struct Requests {
  const Index* words;
  std::vector<int64_t> words_of;  // by asking rank
  QuestionShape shape;
};

struct Answers {
  Buffer<int64_t> words;           // messages, concatenated
  std::vector<int64_t> words_to;   // by asking rank
  std::vector<int64_t> picks_for;  // by asking rank
  Fault fault;                     // if set, there are no words
};

// Answers the questions of a hop, those of an induced subgraph after the last one. The result does
// not depend on the number of threads.
template <class Index>
Answers answer(const OwnPart<Index>& part, const Plan& plan, int64_t hop, const Requests<Index>& requests,
               int64_t threads, ObjectPool<Scratch<Index>>& scratches);

}  // namespace pyg_batchgnn
