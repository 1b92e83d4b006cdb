// The answers of a hop become edges and nodes of the minibatches. Included by relay.cpp alone.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/relay/relay.h"

namespace pyg_batchgnn {

template <class Index, class Local, class Naming>
Fault Relay<Index, Local, Naming>::merge(const Replies& replies, int64_t threads,
                                         ObjectPool<Scratch<Index>>& scratches) {
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

// Checks an answer and finds the begin of each minibatch in each of its sections.
template <class Index, class Local, class Naming>
Fault Relay<Index, Local, Naming>::read(size_t owner, const int64_t* message, int64_t words) {
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
template <class Index, class Local, class Naming>
Fault Relay<Index, Local, Naming>::read_section(size_t owner, size_t relation, const int64_t* section,
                                                int64_t words, int64_t* used) {
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

// Grows one minibatch by one hop. Relations follow their order, and the answers that of the
// frontier, so that local ids equal those of one process.
template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::grow(size_t b, std::vector<NodeMap<Id>>& local) {
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

template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::write_ends(size_t b, size_t relation) {
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

template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::fill(size_t b, size_t relation, NodeMap<Id>& local) {
  auto& growth = minibatches_[b].growth;
  const auto type = static_cast<size_t>(book_.target[relation]);
  Nodes<Id>& sources = growth.nodes(static_cast<size_t>(book_.source[relation]));
  Edges<Local>& out = growth.edges(relation);
  const Rows rows = frontier(b, type);
  const int64_t* indptr = out.indptr();
  const int32_t* owner = owner_.data() + begins_[b * types() + type];
  sources.make_room(indptr[rows.last] - out.count());
  out.make_room(layout_, plan_.edge_ids, hop_ + 1 == plan_.hops);

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
  out.write_targets(layout_, rows.first, rows.last);
}

// Takes the edges between the nodes of a minibatch. Their sources are local ids.
template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::induce(size_t b) {
  auto& growth = minibatches_[b].growth;
  for (size_t relation = 0; relation < book_.relations(); ++relation) {
    const auto type = static_cast<size_t>(book_.target[relation]);
    const Rows rows = frontier(b, type);
    if (rows.count() == 0) continue;
    const auto known =
        static_cast<uint64_t>(growth.nodes(static_cast<size_t>(book_.source[relation])).count());
    Edges<Local>& out = growth.edges(relation) = Edges<Local>();
    write_ends(b, relation);
    out.make_room(layout_, plan_.edge_ids, true);
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
        out.next()[p] = static_cast<Local>(stream.source[p]);
      }
      if (plan_.edge_ids) copy_ids(stream.edge, edge_bytes, picks, out.edge() + out.count());
      stream.source += picks;
      stream.edge += picks * edge_bytes;
      out.append(picks);
    }
    out.write_targets(layout_, 0, rows.last);
  }
}

}  // namespace pyg_batchgnn
