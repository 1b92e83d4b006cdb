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
// with the question in which its target is asked for.
//
// An empty question is a message of no words.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

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

}  // namespace pyg_batchgnn
