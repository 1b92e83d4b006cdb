// The asking side of a relay: B minibatches grow together, one hop at a time, from the answers of
// owners (BatchGNN, section 3.2).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/object_pool.h"
#include "kernels/relay/wire.h"
#include "kernels/sample/growth.h"
#include "kernels/sample/sample.h"

namespace pyg_batchgnn {

// The owners of the nodes, and the place of this rank.
struct Book {
  std::vector<int64_t> offsets;  // [parts + 1] the first id of every part, then the number of nodes
  int64_t rank;                  // the part of this rank
  int64_t num_edges;             // of the whole graph

  int64_t parts() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_nodes() const { return offsets.back(); }
};

// The seed nodes of all minibatches, concatenated.
struct SeedLists {
  const int64_t* node;      // ids by part, in [0, num_nodes)
  const int64_t* original;  // original ids, for the keys of minibatches
  const int64_t* ptr;       // [minibatches + 1]
  int64_t minibatches;
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

// Call `ask` and `merge` in turn, once per hop each, then `take`. Between two hops only the
// minibatches are kept. The maps from node to local id belong to the threads, are small enough for
// a cache, and are filled again in every hop.
template <class Index, class Local>
class Relay {
 public:
  Relay(Plan plan, Layout layout, Book book, const SeedLists& seeds);

  Questions<Index> ask(int64_t threads);

  // After a fault the relay cannot go on. Throws as sample_minibatch does.
  Fault merge(const Replies& replies, int64_t threads, ObjectPool<Scratch<Index>>& scratches);

  std::vector<Sampled<Local>> take();

 private:
  using Id = MapId<Index>;

  struct Stream;  // the part of one owner's answer for one minibatch

  int64_t minibatches() const { return static_cast<int64_t>(growths_.size()); }
  size_t at(int64_t minibatch, int64_t owner) const {
    return static_cast<size_t>(minibatch * book_.parts() + owner);
  }
  int64_t fanout() const { return plan_.fanouts[hop_]; }
  void find_owners(int64_t minibatch);
  void write_nodes(int64_t minibatch, const std::vector<Index*>& to) const;
  Fault count(const std::vector<const int64_t*>& messages, const std::vector<int64_t>& words,
              const AnswerShape& shape, int64_t threads);
  std::vector<std::vector<Stream>> streams(const std::vector<const int64_t*>& messages,
                                           const AnswerShape& shape) const;
  void write_ends(int64_t minibatch, const std::vector<Stream>& streams, const AnswerShape& shape);
  template <class EdgeId>
  void grow(int64_t minibatch, std::vector<Stream> streams, NodeMap<Id>& local);
  Fault foreign_source() const;

  const Plan plan_;
  const Book book_;
  size_t hop_ = 0;
  std::vector<uint64_t> keys_;                 // of the minibatches
  std::vector<Growth<Index, Local>> growths_;  // the minibatches
  std::vector<int64_t> begins_;                // of each minibatch's frontier in owner_
  Buffer<int32_t> owner_;                      // of every node of the hop's frontiers
  std::vector<int64_t> nodes_, picks_;         // asked and answered, by minibatch and owner
  std::vector<Fault> faults_;                  // by minibatch
};

}  // namespace pyg_batchgnn
