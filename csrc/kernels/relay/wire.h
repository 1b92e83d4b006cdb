// The messages between two ranks in one hop of a relay.
//
// A request, in words of the type of node ids: the number of blocks; of each block its key (64
// bits, low word first) and its number of nodes; then the nodes of all blocks. A block is the
// question of one minibatch to one owner. Its key is the key of the hop of that minibatch, so that
// the owner needs no other information about it.
//
// An answer, in words of 64 bits: the number of picks of every node, in the order of the question;
// the input edge ids of all picks, if wanted; their sources. Each of the three begins at a word and
// is as narrow as its numbers allow. Both sides know the widths from the plan and the size of the
// graph.
//
// An empty question is a message of no words, and so is its answer.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/sample/choose.h"

namespace pyg_batchgnn {

// The errors of a message.
enum class WireError : int64_t {
  kNothing = 0,
  kBlocks = 1,  // value: the number of words
  kNode = 2,    // value: a node that this rank does not own
  kPicks = 3,   // value: more the most picks of a node than the plan allows
  kLength = 4,  // value: the number of words, which differs from what the counts say
  kSource = 5,  // value: a source that is not a node
};

struct Fault {
  WireError error = WireError::kNothing;
  int64_t peer = -1;
  int64_t value = 0;
  explicit operator bool() const { return error != WireError::kNothing; }
};

template <class Index>
constexpr int64_t kKeyWords = static_cast<int64_t>(sizeof(uint64_t) / sizeof(Index));
template <class Index>
constexpr int64_t kBlockWords = kKeyWords<Index> + 1;

template <class Index>
int64_t request_words(int64_t blocks, int64_t nodes) {
  return blocks == 0 ? 0 : 1 + blocks * kBlockWords<Index> + nodes;
}

template <class Index>
Index* write_block(Index* words, uint64_t key, int64_t nodes) {
  std::memcpy(words, &key, sizeof(key));
  words[kKeyWords<Index>] = static_cast<Index>(nodes);
  return words + kBlockWords<Index>;
}

template <class Index>
struct Block {
  uint64_t key;
  const Index* node;  // [nodes]
  int64_t nodes;
};

// Appends the blocks of a message to `blocks`. Returns false if its words do not add up.
template <class Index>
bool read_blocks(const Index* words, int64_t count, std::vector<Block<Index>>* blocks) {
  if (count == 0) return true;
  const int64_t many = words[0];
  if (many < 1 || many > (count - 1) / kBlockWords<Index>) return false;
  const Index* head = words + 1;
  const Index* node = head + many * kBlockWords<Index>;
  int64_t left = count - (node - words);
  for (int64_t b = 0; b < many; ++b, head += kBlockWords<Index>) {
    Block<Index> block{0, node, head[kKeyWords<Index>]};
    if (block.nodes < 0 || block.nodes > left) return false;
    std::memcpy(&block.key, head, sizeof(block.key));
    blocks->push_back(block);
    node += block.nodes;
    left -= block.nodes;
  }
  return left == 0;
}

// The layout of an answer.
struct AnswerShape {
  int64_t count_bytes;  // bytes of a number of picks: 1, 2, 4 or 8
  int64_t edge_bytes;   // bytes of an input edge id: 4 or 8; 0 if not wanted
  int64_t id_bytes;     // bytes of a source: 4 or 8
  int64_t most;         // picks of a node

  AnswerShape(int64_t fanout, int64_t num_edges, bool edge_ids, int64_t bytes_of_id)
      : count_bytes(8), edge_bytes(0), id_bytes(bytes_of_id), most(fanout) {
    if (fanout == kAllNeighbours) most = num_edges;
    if (most <= std::numeric_limits<uint32_t>::max()) count_bytes = 4;
    if (fanout != kAllNeighbours && most <= std::numeric_limits<uint16_t>::max()) count_bytes = 2;
    if (fanout != kAllNeighbours && most <= std::numeric_limits<uint8_t>::max()) count_bytes = 1;
    if (edge_ids) edge_bytes = num_edges <= int64_t{1} << 31 ? 4 : 8;
  }

  // Returns the number of picks of the i-th node of an answer. All of a hop have one width, so the
  // branch costs nothing.
  uint64_t read_count(const void* counts, int64_t i) const {
    switch (count_bytes) {
      case 1:
        return static_cast<const uint8_t*>(counts)[i];
      case 2:
        return static_cast<const uint16_t*>(counts)[i];
      case 4:
        return static_cast<const uint32_t*>(counts)[i];
      default:
        return static_cast<const uint64_t*>(counts)[i];
    }
  }

  void write_count(void* counts, int64_t i, int64_t picks) const {
    switch (count_bytes) {
      case 1:
        static_cast<uint8_t*>(counts)[i] = static_cast<uint8_t>(picks);
        break;
      case 2:
        static_cast<uint16_t*>(counts)[i] = static_cast<uint16_t>(picks);
        break;
      case 4:
        static_cast<uint32_t*>(counts)[i] = static_cast<uint32_t>(picks);
        break;
      default:
        static_cast<uint64_t*>(counts)[i] = static_cast<uint64_t>(picks);
    }
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

}  // namespace pyg_batchgnn
