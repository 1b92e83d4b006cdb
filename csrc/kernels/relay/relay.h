// The asking side of a relay: B minibatches grow together, one hop at a time, from the answers of
// owners (BatchGNN, section 3.2).
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/object_pool.h"
#include "kernels/relay/messages.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// The owners of the nodes, the relations, and the place of this rank. Ids are ordered by part, then
// by type.
struct Book {
  std::vector<int64_t> offsets;  // [parts * types + 1] the first id of every part and type, then the
                                 // number of nodes
  int64_t types;
  int64_t rank;                         // the part of this rank
  std::vector<int64_t> source, target;  // by relation, the numbers of its types
  std::vector<int64_t> num_edges;       // by relation, of the whole graph

  int64_t parts() const { return (static_cast<int64_t>(offsets.size()) - 1) / types; }
  int64_t num_nodes() const { return offsets.back(); }
  size_t relations() const { return target.size(); }

  // Returns the first id of a type in each part.
  std::vector<int64_t> firsts(int64_t type) const {
    std::vector<int64_t> out;
    for (int64_t part = 0; part < parts(); ++part) {
      out.push_back(offsets[static_cast<size_t>(part * types + type)]);
    }
    return out;
  }
};

// The questions of a hop: to others, concatenated, and to this rank itself.
template <class Index>
struct Questions {
  Buffer<Index> words, own;
  std::vector<int64_t> words_to, nodes_of;  // by owner; 0 for this rank
  int64_t own_words = 0;
};

// The answers of a hop.
struct Replies {
  const int64_t* words;           // from others, concatenated
  std::vector<int64_t> words_of;  // by owner; 0 for this rank
  const int64_t* own;
  int64_t own_words;
};

// Call `ask` and `merge` in turn, once per hop each and once more for an induced subgraph, then
// `take`. Between two hops only the minibatches are kept. The maps from node to local id belong to
// the threads, are small enough for a cache, and are filled again in every hop.
//
// `Naming` is SharedNodes or, in disjoint sampling, DisjointNodes.
template <class Index, class Naming>
class Relay {
 public:
  // The nodes of `seeds`, and the ends of their excluded pairs, are ids by part. The relay keeps no
  // pointer to them. `shape` is the same on all ranks.
  Relay(Plan plan, Book book, const SeedLists& seeds, const QuestionShape& shape);

  Questions<Index> ask(int64_t threads);

  // After a fault the relay cannot go on. Throws as sample_minibatch does.
  Fault merge(const Replies& replies, int64_t threads, ObjectPool<Scratch<Index>>& scratches);

  std::vector<SampledMinibatch> take();

 private:
  using Id = std::conditional_t<Naming::kDisjoint, uint64_t, MapId<Index>>;

  struct Minibatch {
    Minibatch(const Plan& plan, const Book& book)
        : growth(static_cast<size_t>(book.types), book.relations(), plan.hops) {}

    uint64_t key = 0;
    Growth<Id, Naming> growth;
    std::vector<int64_t> latest;  // the time of each example's seed
    Seeds excluded{};             // of the seeds only the excluded pairs
    Fault fault{};                // of the answers of the hop
  };

  // The part of one owner's answer that is about one minibatch and relation.
  struct Stream {
    const void* counts;   // nodes of the whole section
    int64_t node;         // the place of the next one among them
    const char* edge;     // input edge id of the next pick
    const Index* source;  // of the next pick
  };

  using Body = Block<Index>;  // of a question that is written

  // A range of the nodes of one type.
  struct Rows {
    int64_t first, last;
    int64_t count() const { return last - first; }
  };

  int64_t count() const { return static_cast<int64_t>(minibatches_.size()); }
  size_t types() const { return static_cast<size_t>(book_.types); }
  size_t parts() const { return static_cast<size_t>(book_.parts()); }
  bool is_induced() const { return hop_ == plan_.hops; }
  size_t at(size_t minibatch, size_t owner) const { return minibatch * parts() + owner; }
  size_t at(size_t minibatch, size_t owner, size_t type) const {
    return at(minibatch, owner) * types() + type;
  }

  // Asking
  void open_hop();
  Rows frontier(size_t b, size_t type) const;
  void find_owners(size_t b);
  void measure_blocks(size_t b);
  void count_examples(size_t b);
  template <class Use>
  void each_sent(size_t b, const Use& use) const;
  template <class Use>
  void each_pair(size_t b, const Use& use) const;
  std::vector<int64_t> lay_out(Questions<Index>* out) const;
  void write_heads(size_t owner, Index* message, int64_t many, std::vector<Body>* bodies) const;
  void write_body(size_t b, const Body* bodies) const;
  void write_examples(size_t b, const Body* bodies) const;

  // Merging
  Fault read(size_t owner, const int64_t* message, int64_t words);
  Fault read_section(size_t owner, size_t relation, const int64_t* section, int64_t words, int64_t* used);
  const Stream* streams(size_t b, size_t relation) const {
    return streams_.data() + (b * book_.relations() + relation) * parts();
  }
  void grow(size_t b, std::vector<NodeMap<Id>>& local);
  void write_ends(size_t b, size_t relation);
  void fill(size_t b, size_t relation, NodeMap<Id>& local);
  void induce(size_t b);

  const Plan plan_;
  const Book book_;
  const QuestionShape shape_;
  const Naming naming_;            // of nodes of all types: ids by part are of all types
  std::vector<int64_t> excluded_;  // [5, n]
  std::vector<Minibatch> minibatches_;
  int64_t hop_ = 0;

  // Of the hop
  std::vector<AnswerShape> sections_;  // by relation
  std::vector<char> asked_;            // by type, if its nodes are asked for
  std::vector<int64_t> begins_;        // of the frontier of each minibatch and type in owner_
  Buffer<int32_t> owner_;              // of every node of the frontiers
  std::vector<int64_t> nodes_;         // asked for, by minibatch, owner and type
  std::vector<BlockSize> blocks_;      // of the questions, by minibatch and owner
  std::vector<Stream> streams_;        // by minibatch, relation and owner
};

}  // namespace pyg_batchgnn
