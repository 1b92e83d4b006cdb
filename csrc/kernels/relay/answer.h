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
                                   // edge_ids are not null if `answer` is to read them
  const int64_t* node;             // original ids, by type, for the keys of choices; null: the rows
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

// The answers to a question of this process itself whose sources and edge ids are still to be read.
struct OpenAnswers {
  // A section of the answers, of one relation.
  struct Section {
    int64_t relation, picks;
    int64_t edges_at, sources_at;  // the words of the answers where they begin
    int64_t edge_bytes;            // of an edge id: 4 or 8; 0 if not wanted
  };
  Answers answers;
  Buffer<int64_t> position;  // in `indices`, of all picks, by section
  std::vector<Section> sections;
};

// Answers the questions of a hop, those of an induced subgraph after the last one. The result does
// not depend on the number of threads.
template <class Index>
Answers answer(const OwnPart<Index>& part, const Plan& plan, int64_t hop, const Requests<Index>& requests,
               int64_t threads, ObjectPool<Scratch<Index>>& scratches);

// The same without sources and edge ids, which may lie in files. No hop of an induced subgraph.
template <class Index>
OpenAnswers answer_open(const OwnPart<Index>& part, const Plan& plan, int64_t hop,
                        const Requests<Index>& requests, int64_t threads,
                        ObjectPool<Scratch<Index>>& scratches);

}  // namespace pyg_batchgnn
