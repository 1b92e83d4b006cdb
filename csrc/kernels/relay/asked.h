// The questions to an owner, read and checked.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/relay/answer.h"
#include "kernels/sample/exclusion.h"
#include "kernels/sample/naming.h"

namespace pyg_batchgnn {

// The excluded pairs of one relation: examples by their place in the block, targets by row.
struct PairColumns {
  std::vector<int64_t> example, target, source;

  ExcludedPairs pairs() const {
    return {example.data(), target.data(), source.data(), static_cast<int64_t>(source.size())};
  }
};

// Some nodes of one type in a block.
template <class Index>
struct AskedNodes {
  const Index* node;
  const Index* place;   // of the example of each node among those of the block; null: none
  const Index* number;  // of the examples
  int64_t first;        // the first own id of the type

  // Returns a node as a row of its type. It may be any number if the asking rank is wrong.
  Target target(int64_t i) const { return {static_cast<int64_t>(node[i]) - first, example(i)}; }
  int64_t example(int64_t i) const { return place == nullptr ? 0 : static_cast<int64_t>(place[i]); }

  uint64_t key(uint64_t relation_key, int64_t i, int64_t original) const {
    const uint64_t key = fold(relation_key, static_cast<uint64_t>(original));
    return place == nullptr ? key : fold(key, static_cast<uint64_t>(number[place[i]]));
  }
};

// The question of one minibatch.
template <class Index>
struct AskedBlock {
  ReadBlock<Index> block;
  size_t peer;                        // the asking rank
  std::vector<int64_t> begins;        // [types + 1] of each type among the nodes
  std::vector<int64_t> latest;        // the time of the seed of each example
  std::vector<PairColumns> excluded;  // by relation; empty if there are none

  // Returns the nodes from the i-th on. `first`: the first own id of their type.
  AskedNodes<Index> nodes(int64_t i, int64_t first) const {
    const Index* place = block.body.example;
    return {block.body.node + i, place == nullptr ? nullptr : place + i, block.body.number, first};
  }

  ExcludedPairs pairs(size_t relation) const {
    return excluded.empty() ? ExcludedPairs() : excluded[relation].pairs();
  }
};

// Fills in the columns of a block beside its nodes. `first`: the first own id of each type. Returns
// false if they are about nodes, examples or relations that the block or the graph does not have.
template <class Index>
bool read_columns(const OwnPart<Index>& part, const QuestionShape& shape, const std::vector<int64_t>& first,
                  AskedBlock<Index>* asked) {
  const BlockSize& size = asked->block.size;
  const Block<const Index>& body = asked->block.body;
  asked->begins = {0};
  for (int64_t type = 0; type < shape.types; ++type) {
    asked->begins.push_back(asked->begins.back() + asked->block.nodes_of[type]);
  }
  if (shape.disjoint && !std::all_of(body.example, body.example + size.nodes, [&](Index example) {
        return 0 <= example && example < size.examples;
      })) {
    return false;
  }
  if (shape.timed) {
    asked->latest.resize(static_cast<size_t>(size.examples));
    std::memcpy(asked->latest.data(), body.time, asked->latest.size() * sizeof(int64_t));
  }
  if (size.pairs == 0) return true;
  std::vector<std::array<int64_t, 4>> rows;  // relation, example, target, source
  for (int64_t p = 0; p < size.pairs; ++p) {
    const Index* words = body.pair + p * kPairWords;
    const auto relations = static_cast<Index>(part.graph.relations.size());
    if (words[0] < 0 || words[0] >= size.nodes || words[1] < 0 || words[1] >= relations) return false;
    const int64_t type = part.graph.relations[static_cast<size_t>(words[1])].target;
    const Target target = asked->nodes(words[0], first[static_cast<size_t>(type)]).target(0);
    rows.push_back({words[1], target.example, target.node, words[2]});
  }
  std::sort(rows.begin(), rows.end());
  asked->excluded.resize(part.graph.relations.size());
  for (const auto& [relation, example, target, source] : rows) {
    PairColumns& columns = asked->excluded[static_cast<size_t>(relation)];
    columns.example.push_back(example);
    columns.target.push_back(target);
    columns.source.push_back(source);
  }
  return true;
}

// Reads all questions. Sets the fault of the first that is wrong.
template <class Index>
std::vector<AskedBlock<Index>> read_questions(const OwnPart<Index>& part, const Requests<Index>& requests,
                                              Fault* fault) {
  std::vector<AskedBlock<Index>> asked;
  std::vector<ReadBlock<Index>> blocks;
  const std::vector<int64_t> first = part.firsts();
  const Index* words = requests.words;
  for (size_t peer = 0; peer < requests.words_of.size(); ++peer) {
    const int64_t many = requests.words_of[peer];
    blocks.clear();
    bool right = read_blocks(words, many, requests.shape, &blocks);
    for (size_t b = 0; right && b < blocks.size(); ++b) {
      asked.push_back({blocks[b], peer, {}, {}, {}});
      right = read_columns(part, requests.shape, first, &asked.back());
    }
    if (!right) {
      *fault = {WireError::kBlocks, static_cast<int64_t>(peer), many};
      break;
    }
    words += many;
  }
  return asked;
}

}  // namespace pyg_batchgnn
