#include "kernels/relay/answer.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunk = 4096;  // nodes of a task, some tens of microseconds of work

// The nodes of one block that one task answers.
template <class Index>
struct Chunk {
  uint64_t key;
  const Index* node;
  int64_t nodes;
  int64_t peer;
  int64_t nodes_before;      // in the message
  int64_t picks = 0;         // of this chunk
  int64_t picks_before = 0;  // in the message
  bool foreign = false;      // `outsider` belongs to another rank
  int64_t outsider = 0;
};

template <class Index>
class Owner {
 public:
  Owner(const OwnPart<Index>& part, int64_t fanout, Replacement replacement, const AnswerShape& shape)
      : part_(part), fanout_(fanout), replacement_(replacement), shape_(shape) {}

  Answers run(const Requests<Index>& requests, int64_t threads, ObjectPool<Scratch<Index>>& scratches) {
    if (cut(requests)) {
      const auto chunks = static_cast<int64_t>(chunks_.size());
      run_tasks(chunks, threads, [&](int64_t at, int64_t) { count(&chunks_[static_cast<size_t>(at)]); });
      if (lay_out()) {
        run_tasks(chunks, threads, [&](int64_t at, int64_t) {
          const auto scratch = scratches.borrow();
          fill(chunks_[static_cast<size_t>(at)], *scratch);
        });
      }
    }
    return std::move(out_);
  }

 private:
  // The requests in chunks.
  bool cut(const Requests<Index>& requests) {
    const Index* words = requests.words;
    nodes_.assign(requests.words_of.size(), 0);
    std::vector<Block<Index>> blocks;
    for (size_t peer = 0; peer < requests.words_of.size(); ++peer) {
      const int64_t many = requests.words_of[peer];
      blocks.clear();
      if (!read_blocks(words, many, &blocks)) {
        out_.fault = {WireError::kBlocks, static_cast<int64_t>(peer), many};
        return false;
      }
      for (const Block<Index>& block : blocks) cut(block, static_cast<int64_t>(peer));
      words += many;
    }
    return true;
  }

  void cut(const Block<Index>& block, int64_t peer) {
    int64_t& before = nodes_[static_cast<size_t>(peer)];
    for (int64_t done = 0; done < block.nodes; done += kChunk) {
      Chunk<Index> chunk{};
      chunk.key = block.key;
      chunk.node = block.node + done;
      chunk.nodes = std::min(kChunk, block.nodes - done);
      chunk.peer = peer;
      chunk.nodes_before = before;
      before += chunk.nodes;
      chunks_.push_back(chunk);
    }
  }

  // Returns the row of a node that another rank names. It may be any number if that rank is wrong.
  uint64_t row_of(Index node) const {
    return static_cast<uint64_t>(node) - static_cast<uint64_t>(part_.first);
  }

  void count(Chunk<Index>* chunk) const {
    const Csc<Index>& graph = part_.graph;
    const auto rows = static_cast<uint64_t>(graph.num_nodes);
    int64_t picks = 0;
    for (int64_t i = 0; i < chunk->nodes; ++i) {
      if (i + kPointerAhead < chunk->nodes) {
        const uint64_t ahead = row_of(chunk->node[i + kPointerAhead]);
        if (ahead < rows) __builtin_prefetch(&graph.indptr[ahead]);
      }
      const uint64_t row = row_of(chunk->node[i]);
      if (row >= rows) {
        chunk->foreign = true;
        chunk->outsider = chunk->node[i];
        return;
      }
      picks += picks_of(graph.indptr[row + 1] - graph.indptr[row], fanout_, replacement_);
    }
    chunk->picks = picks;
  }

  // Makes room for the messages and finds the place of the picks of each chunk.
  bool lay_out() {
    out_.picks_for.assign(nodes_.size(), 0);
    for (Chunk<Index>& chunk : chunks_) {
      if (chunk.foreign) {
        out_.fault = {WireError::kNode, chunk.peer, chunk.outsider};
        return false;
      }
      int64_t& picks = out_.picks_for[static_cast<size_t>(chunk.peer)];
      chunk.picks_before = picks;
      picks += chunk.picks;
    }
    int64_t total = 0;
    for (size_t peer = 0; peer < nodes_.size(); ++peer) {
      begins_.push_back(total);
      out_.words_to.push_back(shape_.words(nodes_[peer], out_.picks_for[peer]));
      total += out_.words_to.back();
    }
    int64_t* words = out_.words.reserve(total + 1);
    // The last word of each part may be written in part only. The other bytes are set to zero.
    for (size_t peer = 0; peer < nodes_.size(); ++peer) {
      if (nodes_[peer] == 0) continue;
      int64_t* message = words + begins_[peer];
      const int64_t edges_at = shape_.edges_at(nodes_[peer]);
      const int64_t sources_at = shape_.sources_at(nodes_[peer], out_.picks_for[peer]);
      for (const int64_t end : {edges_at, sources_at, out_.words_to[peer]}) message[end - 1] = 0;
    }
    return true;
  }

  void fill(const Chunk<Index>& chunk, Scratch<Index>& scratch) const {
    if (shape_.edge_bytes == 4) {
      fill_as<int32_t>(chunk, scratch);
    } else {
      fill_as<int64_t>(chunk, scratch);
    }
  }

  // About kBlock picks are collected before the entries at their positions are read.
  template <class EdgeId>
  void fill_as(const Chunk<Index>& chunk, Scratch<Index>& scratch) const {
    const Csc<Index>& graph = part_.graph;
    const auto peer = static_cast<size_t>(chunk.peer);
    int64_t* message = out_.words.data() + begins_[peer];
    auto* edges = reinterpret_cast<EdgeId*>(message + shape_.edges_at(nodes_[peer])) + chunk.picks_before;
    auto* sources =
        reinterpret_cast<Index*>(message + shape_.sources_at(nodes_[peer], out_.picks_for[peer])) +
        chunk.picks_before;
    const Chooser choose(fanout_, replacement_, &scratch.picked);
    int64_t* position = scratch.position.reserve(kBlock);
    int64_t held = 0;
    const auto read = [&] {
      for (int64_t e = 0; e < held; ++e) sources[e] = graph.indices[position[e]];
      sources += held;
      if (shape_.edge_bytes != 0) {
        translate_edge_ids(graph, position, held, edges);
        edges += held;
      }
      held = 0;
    };
    for (int64_t i = 0; i < chunk.nodes; ++i) {
      if (i + kPointerAhead < chunk.nodes) {
        const int64_t ahead = chunk.node[i + kPointerAhead] - part_.first;
        __builtin_prefetch(&graph.indptr[ahead]);
        __builtin_prefetch(&part_.node[ahead]);
      }
      const int64_t row = chunk.node[i] - part_.first;
      const int64_t start = graph.indptr[row], degree = graph.indptr[row + 1] - start;
      const int64_t picks = picks_of(degree, fanout_, replacement_);
      shape_.write_count(message, chunk.nodes_before + i, picks);
      if (held + picks > kBlock) {
        read();
        position = scratch.position.reserve(picks);
      }
      pick(choose, fold(chunk.key, static_cast<uint64_t>(part_.node[row])), start, degree, picks,
           graph.indices, position + held);
      held += picks;
    }
    read();
  }

  const OwnPart<Index>& part_;
  const int64_t fanout_;
  const Replacement replacement_;
  const AnswerShape shape_;
  std::vector<Chunk<Index>> chunks_;
  std::vector<int64_t> nodes_, begins_;  // by peer
  Answers out_;
};

}  // namespace

template <class Index>
Answers answer(const OwnPart<Index>& part, const Requests<Index>& requests, int64_t fanout,
               Replacement replacement, const AnswerShape& shape, int64_t threads,
               ObjectPool<Scratch<Index>>& scratches) {
  return Owner<Index>(part, fanout, replacement, shape).run(requests, threads, scratches);
}

template Answers answer(const OwnPart<int32_t>&, const Requests<int32_t>&, int64_t, Replacement,
                        const AnswerShape&, int64_t, ObjectPool<Scratch<int32_t>>&);
template Answers answer(const OwnPart<int64_t>&, const Requests<int64_t>&, int64_t, Replacement,
                        const AnswerShape&, int64_t, ObjectPool<Scratch<int64_t>>&);

}  // namespace pyg_batchgnn
