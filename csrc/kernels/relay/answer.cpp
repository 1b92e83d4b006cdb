#include "kernels/relay/answer.h"

#include <algorithm>
#include <array>

#include "kernels/parallel.h"
#include "kernels/prefetch.h"
#include "kernels/relay/asked.h"
#include "kernels/relay/induced_answer.h"
#include "kernels/relay/sections.h"
#include "kernels/sample/rules.h"
#include "kernels/sample/steps.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunk = 4096;  // nodes of a task, some tens of microseconds of work
constexpr int64_t kLists = 128;   // nodes whose lists are measured together

// Picks for the nodes of one hop.
template <class Index>
class Owner {
 public:
  Owner(const OwnPart<Index>& part, const Plan& plan, int64_t hop,
        const std::vector<AskedBlock<Index>>& asked, const std::vector<AnswerShape>& shapes, size_t peers)
      : part_(part),
        plan_(plan),
        hop_(hop),
        shapes_(shapes),
        first_(part.firsts()),
        sections_(shapes, peers) {
    for (const AskedBlock<Index>& block : asked) cut(block);
  }

  Answers run(int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
    const auto chunks = static_cast<int64_t>(chunks_.size());
    const auto each = [&](auto&& work) {
      run_tasks(chunks, threads, [&](int64_t at, int64_t) {
        const auto scratch = scratches.borrow();
        work(chunks_[static_cast<size_t>(at)], *scratch);
      });
    };
    each([&](Chunk& chunk, Scratch<Index>& scratch) { count(chunk, scratch); });
    Answers out;
    for (Chunk& chunk : chunks_) {
      if (chunk.outsider >= 0) {
        out.fault = {WireError::kNode, static_cast<int64_t>(chunk.piece.peer),
                     nodes(chunk).node[chunk.outsider]};
        return out;
      }
      sections_.add(&chunk.piece);
    }
    sections_.lay_out(&out);
    each([&](Chunk& chunk, Scratch<Index>& scratch) { fill(chunk, scratch); });
    return out;
  }

 private:
  // Some nodes of one block in one relation.
  struct Chunk {
    const AskedBlock<Index>* block;
    int64_t begin;  // among the nodes of the block
    Piece piece;
    int64_t outsider = -1;  // the place of a node that this rank does not own
  };

  void cut(const AskedBlock<Index>& block) {
    for (size_t relation = 0; relation < shapes_.size(); ++relation) {
      if (!shapes_[relation].asked) continue;
      const auto type = static_cast<size_t>(part_.graph.relations[relation].target);
      for (int64_t at = block.begins[type]; at < block.begins[type + 1]; at += kChunk) {
        const int64_t nodes = std::min(kChunk, block.begins[type + 1] - at);
        chunks_.push_back({&block, at, {block.peer, relation, nodes}});
      }
    }
  }

  const Relation<Index>& relation(const Chunk& chunk) const {
    return part_.graph.relations[chunk.piece.relation];
  }
  int64_t first(const Chunk& chunk) const { return first_[static_cast<size_t>(relation(chunk).target)]; }
  AskedNodes<Index> nodes(const Chunk& chunk) const { return chunk.block->nodes(chunk.begin, first(chunk)); }

  template <class Body>
  void by_rule(const Chunk& chunk, Scratch<Index>& scratch, const Body& body) const {
    const auto number = static_cast<int64_t>(chunk.piece.relation);
    with_rule(relation(chunk), plan_, plan_.fanout(number, hop_), chunk.block->latest.data(),
              chunk.block->pairs(chunk.piece.relation), scratch, body);
  }

  // Measures the lists of some nodes and calls body(i, picks) for each.
  template <class Rule, class Body>
  void measure(Rule& rule, const AskedNodes<Index> nodes, const int64_t* indptr, int64_t begin, int64_t end,
               int64_t all, const Body& body) const {
    const auto target = [&](int64_t i) { return nodes.target(begin + i); };
    measure_lists(rule, indptr, end - begin, all - begin, target,
                  [&](int64_t i, int64_t picks) { body(begin + i, picks); });
  }

  // Another rank names the nodes. They may be any numbers if that rank is wrong.
  void count(Chunk& chunk, Scratch<Index>& scratch) const {
    const Csc<Index>& edges = relation(chunk).edges;
    const AskedNodes<Index> asked = nodes(chunk);
    const auto rows = static_cast<uint64_t>(edges.num_nodes);
    for (int64_t i = 0; i < chunk.piece.nodes; ++i) {
      if (static_cast<uint64_t>(asked.target(i).node) < rows) continue;
      chunk.outsider = i;
      return;
    }
    by_rule(chunk, scratch, [&](auto& rule) {
      int64_t total = 0;
      for (int64_t begin = 0; begin < chunk.piece.nodes; begin += kLists) {
        const int64_t end = std::min(begin + kLists, chunk.piece.nodes);
        measure(rule, asked, edges.indptr, begin, end, chunk.piece.nodes,
                [&](int64_t, int64_t picks) { total += picks; });
      }
      chunk.piece.picks = total;
    });
  }

  void fill(const Chunk& chunk, Scratch<Index>& scratch) const {
    Place place{sections_.edges(chunk.piece), reinterpret_cast<Index*>(sections_.sources(chunk.piece))};
    by_rule(chunk, scratch, [&](auto& rule) {
      for (int64_t begin = 0; begin < chunk.piece.nodes; begin += kLists) {
        fill_lists(rule, chunk, begin, std::min(begin + kLists, chunk.piece.nodes), scratch, &place);
      }
    });
  }

  // The places of the next picks of a chunk.
  struct Place {
    char* edge;
    Index* source;
  };

  // Handles nodes in groups of about kBlock picks: chooses, then reads.
  template <class Rule>
  void fill_lists(Rule& rule, const Chunk& chunk, int64_t begin, int64_t end, Scratch<Index>& scratch,
                  Place* place) const {
    const AnswerShape& shape = shapes_[chunk.piece.relation];
    const AskedNodes<Index> asked = nodes(chunk);
    const Csc<Index>& edges = relation(chunk).edges;
    const int64_t* original = part_.node + (asked.first - part_.first);
    void* counts = sections_.counts(chunk.piece);
    std::array<int64_t, kLists> picks;
    measure(rule, asked, edges.indptr, begin, end, chunk.piece.nodes,
            [&](int64_t i, int64_t own) { picks[static_cast<size_t>(i - begin)] = own; });
    shape.write_counts(counts, chunk.piece.nodes_before + begin, picks.data(), end - begin);
    uint64_t key = chunk.block->block.key;
    if (!part_.graph.plain()) key = fold(key, relation(chunk).digest);
    for (int64_t group = begin; group < end;) {
      int64_t last = group, held = 0;
      do {
        held += picks[static_cast<size_t>(last++ - begin)];
      } while (last < end && held + picks[static_cast<size_t>(last - begin)] <= kBlock);
      PickBuffers& buffers = scratch.groups[0];
      int64_t* position = buffers.position.reserve(held + 1);
      const ListGroup lists{group - begin, last - begin, held, position, buffers.drawn.reserve(held + 1)};
      for (int64_t i = group + kLists; i < std::min(last + kLists, chunk.piece.nodes); ++i) {
        const int64_t ahead = asked.target(i).node;  // what the next lists are measured by
        prefetch_line(&edges.indptr[ahead]);
        prefetch_line(&original[ahead]);
      }
      const auto node_key = [&](int64_t i) {
        return asked.key(key, begin + i, original[asked.target(begin + i).node]);
      };
      choose_lists(rule, lists, node_key, [&](int64_t i) { return picks[static_cast<size_t>(i)]; });
      read(edges, position, held, shape, place);
      group = last;
    }
  }

  // Writes the sources and the edge ids at some positions.
  static void read(const Csc<Index>& edges, const int64_t* position, int64_t count, const AnswerShape& shape,
                   Place* place) {
    for (int64_t e = 0; e < count; ++e) place->source[e] = edges.indices[position[e]];
    place->source += count;
    if (shape.edge_bytes == 4)
      translate_edge_ids(edges, position, count, reinterpret_cast<int32_t*>(place->edge));
    if (shape.edge_bytes == 8)
      translate_edge_ids(edges, position, count, reinterpret_cast<int64_t*>(place->edge));
    place->edge += count * shape.edge_bytes;
  }

  const OwnPart<Index>& part_;
  const Plan& plan_;
  const int64_t hop_;
  const std::vector<AnswerShape>& shapes_;
  const std::vector<int64_t> first_;  // own id of each type
  Sections sections_;
  std::vector<Chunk> chunks_;
};

}  // namespace

template <class Index>
Answers answer(const OwnPart<Index>& part, const Plan& plan, int64_t hop, const Requests<Index>& requests,
               int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
  Answers out;
  const std::vector<AskedBlock<Index>> asked = read_questions(part, requests, &out.fault);
  if (out.fault) return out;
  const std::vector<AnswerShape> shapes = answer_shapes(plan, hop, part.num_edges, sizeof(Index));
  const size_t peers = requests.words_of.size();
  if (hop < plan.hops) {
    return Owner<Index>(part, plan, hop, asked, shapes, peers).run(threads, scratches);
  }
  if (requests.shape.disjoint) {
    return InducedOwner<Index, DisjointNodes>(part, plan, asked, shapes, peers).run(threads, scratches);
  }
  return InducedOwner<Index, SharedNodes>(part, plan, asked, shapes, peers).run(threads, scratches);
}

template Answers answer(const OwnPart<int32_t>&, const Plan&, int64_t, const Requests<int32_t>&, int64_t,
                        ObjectPool<Scratch<int32_t>>&);
template Answers answer(const OwnPart<int64_t>&, const Plan&, int64_t, const Requests<int64_t>&, int64_t,
                        ObjectPool<Scratch<int64_t>>&);

}  // namespace pyg_batchgnn
