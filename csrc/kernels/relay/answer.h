// The answering side of a relay: an owner picks for the nodes that others ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/object_pool.h"
#include "kernels/relay/wire.h"
#include "kernels/sample/pick.h"

namespace pyg_batchgnn {

// The in-edges of the nodes that this rank owns.
template <class Index>
struct OwnPart {
  Csc<Index> graph;     // sources are ids of the whole graph; edge_ids are not null if they are
                        // wanted
  const int64_t* node;  // [graph.num_nodes] original ids, for the keys of choices
  int64_t first;        // the id of the first node
};

// The questions to this rank, concatenated.
template <class Index>
struct Requests {
  const Index* words;
  std::vector<int64_t> words_of;  // by asking rank
};

struct Answers {
  Buffer<int64_t> words;           // messages, concatenated
  std::vector<int64_t> words_to;   // by asking rank
  std::vector<int64_t> picks_for;  // by asking rank
  Fault fault;                     // if set, there are no words
};

// The result does not depend on the number of threads.
template <class Index>
Answers answer(const OwnPart<Index>& part, const Requests<Index>& requests, int64_t fanout,
               Replacement replacement, const AnswerShape& shape, int64_t threads,
               ObjectPool<Scratch<Index>>& scratches);

}  // namespace pyg_batchgnn
