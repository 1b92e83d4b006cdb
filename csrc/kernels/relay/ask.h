// The questions of a hop: who is asked for what. Included by relay.cpp alone.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/parallel.h"
#include "kernels/random.h"
#include "kernels/relay/relay.h"

namespace pyg_batchgnn {

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

template <class Index, class Local, class Naming>
Questions<Index> Relay<Index, Local, Naming>::ask(int64_t threads) {
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

// Finds out which relations are asked for, and makes room for the owners of the frontiers.
template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::open_hop() {
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
template <class Index, class Local, class Naming>
auto Relay<Index, Local, Naming>::frontier(size_t b, size_t type) const -> Rows {
  const Nodes<Id>& nodes = minibatches_[b].growth.nodes(type);
  if (!asked_[type]) return {0, 0};
  return is_induced() ? Rows{0, nodes.count()} : Rows{nodes.first(), nodes.last()};
}

template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::find_owners(size_t b) {
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
template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::measure_blocks(size_t b) {
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

template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::count_examples(size_t b) {
  const size_t examples = minibatches_[b].latest.size();
  std::vector<char> seen(parts() * examples);
  each_sent(b, [&](size_t owner, Target target) {
    char& one = seen[owner * examples + static_cast<size_t>(target.example)];
    blocks_[at(b, owner)].examples += one == 0 ? 1 : 0;
    one = 1;
  });
}

// Makes room for the questions. Returns the number of blocks for each owner.
template <class Index, class Local, class Naming>
std::vector<int64_t> Relay<Index, Local, Naming>::lay_out(Questions<Index>* out) const {
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
template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::write_heads(size_t owner, Index* message, int64_t many,
                                              std::vector<Body>* bodies) const {
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
    const uint64_t key = hop_key(plan_.seed, plan_.epoch, minibatches_[b].key, static_cast<uint64_t>(hop_));
    head = write_head<Index>(head, shape_, key, nodes.data(), size);
    (*bodies)[at(b, owner)] = Body::at(body, shape_, size);
    body += body_words<Index>(shape_, size);
  }
}

}  // namespace pyg_batchgnn
