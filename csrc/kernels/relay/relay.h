// The asking side of a relay: B minibatches grow together, one hop at a time, from the answers of
// owners (BatchGNN, section 3.2).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/object_pool.h"
#include "kernels/parallel.h"
#include "kernels/random.h"
#include "kernels/relay/messages.h"
#include "kernels/sample/allowed_edges.h"
#include "kernels/sample/minibatch.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// The owners of nodes, the relations, this rank's place. Ids are ordered by part, then by type.
struct Book {
  std::vector<int64_t> offsets;  // [parts * types + 1] the first ids by part and type, then their end
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

// Returns the owner of a node. `first`: the first id of the node's type in each part.
inline int32_t owner_of(int64_t node, const int64_t* first, int64_t parts) {
  constexpr int64_t kFewParts = 16;  // up to here comparisons are faster than a search
  if (parts <= kFewParts) {
    int32_t owner = 0;
    for (int64_t part = 1; part < parts; ++part) owner += node >= first[part] ? 1 : 0;
    return owner;
  }
  return static_cast<int32_t>(std::upper_bound(first + 1, first + parts, node) - first - 1);
}

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
  Relay(Plan plan, Book book, const SeedLists& seeds, const QuestionShape& shape)
      : plan_(std::move(plan)),
        book_(std::move(book)),
        shape_(shape),
        naming_(book_.num_nodes()),
        excluded_(seeds.excluded, seeds.excluded + 5 * seeds.excluded_count) {
    std::vector<int64_t> begins;
    for (int64_t b = 0; b < seeds.minibatches; ++b) {
      const Seeds own = seeds.of(b, &begins);
      Minibatch& minibatch = minibatches_.emplace_back(plan_, book_);
      minibatch.key = own.key;
      minibatch.excluded = own;
      minibatch.excluded.excluded = excluded_.data();
      const int64_t examples = read_examples(own, begins.back(), book_.num_nodes(), &minibatch.latest);
      for (size_t type = 0; type < types(); ++type) {
        const int64_t* example = Naming::kDisjoint ? own.example + begins[type] : nullptr;
        minibatch.growth.take_seeds(type, naming_, own.node + begins[type], example,
                                    begins[type + 1] - begins[type], examples * book_.num_nodes());
      }
    }
    nodes_.resize(minibatches_.size() * parts() * types());
    blocks_.resize(minibatches_.size() * parts());
  }

  Questions<Index> ask(int64_t threads) {
    open_hop();
    run_tasks(count(), threads, [&](int64_t b, int64_t) {
      find_owners(static_cast<size_t>(b));
      measure_blocks(static_cast<size_t>(b));
    });
    Questions<Index> out;
    const std::vector<int64_t> many = lay_out(&out);
    const auto me = static_cast<size_t>(book_.rank);
    std::vector<Body> bodies(minibatches_.size() * parts());
    Index* others = out.words.data();
    for (size_t owner = 0; owner < parts(); ++owner) {
      if (many[owner] > 0) write_heads(owner, owner == me ? out.own.data() : others, many[owner], &bodies);
      others += out.words_to[owner];
    }
    run_tasks(count(), threads, [&](int64_t b, int64_t) {
      const auto minibatch = static_cast<size_t>(b);
      write_body(minibatch, bodies.data() + at(minibatch, 0));
    });
    return out;
  }

  // After a fault the relay cannot go on. Throws as sample_minibatch does.
  Fault merge(const Replies& replies, int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
    streams_.assign(minibatches_.size() * book_.relations() * parts(), {});
    std::vector<const int64_t*> messages;
    std::vector<int64_t> words = replies.words_of;
    const int64_t* message = replies.words;
    for (size_t owner = 0; owner < parts(); ++owner) {
      const bool own = static_cast<int64_t>(owner) == book_.rank;
      messages.push_back(own ? replies.own : message);
      message += words[owner];
      if (own) words[owner] = replies.own_words;
    }
    std::vector<Fault> faults(parts());
    run_tasks(book_.parts(), threads, [&](int64_t task, int64_t) {
      const auto owner = static_cast<size_t>(task);
      faults[owner] = read(owner, messages[owner], words[owner]);
    });
    for (const Fault& fault : faults) {
      if (fault) return fault;
    }
    run_tasks(count(), threads, [&](int64_t b, int64_t) {
      const auto scratch = scratches.borrow();
      const auto minibatch = static_cast<size_t>(b);
      if (is_induced()) {
        induce(minibatch);
      } else {
        grow(minibatch, (*scratch).maps(naming_));
      }
    });
    ++hop_;
    for (const Minibatch& minibatch : minibatches_) {
      if (minibatch.fault) return minibatch.fault;
    }
    return {};
  }

  std::vector<SampledMinibatch> take() {
    std::vector<SampledMinibatch> sampled;
    for (Minibatch& minibatch : minibatches_) {
      for (size_t relation = 0; relation < book_.relations(); ++relation) {
        const Nodes<Id>& targets = minibatch.growth.nodes(static_cast<size_t>(book_.target[relation]));
        const bool induced = plan_.subgraph == Subgraph::kInduced;
        minibatch.growth.take_edges(relation, induced ? targets.count() : targets.first());
      }
      sampled.push_back(minibatch.growth.take([&](size_t) { return naming_; }));
    }
    return sampled;
  }

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

  // Finds out which relations are asked for, and makes room for the owners of the frontiers.
  void open_hop() {
    sections_ = answer_shapes(plan_, hop_, book_.num_edges, sizeof(Index));
    asked_.assign(types(), 0);
    for (size_t relation = 0; relation < book_.relations(); ++relation) {
      if (sections_[relation].asked) asked_[static_cast<size_t>(book_.target[relation])] = 1;
    }
    begins_.assign(minibatches_.size() * types() + 1, 0);
    for (size_t b = 0; b < minibatches_.size(); ++b) {
      for (size_t type = 0; type < types(); ++type) {
        const size_t place = b * types() + type;
        begins_[place + 1] = begins_[place] + frontier(b, type).count();
      }
    }
    owner_.reserve(begins_.back() + 1);
  }

  // Returns the rows of a type that are asked for: the frontier, or all for an induced subgraph.
  Rows frontier(size_t b, size_t type) const {
    const Nodes<Id>& nodes = minibatches_[b].growth.nodes(type);
    if (!asked_[type]) return {0, 0};
    return is_induced() ? Rows{0, nodes.count()} : Rows{nodes.first(), nodes.last()};
  }

  void find_owners(size_t b) {
    std::vector<int64_t> asked(parts());
    for (size_t type = 0; type < types(); ++type) {
      const std::vector<int64_t> first = book_.firsts(static_cast<int64_t>(type));
      const int64_t* code = minibatches_[b].growth.nodes(type).code();
      const Rows rows = frontier(b, type);
      int32_t* owner = owner_.data() + begins_[b * types() + type];
      std::fill(asked.begin(), asked.end(), 0);
      for (int64_t i = rows.first; i < rows.last; ++i) {
        const int32_t found = owner_of(naming_.target(code[i]).node, first.data(), book_.parts());
        *owner++ = found;
        ++asked[static_cast<size_t>(found)];
      }
      for (size_t part = 0; part < parts(); ++part) nodes_[at(b, part, type)] = asked[part];
    }
  }

  // Counts what each question of a minibatch holds.
  void measure_blocks(size_t b) {
    int64_t all = 0;
    for (size_t type = 0; type < types(); ++type) all += minibatches_[b].growth.nodes(type).count();
    for (size_t owner = 0; owner < parts(); ++owner) {
      const int64_t* nodes = nodes_.data() + at(b, owner, 0);
      int64_t own = 0;
      for (size_t type = 0; type < types(); ++type) own += nodes[type];
      blocks_[at(b, owner)] = {is_induced() && own > 0 ? all : own};
    }
    if constexpr (Naming::kDisjoint) count_examples(b);
    if (shape_.excluding) each_pair(b, [&](size_t owner, const auto&) { ++blocks_[at(b, owner)].pairs; });
  }

  void count_examples(size_t b) {
    const size_t examples = minibatches_[b].latest.size();
    std::vector<char> seen(parts() * examples);
    each_sent(b, [&](size_t owner, Target target) {
      char& one = seen[owner * examples + static_cast<size_t>(target.example)];
      blocks_[at(b, owner)].examples += one == 0 ? 1 : 0;
      one = 1;
    });
  }

  // Calls use(owner, node) for each node that a minibatch's questions hold, in their order. For an
  // induced subgraph every owner of a node gets all nodes, by which it filters its answers.
  template <class Use>
  void each_sent(size_t b, const Use& use) const {
    const auto& growth = minibatches_[b].growth;
    for (size_t type = 0; type < types(); ++type) {
      const int64_t* code = growth.nodes(type).code();
      if (is_induced()) {
        for (size_t owner = 0; owner < parts(); ++owner) {
          if (blocks_[at(b, owner)].nodes == 0) continue;
          for (int64_t i = 0; i < growth.nodes(type).count(); ++i) use(owner, naming_.target(code[i]));
        }
        continue;
      }
      const Rows rows = frontier(b, type);
      const int32_t* owner = owner_.data() + begins_[b * types() + type];
      for (int64_t i = rows.first; i < rows.last; ++i) {
        use(static_cast<size_t>(*owner++), naming_.target(code[i]));
      }
    }
  }

  // Calls use(owner, {place, relation, source}) for each excluded pair whose target is asked for.
  // `place`: that of the target among the nodes of the question.
  template <class Use>
  void each_pair(size_t b, const Use& use) const {
    const Minibatch& minibatch = minibatches_[b];
    std::vector<ExcludedPairs> pairs;
    for (size_t relation = 0; relation < book_.relations(); ++relation) {
      pairs.push_back(excluded_pairs(minibatch.excluded, static_cast<int64_t>(relation)));
    }
    std::vector<int64_t> sent(parts());  // nodes of each question so far
    for (size_t type = 0; type < types(); ++type) {
      const int64_t* code = minibatch.growth.nodes(type).code();
      const Rows rows = frontier(b, type);
      const int32_t* owners = owner_.data() + begins_[b * types() + type];
      for (int64_t i = rows.first; i < rows.last; ++i) {
        const auto owner = static_cast<size_t>(owners[i - rows.first]);
        const int64_t place = is_induced() ? sent[owner] + i : sent[owner]++;
        const Target target = naming_.target(code[i]);
        for (size_t relation = 0; relation < book_.relations(); ++relation) {
          if (!sections_[relation].asked || book_.target[relation] != static_cast<int64_t>(type)) continue;
          for (const auto& sources : {pairs[relation].of(target.example, target.node),
                                      pairs[relation].of(kAnyExample, target.node)}) {
            for (const int64_t* source = sources.begin; source != sources.end; ++source) {
              use(owner, std::array<int64_t, kPairWords>{place, static_cast<int64_t>(relation), *source});
            }
          }
        }
      }
      if (!is_induced()) continue;
      for (int64_t& nodes : sent) nodes += minibatch.growth.nodes(type).count();
    }
  }

  // Makes room for the questions. Returns the number of blocks for each owner.
  std::vector<int64_t> lay_out(Questions<Index>* out) const {
    std::vector<int64_t> many(parts());
    out->words_to.assign(parts(), 0);
    out->nodes_of.assign(parts(), 0);
    int64_t total = 0;
    for (size_t owner = 0; owner < parts(); ++owner) {
      int64_t words = 1;
      for (size_t b = 0; b < minibatches_.size(); ++b) {
        const BlockSize& size = blocks_[at(b, owner)];
        if (size.nodes == 0) continue;
        ++many[owner];
        words += head_words<Index>(shape_) + body_words<Index>(shape_, size);
        out->nodes_of[owner] += size.nodes;
      }
      if (many[owner] == 0) continue;
      out->words_to[owner] = words;
      total += words;
    }
    const auto me = static_cast<size_t>(book_.rank);
    out->own_words = std::exchange(out->words_to[me], 0);
    out->nodes_of[me] = 0;
    out->own.reserve(out->own_words + 1);
    out->words.reserve(total - out->own_words + 1);
    return many;
  }

  // Writes the number of blocks and the heads of a question, and finds the place of each body.
  void write_heads(size_t owner, Index* message, int64_t many, std::vector<Body>* bodies) const {
    Index* head = message + 1;
    Index* body = head + many * head_words<Index>(shape_);
    message[0] = static_cast<Index>(many);
    std::vector<int64_t> nodes(types());
    for (size_t b = 0; b < minibatches_.size(); ++b) {
      const BlockSize& size = blocks_[at(b, owner)];
      if (size.nodes == 0) continue;
      for (size_t type = 0; type < types(); ++type) {
        nodes[type] = is_induced() ? minibatches_[b].growth.nodes(type).count() : nodes_[at(b, owner, type)];
      }
      const uint64_t key = plan_.key(minibatches_[b].key, hop_);
      head = write_head<Index>(head, shape_, key, nodes.data(), size);
      (*bodies)[at(b, owner)] = Body::at(body, shape_, size);
      body += body_words<Index>(shape_, size);
    }
  }

  // `bodies`: by owner.
  void write_body(size_t b, const Body* bodies) const {
    std::vector<Index*> node, pair;
    for (size_t owner = 0; owner < parts(); ++owner) {
      node.push_back(bodies[owner].node);
      pair.push_back(bodies[owner].pair);
    }
    each_sent(b, [&](size_t owner, Target target) { *node[owner]++ = static_cast<Index>(target.node); });
    if constexpr (Naming::kDisjoint) write_examples(b, bodies);
    if (!shape_.excluding) return;
    each_pair(b, [&](size_t owner, const std::array<int64_t, kPairWords>& words) {
      for (const int64_t word : words) *pair[owner]++ = static_cast<Index>(word);
    });
  }

  // Writes each node's example, and the number and the time of each example once.
  void write_examples(size_t b, const Body* bodies) const {
    const std::vector<int64_t>& latest = minibatches_[b].latest;
    std::vector<Index> place(parts() * latest.size(), -1), known(parts());
    std::vector<Index*> next;
    for (size_t owner = 0; owner < parts(); ++owner) next.push_back(bodies[owner].example);
    each_sent(b, [&](size_t owner, Target target) {
      const auto example = static_cast<size_t>(target.example);
      Index& own = place[owner * latest.size() + example];
      if (own < 0) {
        own = known[owner]++;
        bodies[owner].number[own] = static_cast<Index>(example);
        if (shape_.timed) {
          std::memcpy(bodies[owner].time + own * kLongWords<Index>, &latest[example], sizeof(int64_t));
        }
      }
      *next[owner]++ = own;
    });
  }

  // Merging

  // Checks an answer and finds the begin of each minibatch in each of its sections.
  Fault read(size_t owner, const int64_t* message, int64_t words) {
    int64_t used = 0;
    for (size_t relation = 0; relation < book_.relations(); ++relation) {
      if (!sections_[relation].asked) continue;
      const Fault fault = read_section(owner, relation, message + used, words - used, &used);
      if (fault.error == WireError::kLength) return {fault.error, fault.peer, words};
      if (fault) return fault;
    }
    if (used != words) return {WireError::kLength, static_cast<int64_t>(owner), words};
    return {};
  }

  // Reads one section, of at most `words` words, and adds its words to `used`.
  Fault read_section(size_t owner, size_t relation, const int64_t* section, int64_t words, int64_t* used) {
    const AnswerShape& shape = sections_[relation];
    const auto type = static_cast<size_t>(book_.target[relation]);
    const auto peer = static_cast<int64_t>(owner);
    int64_t nodes = 0;
    for (size_t b = 0; b < minibatches_.size(); ++b) nodes += nodes_[at(b, owner, type)];
    if (words < shape.edges_at(nodes)) return {WireError::kLength, peer, words};
    std::vector<int64_t> before(minibatches_.size() + 1);  // picks
    int64_t node = 0;
    for (size_t b = 0; b < minibatches_.size(); ++b) {
      uint64_t sum = 0, highest = 0;  // the sum may wrap around if `highest` is a fault
      for (const int64_t end = node + nodes_[at(b, owner, type)]; node < end; ++node) {
        const uint64_t picks = shape.read_count(section, node);
        sum += picks;
        highest = std::max(highest, picks);
      }
      if (highest > static_cast<uint64_t>(shape.most)) {
        return {WireError::kPicks, peer, static_cast<int64_t>(highest)};
      }
      before[b + 1] = before[b] + static_cast<int64_t>(sum);
    }
    const int64_t picks = before.back(), whole = shape.words(nodes, picks);
    if (words < whole) return {WireError::kLength, peer, words};
    *used += whole;
    const auto* edges = reinterpret_cast<const char*>(section + shape.edges_at(nodes));
    const auto* sources = reinterpret_cast<const Index*>(section + shape.sources_at(nodes, picks));
    node = 0;
    for (size_t b = 0; b < minibatches_.size(); ++b) {
      streams_[(b * book_.relations() + relation) * parts() + owner] = {
          section, node, edges + before[b] * shape.edge_bytes, sources + before[b]};
      node += nodes_[at(b, owner, type)];
    }
    return {};
  }

  const Stream* streams(size_t b, size_t relation) const {
    return streams_.data() + (b * book_.relations() + relation) * parts();
  }

  // Grows one minibatch by one hop. Relations follow their order, and the answers that of the
  // frontier, so that local ids equal those of one process.
  void grow(size_t b, std::vector<NodeMap<Id>>& local) {
    auto& growth = minibatches_[b].growth;
    if (local.size() < types()) local.resize(types());
    std::vector<char> entered(types());
    for (size_t relation = 0; relation < book_.relations(); ++relation) {
      const auto target = static_cast<size_t>(book_.target[relation]);
      const auto source = static_cast<size_t>(book_.source[relation]);
      if (!sections_[relation].asked || frontier(b, target).count() == 0) continue;
      if (!entered[source]) growth.nodes(source).enter(local[source]);
      entered[source] = 1;
      const int64_t before = growth.edges(relation).count();
      write_ends(b, relation);
      fill(b, relation, local[source]);
      growth.count_edges(relation, hop_, growth.edges(relation).count() - before);
    }
    growth.close_hop(hop_);
  }

  void write_ends(size_t b, size_t relation) {
    const auto type = static_cast<size_t>(book_.target[relation]);
    const Rows rows = frontier(b, type);
    const int32_t* owner = owner_.data() + begins_[b * types() + type];
    const Stream* of = streams(b, relation);
    std::vector<int64_t> node;
    for (size_t part = 0; part < parts(); ++part) node.push_back(of[part].node);
    int64_t* indptr = minibatches_[b].growth.edges(relation).open_hop(rows.first, rows.last);
    int64_t total = indptr[rows.first];
    for (int64_t i = rows.first; i < rows.last; ++i) {
      const auto from = static_cast<size_t>(owner[i - rows.first]);
      total += static_cast<int64_t>(sections_[relation].read_count(of[from].counts, node[from]++));
      indptr[i + 1] = total;
    }
  }

  void fill(size_t b, size_t relation, NodeMap<Id>& local) {
    auto& growth = minibatches_[b].growth;
    const auto type = static_cast<size_t>(book_.target[relation]);
    Nodes<Id>& sources = growth.nodes(static_cast<size_t>(book_.source[relation]));
    Edges& out = growth.edges(relation);
    const Rows rows = frontier(b, type);
    const int64_t* indptr = out.indptr();
    const int32_t* owner = owner_.data() + begins_[b * types() + type];
    sources.make_room(indptr[rows.last] - out.count());
    out.make_room(plan_.edge_ids, hop_ + 1 == plan_.hops);

    const Stream* first = streams(b, relation);
    std::vector<Stream> from(first, first + parts());
    const int64_t* code = growth.nodes(type).code();
    const auto num_nodes = static_cast<uint64_t>(book_.num_nodes());
    const int64_t edge_bytes = sections_[relation].edge_bytes;
    int64_t* edge = plan_.edge_ids ? out.edge() + out.count() : nullptr;
    Id source[kBlock];
    int64_t held = 0;
    sources.prepare(local, kBlock);
    for (int64_t i = rows.first; i < rows.last; ++i) {
      const int32_t part = owner[i - rows.first];
      Stream& stream = from[static_cast<size_t>(part)];
      const int64_t picks = indptr[i + 1] - indptr[i];
      Id offset = 0;
      if constexpr (Naming::kDisjoint) {
        offset = static_cast<Id>(naming_.code({0, naming_.target(code[i]).example}));
      }
      for (int64_t p = 0; p < picks; ++p) {
        auto id = static_cast<Id>(stream.source[p]);
        if (id >= num_nodes) [[unlikely]] {  // the fault is reported; any valid node serves here
          minibatches_[b].fault = {WireError::kSource, part, static_cast<int64_t>(stream.source[p])};
          id = 0;
        }
        id += offset;
        local.prefetch(id);
        source[held++] = id;
        if (held == kBlock) {
          sources.relabel(local, source, held, out.next());
          out.append(held);
          held = 0;
          sources.prepare(local, kBlock);
        }
      }
      stream.source += picks;
      if (edge != nullptr) {
        copy_ids(stream.edge, edge_bytes, picks, edge);
        edge += picks;
        stream.edge += picks * edge_bytes;
      }
    }
    sources.relabel(local, source, held, out.next());
    out.append(held);
  }

  // Takes the edges between the nodes of a minibatch. Their sources are local ids.
  void induce(size_t b) {
    auto& growth = minibatches_[b].growth;
    for (size_t relation = 0; relation < book_.relations(); ++relation) {
      const auto type = static_cast<size_t>(book_.target[relation]);
      const Rows rows = frontier(b, type);
      if (rows.count() == 0) continue;
      const auto known =
          static_cast<uint64_t>(growth.nodes(static_cast<size_t>(book_.source[relation])).count());
      Edges& out = growth.edges(relation) = Edges();
      write_ends(b, relation);
      out.make_room(plan_.edge_ids, true);
      const Stream* first = streams(b, relation);
      std::vector<Stream> from(first, first + parts());
      const int32_t* owner = owner_.data() + begins_[b * types() + type];
      const int64_t edge_bytes = sections_[relation].edge_bytes;
      for (int64_t i = 0; i < rows.last; ++i) {
        Stream& stream = from[static_cast<size_t>(owner[i])];
        const int64_t picks = out.indptr()[i + 1] - out.indptr()[i];
        for (int64_t p = 0; p < picks; ++p) {
          if (static_cast<uint64_t>(stream.source[p]) >= known) [[unlikely]] {
            minibatches_[b].fault = {WireError::kSource, owner[i], static_cast<int64_t>(stream.source[p])};
          }
          out.next()[p] = static_cast<int32_t>(stream.source[p]);
        }
        if (plan_.edge_ids) copy_ids(stream.edge, edge_bytes, picks, out.edge() + out.count());
        stream.source += picks;
        stream.edge += picks * edge_bytes;
        out.append(picks);
      }
    }
  }

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
