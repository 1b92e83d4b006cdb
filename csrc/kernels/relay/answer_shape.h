// The answer of an owner to a question.
//
// An answer has a section for each relation that is asked for. A section, in words of 64 bits: the
// number of picks of every node of the relation's target type, in the order of the question; the
// input edge ids of all picks, if wanted; their sources. Each of the three begins at a word and is
// as narrow as its numbers allow. Both sides know the widths from the plan and the size of the
// graph.
//
// The answer to an empty question is a message of no words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

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

  // Returns the number of picks of the i-th node of a section. All of a section have one width, so
  // the branch costs nothing.
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

  // Writes the numbers of picks of `count` nodes from the `first` on.
  void write_counts(void* counts, int64_t first, const int64_t* picks, int64_t count) const {
    switch (count_bytes) {
      case 1:
        return copy(picks, count, static_cast<uint8_t*>(counts) + first);
      case 2:
        return copy(picks, count, static_cast<uint16_t*>(counts) + first);
      case 4:
        return copy(picks, count, static_cast<uint32_t*>(counts) + first);
      default:
        return copy(picks, count, static_cast<uint64_t*>(counts) + first);
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

 private:
  template <class Count>
  static void copy(const int64_t* picks, int64_t count, Count* out) {
    std::transform(picks, picks + count, out, [](int64_t one) { return static_cast<Count>(one); });
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

}  // namespace pyg_batchgnn
