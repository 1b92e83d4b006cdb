// The asking side of a relay: B minibatches that grow together, a hop at a time, from what owners answer
// (BatchGNN, section 3.2).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/growth.h"
#include "kernels/object_pool.h"
#include "kernels/relay/wire.h"
#include "kernels/sample.h"

namespace pyg_batchgnn {

// Who owns what, as one rank sees it.
struct Book {
  std::vector<int64_t> offsets;  // [parts + 1] first id of every part, then the number of nodes
  int64_t rank;                  // the part that is here
  int64_t num_edges;             // of the whole graph

  int64_t parts() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_nodes() const { return offsets.back(); }
};

// Seed nodes of all minibatches, one behind the other.
struct SeedLists {
  const int64_t* node;      // ids by part, in [0, num_nodes)
  const int64_t* original;  // what the users call them: the minibatches' keys are made of these
  const int64_t* ptr;       // [minibatches + 1]
  int64_t minibatches;
};

// What a hop asks: of others, message behind message, and of this rank itself.
template <class Index>
struct Questions {
  Buffer<Index> words, own;
  std::vector<int64_t> words_to, nodes_of;  // by owner; nothing for this rank itself
  int64_t own_words = 0;
};

// A hop's answers.
struct Replies {
  const int64_t* words;           // from others, message behind message
  std::vector<int64_t> words_of;  // by owner; nothing from this rank itself
  const int64_t* own;
  int64_t own_words;
};

// `ask` and `merge` by turns, once a hop each, then `take`. Between two hops nothing is kept but the
// minibatches themselves: the maps from node to local id belong to the threads, are small enough for a cache,
// and are filled anew.
template <class Index, class Local>
class Relay {
 public:
  Relay(Plan plan, Layout layout, Book book, const SeedLists& seeds);

  Questions<Index> ask(int64_t threads);

  // Where a fault is returned, the relay cannot go on. Throws as sample_minibatch does.
  Fault merge(const Replies& replies, int64_t threads, ObjectPool<Scratch<Index>>& scratches);

  std::vector<Sampled<Local>> take();

 private:
  using Id = MapId<Index>;

  struct Stream;  // what one owner's answer holds for one minibatch

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
