// The bodies of the questions of a hop. Included by relay.cpp alone.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "kernels/relay/relay.h"
#include "kernels/sample/exclusion.h"

namespace pyg_batchgnn {

// Calls use(owner, node) for each node that a minibatch's questions hold, in their order. For an
// induced subgraph every owner of a node gets all nodes, by which it filters its answers.
template <class Index, class Local, class Naming>
template <class Use>
void Relay<Index, Local, Naming>::each_sent(size_t b, const Use& use) const {
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
template <class Index, class Local, class Naming>
template <class Use>
void Relay<Index, Local, Naming>::each_pair(size_t b, const Use& use) const {
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

// `bodies`: by owner.
template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::write_body(size_t b, const Body* bodies) const {
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
template <class Index, class Local, class Naming>
void Relay<Index, Local, Naming>::write_examples(size_t b, const Body* bodies) const {
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

}  // namespace pyg_batchgnn
