#include "kernels/relay/relay.h"

#include <algorithm>
#include <utility>

#include "kernels/parallel.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kFewParts = 16;  // up to here comparisons are faster than a search

int32_t owner_of(int64_t node, const int64_t* offsets, int64_t parts) {
  if (parts <= kFewParts) {
    int32_t owner = 0;
    for (int64_t part = 1; part < parts; ++part) owner += node >= offsets[part] ? 1 : 0;
    return owner;
  }
  return static_cast<int32_t>(std::upper_bound(offsets, offsets + parts, node) - offsets - 1);
}

}  // namespace

template <class Index, class Local>
struct Relay<Index, Local>::Stream {
  const void* counts;   // nodes of the whole message
  int64_t node;         // the position of the next one among them
  const void* edge;     // input edge id of the next pick
  const Index* source;  // of the next pick
};

template <class Index, class Local>
Relay<Index, Local>::Relay(Plan plan, Layout layout, Book book, const SeedLists& seeds)
    : plan_(std::move(plan)), book_(std::move(book)), begins_(static_cast<size_t>(seeds.minibatches) + 1) {
  for (int64_t b = 0; b < seeds.minibatches; ++b) {
    const int64_t first = seeds.ptr[b], count = seeds.ptr[b + 1] - first;
    keys_.push_back(minibatch_key(seeds.original + first, count));
    growths_.emplace_back(layout, plan_.edge_ids, book_.num_nodes());
    growths_.back().take_seeds(seeds.node + first, count);
  }
  nodes_.resize(at(minibatches(), 0));
  picks_.resize(nodes_.size());
}

// Asking
// #############################################################################################

template <class Index, class Local>
Questions<Index> Relay<Index, Local>::ask(int64_t threads) {
  for (int64_t b = 0; b < minibatches(); ++b) {
    const auto& growth = growths_[static_cast<size_t>(b)];
    begins_[static_cast<size_t>(b) + 1] = begins_[static_cast<size_t>(b)] + growth.last() - growth.first();
  }
  owner_.reserve(begins_.back() + 1);
  run_tasks(minibatches(), threads, [&](int64_t b, int64_t) { find_owners(b); });

  Questions<Index> out;
  const auto parts = static_cast<size_t>(book_.parts());
  std::vector<int64_t> blocks(parts), nodes(parts), words(parts);
  int64_t total = 0;
  for (size_t owner = 0; owner < parts; ++owner) {
    for (int64_t b = 0; b < minibatches(); ++b) {
      const int64_t asked = nodes_[at(b, static_cast<int64_t>(owner))];
      blocks[owner] += asked > 0 ? 1 : 0;
      nodes[owner] += asked;
    }
    words[owner] = request_words<Index>(blocks[owner], nodes[owner]);
    if (static_cast<int64_t>(owner) != book_.rank) total += words[owner];
  }
  const auto me = static_cast<size_t>(book_.rank);
  out.own_words = words[me];
  Index* own = out.own.reserve(words[me] + 1);
  Index* others = out.words.reserve(total + 1);

  // Writes the heads, then the nodes of each minibatch.
  std::vector<Index*> to(nodes_.size());
  for (size_t owner = 0; owner < parts; ++owner) {
    Index* message = owner == me ? own : others;
    if (words[owner] > 0) {
      Index* head = message + 1;
      Index* node = head + blocks[owner] * kBlockWords<Index>;
      message[0] = static_cast<Index>(blocks[owner]);
      for (int64_t b = 0; b < minibatches(); ++b) {
        const size_t place = at(b, static_cast<int64_t>(owner));
        to[place] = node;
        if (nodes_[place] == 0) continue;
        const uint64_t key =
            fold(fold(epoch_key(plan_.seed, plan_.epoch), keys_[static_cast<size_t>(b)]), hop_);
        head = write_block(head, key, nodes_[place]);
        node += nodes_[place];
      }
    }
    if (owner != me) others += words[owner];
  }
  run_tasks(minibatches(), threads, [&](int64_t b, int64_t) { write_nodes(b, to); });

  words[me] = nodes[me] = 0;
  out.words_to = std::move(words);
  out.nodes_of = std::move(nodes);
  return out;
}

template <class Index, class Local>
void Relay<Index, Local>::find_owners(int64_t minibatch) {
  const auto& growth = growths_[static_cast<size_t>(minibatch)];
  const int64_t* node = growth.node();
  int32_t* owner = owner_.data() + begins_[static_cast<size_t>(minibatch)];
  std::vector<int64_t> asked(static_cast<size_t>(book_.parts()));
  for (int64_t i = growth.first(); i < growth.last(); ++i) {
    const int32_t found = owner_of(node[i], book_.offsets.data(), book_.parts());
    *owner++ = found;
    ++asked[static_cast<size_t>(found)];
  }
  std::copy(asked.begin(), asked.end(), nodes_.begin() + static_cast<std::ptrdiff_t>(at(minibatch, 0)));
}

template <class Index, class Local>
void Relay<Index, Local>::write_nodes(int64_t minibatch, const std::vector<Index*>& to) const {
  const auto& growth = growths_[static_cast<size_t>(minibatch)];
  const int64_t* node = growth.node();
  const int32_t* owner = owner_.data() + begins_[static_cast<size_t>(minibatch)];
  const auto mine = to.begin() + static_cast<std::ptrdiff_t>(at(minibatch, 0));
  std::vector<Index*> next(mine, mine + book_.parts());
  for (int64_t i = growth.first(); i < growth.last(); ++i) {
    *next[static_cast<size_t>(*owner++)]++ = static_cast<Index>(node[i]);
  }
}

// Merging
// ############################################################################################

template <class Index, class Local>
Fault Relay<Index, Local>::merge(const Replies& replies, int64_t threads,
                                 ObjectPool<Scratch<Index>>& scratches) {
  const AnswerShape shape(fanout(), book_.num_edges, plan_.edge_ids, sizeof(Index));
  std::vector<const int64_t*> messages;
  std::vector<int64_t> words = replies.words_of;
  const int64_t* message = replies.words;
  for (int64_t owner = 0; owner < book_.parts(); ++owner) {
    const auto o = static_cast<size_t>(owner);
    messages.push_back(owner == book_.rank ? replies.own : message);
    message += words[o];
    if (owner == book_.rank) words[o] = replies.own_words;
  }
  if (const Fault fault = count(messages, words, shape, threads)) return fault;
  const std::vector<std::vector<Stream>> all = streams(messages, shape);
  faults_.assign(growths_.size(), Fault{});
  run_tasks(minibatches(), threads, [&](int64_t b, int64_t) {
    const auto scratch = scratches.borrow();
    const std::vector<Stream>& mine = all[static_cast<size_t>(b)];
    write_ends(b, mine, shape);
    if (shape.edge_bytes == 4) {
      grow<int32_t>(b, mine, (*scratch).local.front());
    } else {
      grow<int64_t>(b, mine, (*scratch).local.front());
    }
  });
  ++hop_;
  return foreign_source();
}

// Counts the picks of each owner for each minibatch, and checks that its message has room for them.
template <class Index, class Local>
Fault Relay<Index, Local>::count(const std::vector<const int64_t*>& messages,
                                 const std::vector<int64_t>& words, const AnswerShape& shape,
                                 int64_t threads) {
  const int64_t parts = book_.parts();
  std::vector<int64_t> nodes(messages.size()), picks(messages.size());
  std::vector<int64_t> before(nodes_.size());  // nodes of the message of the owner
  std::vector<uint64_t> most(nodes_.size());
  for (int64_t o = 0; o < parts; ++o) {
    int64_t& asked = nodes[static_cast<size_t>(o)];
    for (int64_t b = 0; b < minibatches(); ++b) {
      before[at(b, o)] = asked;
      asked += nodes_[at(b, o)];
    }
    const int64_t came = words[static_cast<size_t>(o)];
    if (came < shape.edges_at(asked)) return {WireError::kLength, o, came};
  }
  run_tasks(minibatches(), threads, [&](int64_t b, int64_t) {
    for (int64_t o = 0; o < parts; ++o) {
      const size_t place = at(b, o);
      uint64_t sum = 0, highest = 0;  // the sum may wrap around if `highest` is a fault
      for (int64_t i = before[place]; i < before[place] + nodes_[place]; ++i) {
        const uint64_t picks_of_node = shape.read_count(messages[static_cast<size_t>(o)], i);
        sum += picks_of_node;
        highest = std::max(highest, picks_of_node);
      }
      picks_[place] = static_cast<int64_t>(sum);
      most[place] = highest;
    }
  });
  for (int64_t o = 0; o < parts; ++o) {
    for (int64_t b = 0; b < minibatches(); ++b) {
      const uint64_t highest = most[at(b, o)];
      if (highest > static_cast<uint64_t>(shape.most)) {
        return {WireError::kPicks, o, static_cast<int64_t>(highest)};
      }
      picks[static_cast<size_t>(o)] += picks_[at(b, o)];
    }
    const auto part = static_cast<size_t>(o);
    if (words[part] != shape.words(nodes[part], picks[part])) return {WireError::kLength, o, words[part]};
  }
  return {};
}

// Finds the begin of each minibatch in each answer.
template <class Index, class Local>
auto Relay<Index, Local>::streams(const std::vector<const int64_t*>& messages, const AnswerShape& shape) const
    -> std::vector<std::vector<Stream>> {
  std::vector<std::vector<Stream>> out(growths_.size());
  for (int64_t o = 0; o < book_.parts(); ++o) {
    int64_t nodes = 0, picks = 0;
    for (int64_t b = 0; b < minibatches(); ++b) {
      nodes += nodes_[at(b, o)];
      picks += picks_[at(b, o)];
    }
    const int64_t* message = messages[static_cast<size_t>(o)];
    const auto* edges = reinterpret_cast<const char*>(message + shape.edges_at(nodes));
    const auto* sources = reinterpret_cast<const Index*>(message + shape.sources_at(nodes, picks));
    int64_t node = 0;
    for (int64_t b = 0; b < minibatches(); ++b) {
      out[static_cast<size_t>(b)].push_back({message, node, edges, sources});
      node += nodes_[at(b, o)];
      edges += picks_[at(b, o)] * shape.edge_bytes;
      sources += picks_[at(b, o)];
    }
  }
  return out;
}

template <class Index, class Local>
void Relay<Index, Local>::write_ends(int64_t minibatch, const std::vector<Stream>& streams,
                                     const AnswerShape& shape) {
  auto& growth = growths_[static_cast<size_t>(minibatch)];
  const int64_t first = growth.first(), last = growth.last();
  const int32_t* owner = owner_.data() + begins_[static_cast<size_t>(minibatch)];
  std::vector<int64_t> node;
  for (const Stream& stream : streams) node.push_back(stream.node);
  int64_t* indptr = growth.open_hop();
  int64_t total = indptr[first];
  for (int64_t i = first; i < last; ++i) {
    const auto from = static_cast<size_t>(owner[i - first]);
    total += static_cast<int64_t>(shape.read_count(streams[from].counts, node[from]++));
    indptr[i + 1] = total;
  }
}

// Grows one minibatch by one hop. Answers are read in the order of the frontier, so that local ids
// equal those of one process.
template <class Index, class Local>
template <class EdgeId>
void Relay<Index, Local>::grow(int64_t minibatch, std::vector<Stream> streams, NodeMap<Id>& local) {
  auto& growth = growths_[static_cast<size_t>(minibatch)];
  const int64_t first = growth.first(), last = growth.last();
  const int64_t* indptr = growth.indptr();
  const int32_t* owner = owner_.data() + begins_[static_cast<size_t>(minibatch)];
  growth.make_room(hop_ + 1 == plan_.fanouts.size());
  growth.enter(local);

  const auto num_nodes = static_cast<uint64_t>(book_.num_nodes());
  Fault* fault = &faults_[static_cast<size_t>(minibatch)];
  int64_t* edge = plan_.edge_ids ? growth.edge() + indptr[first] : nullptr;
  Id source[kBlock];
  int64_t held = 0;
  growth.prepare(local, kBlock);
  for (int64_t i = first; i < last; ++i) {
    const int32_t from = owner[i - first];
    Stream& stream = streams[static_cast<size_t>(from)];
    const int64_t picks = indptr[i + 1] - indptr[i];
    for (int64_t p = 0; p < picks; ++p) {
      auto id = static_cast<Id>(stream.source[p]);
      if (id >= num_nodes) [[unlikely]] {  // the fault is reported; any valid node serves here
        *fault = {WireError::kSource, from, static_cast<int64_t>(stream.source[p])};
        id = 0;
      }
      local.prefetch(id);
      source[held++] = id;
      if (held == kBlock) {
        growth.relabel(local, source, held);
        held = 0;
        growth.prepare(local, kBlock);
      }
    }
    stream.source += picks;
    if (edge != nullptr) {
      const auto* ids = static_cast<const EdgeId*>(stream.edge);
      for (int64_t p = 0; p < picks; ++p) edge[p] = static_cast<int64_t>(ids[p]);
      edge += picks;
      stream.edge = ids + picks;
    }
  }
  growth.relabel(local, source, held);
  growth.write_destinations(first, last);
  growth.close_hop();
}

template <class Index, class Local>
Fault Relay<Index, Local>::foreign_source() const {
  for (const Fault& fault : faults_) {
    if (fault) return fault;
  }
  return {};
}

template <class Index, class Local>
std::vector<Sampled<Local>> Relay<Index, Local>::take() {
  std::vector<Sampled<Local>> sampled;
  for (auto& growth : growths_) sampled.push_back(growth.take());
  return sampled;
}

template class Relay<int32_t, int32_t>;
template class Relay<int32_t, int64_t>;
template class Relay<int64_t, int32_t>;
template class Relay<int64_t, int64_t>;

}  // namespace pyg_batchgnn
