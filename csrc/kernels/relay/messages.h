// The question of one rank to another in one hop of a relay.
//
// In words of the type of node ids: the number of blocks, the heads of all blocks, their bodies. A
// block is the question of one minibatch to one owner.
//
//   head  its key (64 bits, low word first); the number of nodes of each type; the number of
//         examples; the number of excluded pairs
//   body  the nodes, by type; the place of each node's example among those of the block; the
//         numbers of these examples; the times of their seeds (64 bits each); the excluded pairs,
//         each with the place of its target among the nodes, its relation and its source
//
// Examples, times and pairs are left out where the sampler has none. The key is that of the hop of
// the minibatch, so that the owner needs no other information about it. Each excluded pair travels
// with the question in which its target is asked for. An empty question has no words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// The form of all questions of a sampler.
struct QuestionShape {
  int64_t types;
  bool disjoint;   // nodes have examples
  bool timed;      // examples have times; only if disjoint
  bool excluding;  // there may be excluded pairs
};

// The numbers of a block.
struct BlockSize {
  int64_t nodes = 0, examples = 0, pairs = 0;
};

template <class Index>
constexpr int64_t kLongWords = static_cast<int64_t>(sizeof(uint64_t) / sizeof(Index));  // of 64 bits
constexpr int64_t kPairWords = 3;

template <class Index>
int64_t head_words(const QuestionShape& shape) {
  return kLongWords<Index> + shape.types + (shape.disjoint ? 1 : 0) + (shape.excluding ? 1 : 0);
}

template <class Index>
int64_t body_words(const QuestionShape& shape, const BlockSize& size) {
  int64_t words = size.nodes;
  if (shape.disjoint) words += size.nodes + size.examples;
  if (shape.timed) words += size.examples * kLongWords<Index>;
  if (shape.excluding) words += size.pairs * kPairWords;
  return words;
}

// One block in a message. `Word` is Index or const Index.
template <class Word>
struct Block {
  Word* node = nullptr;     // [nodes]
  Word* example = nullptr;  // [nodes]
  Word* number = nullptr;   // [examples]
  Word* time = nullptr;     // [examples] of 64 bits each, not aligned
  Word* pair = nullptr;     // [pairs, kPairWords]

  // Returns the parts of a body.
  static Block at(Word* body, const QuestionShape& shape, const BlockSize& size) {
    using Index = std::remove_const_t<Word>;
    Block block;
    block.node = body;
    Word* next = body + size.nodes;
    if (shape.disjoint) {
      block.example = next;
      block.number = block.example + size.nodes;
      next = block.number + size.examples;
    }
    if (shape.timed) {
      block.time = next;
      next += size.examples * kLongWords<Index>;
    }
    if (shape.excluding) block.pair = next;
    return block;
  }
};

// Writes the head of a block and returns the begin of the next one. `nodes`: by type.
template <class Index>
Index* write_head(Index* head, const QuestionShape& shape, uint64_t key, const int64_t* nodes,
                  const BlockSize& size) {
  std::memcpy(head, &key, sizeof(key));
  head += kLongWords<Index>;
  for (int64_t type = 0; type < shape.types; ++type) *head++ = static_cast<Index>(nodes[type]);
  if (shape.disjoint) *head++ = static_cast<Index>(size.examples);
  if (shape.excluding) *head++ = static_cast<Index>(size.pairs);
  return head;
}

template <class Index>
struct ReadBlock {
  uint64_t key;
  const Index* nodes_of;  // [types]
  BlockSize size;
  Block<const Index> body;
};

// Reads a head. Returns false if a number is negative or larger than `most`.
template <class Index>
bool read_head(const Index* head, const QuestionShape& shape, int64_t most, ReadBlock<Index>* block) {
  std::memcpy(&block->key, head, sizeof(block->key));
  head += kLongWords<Index>;
  block->nodes_of = head;
  for (int64_t type = 0; type < shape.types; ++type, ++head) {
    if (*head < 0 || *head > most - block->size.nodes) return false;
    block->size.nodes += *head;
  }
  if (shape.disjoint) block->size.examples = *head++;
  if (shape.excluding) block->size.pairs = *head++;
  const auto fits = [&](int64_t count) { return 0 <= count && count <= most; };
  return fits(block->size.examples) && fits(block->size.pairs);
}

// Appends the blocks of a message to `blocks`. Returns false if its words do not add up.
template <class Index>
bool read_blocks(const Index* words, int64_t count, const QuestionShape& shape,
                 std::vector<ReadBlock<Index>>* blocks) {
  if (count == 0) return true;
  const int64_t many = words[0], each = head_words<Index>(shape);
  if (many < 1 || many > (count - 1) / each) return false;
  const Index* head = words + 1;
  const Index* body = head + many * each;
  int64_t left = count - (body - words);
  for (int64_t b = 0; b < many; ++b, head += each) {
    ReadBlock<Index> block{};
    if (!read_head(head, shape, left, &block)) return false;
    const int64_t own = body_words<Index>(shape, block.size);
    if (own > left) return false;
    block.body = Block<const Index>::at(body, shape, block.size);
    blocks->push_back(block);
    body += own;
    left -= own;
  }
  return left == 0;
}

// The answer of an owner to a question.
//
// An answer has a section for each relation that is asked for. A section, in words of 64 bits: the
// number of picks of every node of the relation's target type, in the order of the question; the
// input edge ids of all picks, if wanted; their sources. Each of the three begins at a word and is
// as narrow as its numbers allow. Both sides know the widths from the plan and the graph's size.
//
// The answer to an empty question is a message of no words.

// The layout of one section.
struct AnswerShape {
  bool asked = false;       // false: there is no such section
  int64_t count_bytes = 8;  // bytes of a number of picks: 1, 2, 4 or 8
  int64_t edge_bytes = 0;   // bytes of an input edge id: 4 or 8; 0 if not wanted
  int64_t id_bytes = 8;     // bytes of a source: 4 or 8
  int64_t most = 0;         // picks of a node

  AnswerShape() = default;

  // `most` is kAllNeighbours if the plan does not bound the picks of a node.
  AnswerShape(int64_t most_picks, int64_t num_edges, bool edge_ids, int64_t bytes_of_id)
      : asked(true), id_bytes(bytes_of_id), most(most_picks) {
    const bool bounded = most != kAllNeighbours;
    if (!bounded) most = num_edges;
    if (most <= std::numeric_limits<uint32_t>::max()) count_bytes = 4;
    if (bounded && most <= std::numeric_limits<uint16_t>::max()) count_bytes = 2;
    if (bounded && most <= std::numeric_limits<uint8_t>::max()) count_bytes = 1;
    if (edge_ids) edge_bytes = num_edges <= int64_t{1} << 31 ? 4 : 8;
  }

  // Calls body with the numbers in their width, the same for all: the branch costs nothing.
  template <class Void, class Body>
  auto with_counts(Void* counts, const Body& body) const {
    const auto as = [&]<class Count>(Count) {
      return static_cast<std::conditional_t<std::is_const_v<Void>, const Count, Count>*>(counts);
    };
    if (count_bytes == 1) return body(as(uint8_t{}));
    if (count_bytes == 2) return body(as(uint16_t{}));
    return count_bytes == 4 ? body(as(uint32_t{})) : body(as(uint64_t{}));
  }

  // Returns the number of picks of the i-th node of a section.
  uint64_t read_count(const void* counts, int64_t i) const {
    return with_counts(counts, [&](const auto* count) { return static_cast<uint64_t>(count[i]); });
  }

  // Writes the numbers of picks of `count` nodes from the `first` on.
  void write_counts(void* counts, int64_t first, const int64_t* picks, int64_t count) const {
    with_counts(counts, [&]<class Count>(Count* out) {
      std::transform(picks, picks + count, out + first, [](int64_t one) { return static_cast<Count>(one); });
    });
  }

  // In words.
  int64_t edges_at(int64_t nodes) const { return (nodes * count_bytes + 7) / 8; }
  int64_t sources_at(int64_t nodes, int64_t picks) const {
    return edges_at(nodes) + (picks * edge_bytes + 7) / 8;
  }
  int64_t words(int64_t nodes, int64_t picks) const {
    return sources_at(nodes, picks) + (picks * id_bytes + 7) / 8;
  }
};

// Copies input edge ids of a section.
inline void copy_ids(const char* ids, int64_t edge_bytes, int64_t count, int64_t* out) {
  if (edge_bytes == 4) {
    std::copy_n(reinterpret_cast<const int32_t*>(ids), count, out);
  } else {
    std::copy_n(reinterpret_cast<const int64_t*>(ids), count, out);
  }
}

// Returns the sections of the answers of a hop, by relation. The hop after the last one is that of
// an induced subgraph: all relations are asked for. `num_edges`: of the whole graph, by relation.
inline std::vector<AnswerShape> answer_shapes(const Plan& plan, int64_t hop,
                                              const std::vector<int64_t>& num_edges, int64_t id_bytes) {
  std::vector<AnswerShape> shapes(num_edges.size());
  for (size_t relation = 0; relation < num_edges.size(); ++relation) {
    Fanout fanout{kAllNeighbours};
    if (hop < plan.hops) fanout = plan.fanout(static_cast<int64_t>(relation), hop);
    if (fanout.none()) continue;
    const int64_t most = fanout.share != 0.0 ? kAllNeighbours : fanout.count;
    shapes[relation] = AnswerShape(most, num_edges[relation], plan.edge_ids, id_bytes);
  }
  return shapes;
}

// The errors of a message.

enum class WireError : int64_t {
  kNothing = 0,
  kBlocks = 1,  // value: the number of words
  kNode = 2,    // value: a node that this rank does not own
  kPicks = 3,   // value: more picks of one node than the plan allows
  kLength = 4,  // value: the number of words, which differs from what the counts say
  kSource = 5,  // value: a source that is not a node
};

struct Fault {
  WireError error = WireError::kNothing;
  int64_t peer = -1;
  int64_t value = 0;
  explicit operator bool() const { return error != WireError::kNothing; }
};

}  // namespace pyg_batchgnn
