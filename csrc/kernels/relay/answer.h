// The owner's side of a relay: picks for the nodes that others ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/object_pool.h"
#include "kernels/pick.h"
#include "kernels/relay/wire.h"

namespace pyg_batchgnn {

// The in-edges of the nodes that this rank owns.
template <class Index>
struct OwnPart {
  Csc<Index> graph;     // sources are ids of the whole graph; edge_ids are not null where wanted
  const int64_t* node;  // [graph.num_nodes] original ids, which choices are keyed by
  int64_t first;        // id of the first one
};

// What was asked of this rank, message behind message.
template <class Index>
struct Requests {
  const Index* words;
  std::vector<int64_t> words_of;  // by rank that asks
};

struct Answers {
  Buffer<int64_t> words;           // message behind message
  std::vector<int64_t> words_to;   // by rank that asked
  std::vector<int64_t> picks_for;  // by rank that asked
  Fault fault;                     // where set, there are no words
};

// The result does not depend on the number of threads.
template <class Index>
Answers answer(const OwnPart<Index>& part, const Requests<Index>& requests, int64_t fanout,
               Replacement replacement, const AnswerShape& shape, int64_t threads,
               ObjectPool<Scratch<Index>>& scratches);

}  // namespace pyg_batchgnn
