#include "kernels/nn/attention.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/parallel.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlocks = 256;  // blocks per minibatch, the largest number of threads with work
constexpr int64_t kFewestRows = 64, kMostRows = 1024;
constexpr int64_t kEntries = 8192;  // their lists stay in the second cache

int64_t wide_size(Element type) { return type == Element::kFloat64 ? 8 : 4; }

int64_t row_columns(const AttentionInput& input) {
  const int64_t of_heads = input.model.heads * input.rows.columns;
  if (input.rows.by_head) return 2 * of_heads;
  return input.is_summed() ? of_heads : input.rows.columns;
}

int64_t scratch_of(const AttentionInput& input, int64_t longest) {
  return attention_scratch(longest, input.model.heads, input.width(), row_columns(input));
}

// Blocks of destinations and of sources with pointers to the rows of their edges, for the inner
// loops of attention. The cut into blocks depends only on the graph.

int64_t first_slot(const AttentionEdges& edges, int64_t target) {
  const int64_t loops = edges.loops < 0 ? 0 : edges.loops;
  return edges.indptr[target] + (target < loops ? target : loops);
}

// Cuts the rows of a CSR into blocks of a fixed number of rows, or fewer that have many entries.
class RowBlocks {
 public:
  RowBlocks(const int64_t* ptr, int64_t rows) {
    const int64_t most = std::clamp((rows + kBlocks - 1) / kBlocks, kFewestRows, kMostRows);
    int64_t* const first = first_.reserve(rows + 1);
    first[0] = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t begin = first[count_];
      if (i > begin && (i - begin == most || ptr[i + 1] - ptr[begin] > kEntries)) first[++count_] = i;
    }
    if (rows > 0) first[++count_] = rows;
  }

  int64_t count() const { return count_; }
  int64_t begin(int64_t block) const { return first_.data()[block]; }
  int64_t end(int64_t block) const { return first_.data()[block + 1]; }

 private:
  Buffer<int64_t> first_;
  int64_t count_ = 0;
};

class TargetBlocks {
 public:
  TargetBlocks(const AttentionInput& input, int64_t threads)
      : input_(input),
        blocks_(input.edges.indptr, input.edges.targets),
        lists_(static_cast<size_t>(threads)) {}

  int64_t count() const { return blocks_.count(); }
  // The arrays belong to the slot. Its next block overwrites them.
  AttentionBlock make(int64_t block, int64_t slot) {
    const AttentionEdges& edges = input_.edges;
    const int64_t first = blocks_.begin(block), last = blocks_.end(block), targets = last - first;
    const int64_t most = edges.indptr[last] - edges.indptr[first] + targets;
    Lists& lists = lists_[static_cast<size_t>(slot)];
    lists.begin.reserve(targets + 1);
    lists.slots.reserve(targets + 1);
    lists.rows.reserve(most + kMostRowsAhead);
    lists.place.reserve(most);
    const int64_t longest =
        edges.indices.wide ? list_edges(static_cast<const int64_t*>(edges.indices.data), first, last, lists)
                           : list_edges(static_cast<const int32_t*>(edges.indices.data), first, last, lists);
    const bool drops = input_.dropout.drop > 0;
    if (drops) list_kept(first, last, lists);
    if (input_.model.target_weight != nullptr) {
      const char** const self = lists.self.reserve(targets);
      for (int64_t i = 0; i < targets; ++i) self[i] = row(first + i);
    }
    const bool has_rows = input_.rows.edge != nullptr && !input_.is_summed();
    if (has_rows) list_edge_rows(targets, lists);
    lists.scratch.reserve(scratch_of(input_, longest) * wide_size(input_.rows.table.element));
    return {first,
            targets,
            lists.begin.data(),
            lists.rows.data(),
            has_rows ? lists.edges.data() : nullptr,
            lists.place.data(),
            drops ? lists.keep.data() : nullptr,
            lists.slots.data(),
            lists.self.data(),
            lists.scratch.data()};
  }

 private:
  struct Lists {
    Buffer<int64_t> begin, slots;
    Buffer<const char*> rows, edges, self;
    Buffer<int32_t> place;
    Buffer<uint8_t> keep;
    Buffer<char> scratch;
  };

  const char* row(int64_t source) const {
    const AttentionRows& rows = input_.rows;
    return rows.table.row(rows.row ? rows.row[source] : source);
  }
  template <class Index>
  int64_t list_edges(const Index* indices, int64_t first, int64_t last, Lists& lists) const {
    const AttentionEdges& edges = input_.edges;
    constexpr int64_t kAhead = 16;
    const Integers& rows = input_.rows.row;
    const auto* const rows_of = static_cast<const char*>(rows.data);
    const int64_t row_bytes = rows.wide ? sizeof(int64_t) : sizeof(int32_t), edges_end = edges.indptr[last];
    int64_t at = 0, longest = 0;
    for (int64_t i = first; i < last; ++i) {
      const int64_t before = at, from = edges.indptr[i], to = edges.indptr[i + 1];
      lists.begin.data()[i - first] = at;
      lists.slots.data()[i - first] = first_slot(edges, i);
      for (int64_t e = from; e < to; ++e) {
        const auto source = static_cast<int64_t>(indices[e]);
        if (rows && e + kAhead < edges_end) __builtin_prefetch(rows_of + indices[e + kAhead] * row_bytes);
        if (edges.loops >= 0 && source == i) continue;
        lists.rows.data()[at] = row(source);
        lists.place.data()[at++] = static_cast<int32_t>(e - from);
      }
      if (i < edges.loops) {
        lists.rows.data()[at] = row(i);
        lists.place.data()[at++] = static_cast<int32_t>(to - from);
      }
      longest = std::max(longest, at - before);
    }
    lists.begin.data()[last - first] = at;
    lists.slots.data()[last - first] = first_slot(edges, last);
    std::fill_n(lists.rows.data() + at, kMostRowsAhead, static_cast<const char*>(input_.rows.table.data));
    return longest;
  }
  void list_edge_rows(int64_t targets, Lists& lists) const {
    const AttentionRows& rows = input_.rows;
    const int64_t bytes = rows.edge_columns * wide_size(rows.table.element);
    const int64_t* const begin = lists.begin.data();
    const char** const edges = lists.edges.reserve(begin[targets]);
    for (int64_t d = 0; d < targets; ++d) {
      for (int64_t e = begin[d]; e < begin[d + 1]; ++e) {
        const int64_t slot = lists.slots.data()[d] + lists.place.data()[e];
        edges[e] = static_cast<const char*>(rows.edge) + slot * bytes;
      }
    }
  }
  void list_kept(int64_t first, int64_t last, Lists& lists) const {
    const Dropout dropout(input_.dropout.key, input_.dropout.drop);
    const int64_t* const node = input_.dropout.node;
    const int64_t heads = input_.model.heads;
    uint8_t* keep = lists.keep.reserve(lists.begin.data()[last - first] * heads + 1);
    uint64_t word = 0;
    for (int64_t i = first; i < last; ++i) {
      const uint64_t row_key = dropout_row_key(dropout.key, node == nullptr ? i : node[i]);
      for (int64_t e = lists.begin.data()[i - first]; e < lists.begin.data()[i - first + 1]; ++e) {
        const int64_t column = lists.place.data()[e] * heads;
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t place = (column + h) % kDropoutColumnsPerWord;
          if (h == 0 || place == 0) word = dropout_word(row_key, (column + h) / kDropoutColumnsPerWord);
          *keep++ = ((word >> (16 * place)) & (kDropoutLevels - 1)) < dropout.kept_levels ? 1 : 0;
        }
      }
    }
  }

  const AttentionInput& input_;
  RowBlocks blocks_;
  std::vector<Lists> lists_;  // of each slot
};

class SourceBlocks {
 public:
  // pairs: [slots, pair_step], as in AttentionBackward.
  SourceBlocks(const AttentionInput& input, const AttentionUpstream& upstream,
               const AttentionTranspose& transpose, const void* pairs, int64_t pair_step, int64_t threads)
      : input_(input),
        transpose_(transpose),
        grad_(static_cast<const char*>(upstream.grad)),
        pairs_(static_cast<const char*>(pairs)),
        grad_bytes_(input.model.heads * input.width() * element_bytes(upstream.type)),
        pair_bytes_(pair_step * wide_size(input.rows.table.element)),
        blocks_(transpose.ptr, transpose.sources),
        lists_(static_cast<size_t>(threads)) {
    if (!input.model.by_target) return;
    weights_ = static_cast<const char*>(input.model.source_weight);
    weight_bytes_ = input.model.heads * input.width() * wide_size(input.rows.table.element);
  }

  int64_t count() const { return blocks_.count(); }
  AttentionSources make(int64_t block, int64_t slot) {
    const AttentionEdges& edges = input_.edges;
    const int64_t first = blocks_.begin(block), last = blocks_.end(block), sources = last - first;
    const int64_t most = transpose_.ptr[last] - transpose_.ptr[first] + sources;
    Lists& lists = lists_[static_cast<size_t>(slot)];
    lists.begin.reserve(sources + 1);
    lists.grads.reserve(most + kMostRowsAhead);
    lists.weights.reserve(most + kMostRowsAhead);
    lists.pairs.reserve(most + kMostRowsAhead);
    int64_t at = 0;
    for (int64_t j = first; j < last; ++j) {
      lists.begin.data()[j - first] = at;
      for (int64_t entry = transpose_.ptr[j]; entry < transpose_.ptr[j + 1]; ++entry) {
        const int64_t target = transpose_.targets[entry];
        const int64_t edge = transpose_.edge[entry];
        if (edges.loops >= 0 && target == j) continue;
        add(target, edge - edges.indptr[target] + first_slot(edges, target), at++, lists);
      }
      if (j < edges.loops) add(j, first_slot(edges, j + 1) - 1, at++, lists);
    }
    lists.begin.data()[sources] = at;
    std::fill_n(lists.grads.data() + at, kMostRowsAhead, grad_);
    std::fill_n(lists.weights.data() + at, kMostRowsAhead, weights_);
    std::fill_n(lists.pairs.data() + at, kMostRowsAhead, pairs_);
    lists.scratch.reserve(scratch_of(input_, 0) * wide_size(input_.rows.table.element));
    return {first,
            sources,
            lists.begin.data(),
            lists.grads.data(),
            input_.model.by_target ? lists.weights.data() : nullptr,
            lists.pairs.data(),
            lists.scratch.data()};
  }

 private:
  struct Lists {
    Buffer<int64_t> begin;
    Buffer<const char*> grads, weights, pairs;
    Buffer<char> scratch;
  };

  void add(int64_t target, int64_t slot, int64_t at, Lists& lists) const {
    lists.grads.data()[at] = grad_ + target * grad_bytes_;
    lists.weights.data()[at] = weights_ + target * weight_bytes_;
    lists.pairs.data()[at] = pairs_ + slot * pair_bytes_;
  }

  const AttentionInput& input_;
  const AttentionTranspose& transpose_;
  const char *grad_, *pairs_, *weights_ = nullptr;
  int64_t grad_bytes_, pair_bytes_, weight_bytes_ = 0;  // of a destination, a slot, a destination
  RowBlocks blocks_;
  std::vector<Lists> lists_;
};

AttentionWeights weights_of(const AttentionInput& input) {
  const AttentionModel& model = input.model;
  const AttentionRows& rows = input.rows;
  const Dropout dropout(input.dropout.key, input.dropout.drop);
  AttentionWeights of{};
  of.heads = model.heads;
  of.columns = rows.columns;
  of.edge_columns = input.edge_columns();
  of.row_columns = row_columns(input);
  of.first_value = rows.by_head ? model.heads * rows.columns : 0;
  of.head_step = rows.by_head || (input.is_summed() && model.heads > 1) ? rows.columns : 0;
  of.slope = model.slope;
  of.scale = dropout.scale();
  of.source = model.source_weight;
  of.source_step = model.by_target ? model.heads * input.width() : 0;
  of.target = model.target_weight;
  of.decoding = rows.table.decoding;
  of.scores = model.scores;
  if (!input.is_summed()) return of;
  of.target_rows = model.target_rows;
  of.target_step = model.target_step;
  of.edge_weight = model.edge_weight;
  of.edge_rows = rows.edge;
  of.summed_edge_columns = rows.edge_columns;
  return of;
}

// Returns whether the output is written past the caches: it has left them before it is read, and
// its rows are whole cache lines. Then its lines need not be read first.
bool writes_past_caches(const AttentionInput& input, const AttentionResult& result) {
  constexpr int64_t kLine = 64, kLarge = 16 << 20;
  if (element_bytes(result.out_type) == 2) return false;
  const int64_t bytes = input.model.heads * input.width() * element_bytes(result.out_type);
  return bytes % kLine == 0 && input.edges.targets * bytes >= kLarge &&
         reinterpret_cast<uintptr_t>(result.out) % kLine == 0;
}

// Sets total[i] to the sum of parts[b][i] in the order of blocks. Parts are `step` bytes apart.
template <class Sum>
void add_parts(const char* parts, int64_t blocks, int64_t step, int64_t count, void* total) {
  auto* out = static_cast<Sum*>(total);
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int64_t b = 0; b < blocks; ++b) sum += reinterpret_cast<const Sum*>(parts + b * step)[i];
    out[i] = static_cast<Sum>(sum);
  }
}

// The pass over destinations: all gradients but that of x. `pairs`: for the other pass, or null.
void backward_targets(const AttentionInput& input, const AttentionUpstream& upstream,
                      const AttentionGrads& grads, void* pairs, int64_t pair_step, int64_t threads) {
  const AttentionKernels& kernels = attention_kernels();
  TargetBlocks blocks(input, threads);
  const Element type = input.rows.table.element;
  const AttentionModel& model = input.model;
  const int64_t of_source = model.by_target || !input.has_softmax() ? 0 : model.heads * input.width();
  const int64_t of_target = model.heads * input.rows.columns;
  const int64_t of_edge = model.edge_weight == nullptr ? 0 : input.rows.edge_columns * row_columns(input);
  const int64_t source_bytes = of_source * wide_size(type), target_bytes = of_target * wide_size(type);
  const int64_t step = source_bytes + target_bytes + of_edge * wide_size(type);
  Buffer<char> parts;
  parts.reserve(std::max<int64_t>(1, blocks.count() * step));
  run_tasks(blocks.count(), threads, [&](int64_t task, int64_t slot) {
    char* const part = parts.data() + task * step;
    std::memset(part, 0, static_cast<size_t>(step));
    const AttentionBackward work{weights_of(input),
                                 upstream.coefficient,
                                 upstream.grad,
                                 upstream.type,
                                 upstream.grad_coefficient,
                                 upstream.grad_total,
                                 grads.target_logits,
                                 grads.edge_logits,
                                 grads.edge,
                                 pairs,
                                 pair_step,
                                 model.by_target ? grads.source_weight : part,
                                 part + source_bytes,
                                 of_edge > 0 ? part + source_bytes + target_bytes : nullptr,
                                 grads.target_rows};
    kernels.backward(type, work, blocks.make(task, slot));
  });
  const auto add = type == Element::kFloat64 ? &add_parts<double> : &add_parts<float>;
  add(parts.data(), blocks.count(), step, of_source, grads.source_weight);
  add(parts.data() + source_bytes, blocks.count(), step, of_target, grads.target_weight);
  add(parts.data() + source_bytes + target_bytes, blocks.count(), step, of_edge, grads.edge_weight);
}

}  // namespace

int64_t attention_slots(const AttentionEdges& edges) {
  return edges.indptr[edges.targets] + std::max<int64_t>(edges.loops, 0);
}

void attention_forward(const AttentionInput& input, const void* target_logits, const void* edge_logits,
                       const AttentionResult& result, int64_t threads) {
  const AttentionKernels& kernels = attention_kernels();
  const AttentionForward work{weights_of(input),  target_logits,   edge_logits,
                              result.out,         result.out_type, writes_past_caches(input, result),
                              result.coefficient, result.total};
  TargetBlocks blocks(input, threads);
  run_tasks(blocks.count(), threads, [&](int64_t task, int64_t slot) {
    kernels.forward(input.rows.table.element, work, blocks.make(task, slot));
  });
}

void attention_backward(const AttentionInput& input, const AttentionUpstream& upstream,
                        const AttentionTranspose& transpose, const AttentionGrads& grads, int64_t threads) {
  const AttentionKernels& kernels = attention_kernels();
  const int64_t bytes = wide_size(input.rows.table.element), lanes = 4 * kernels.lanes / bytes;
  int64_t step = input.model.scores == Scores::kMessages ? 0 : 2 * input.model.heads;
  if (input.is_summed()) {
    const int64_t signs = input.model.heads * ((input.rows.columns + lanes - 1) / lanes);
    step += (signs * static_cast<int64_t>(sizeof(uint16_t)) + bytes - 1) / bytes;
  }
  Buffer<char> pairs;
  if (grads.x != nullptr) pairs.reserve(std::max<int64_t>(1, attention_slots(input.edges) * step * bytes));
  backward_targets(input, upstream, grads, pairs.data(), step, threads);
  if (grads.x == nullptr) return;

  const AttentionInputGrad work{weights_of(input),   upstream.type, grads.target_logits,
                                input.edges.targets, grads.x,       input.rows.table.element};
  SourceBlocks blocks(input, upstream, transpose, pairs.data(), step, threads);
  run_tasks(blocks.count(), threads,
            [&](int64_t task, int64_t slot) { kernels.input_grad(work, blocks.make(task, slot)); });
}

void attention_keep(const AttentionEdges& edges, const AttentionDropout& dropout, int64_t heads,
                    uint8_t* keep) {
  const Dropout chance(dropout.key, dropout.drop);
  for (int64_t i = 0; i < edges.targets; ++i) {
    const int64_t first = first_slot(edges, i), count = first_slot(edges, i + 1) - first;
    const uint64_t row_key = dropout_row_key(chance.key, dropout.node == nullptr ? i : dropout.node[i]);
    for (int64_t column = 0; column < count * heads; ++column) {
      keep[first * heads + column] = dropout_keeps(chance, row_key, column) ? 1 : 0;
    }
  }
}

}  // namespace pyg_batchgnn
