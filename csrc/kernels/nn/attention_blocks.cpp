#include "kernels/nn/attention_blocks.h"

#include <algorithm>

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlocks = 256;  // blocks per minibatch, the largest number of threads with work
constexpr int64_t kFewestRows = 64, kMostRows = 1024;
constexpr int64_t kEntries = 8192;  // their lists stay in the second cache

int64_t wide_size(Element type) { return type == Element::kFloat64 ? 8 : 4; }

}  // namespace

RowBlocks::RowBlocks(const int64_t* ptr, int64_t rows) {
  const int64_t most = std::clamp((rows + kBlocks - 1) / kBlocks, kFewestRows, kMostRows);
  int64_t* const first = first_.reserve(rows + 1);
  first[0] = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t begin = first[count_];
    if (i > begin && (i - begin == most || ptr[i + 1] - ptr[begin] > kEntries)) first[++count_] = i;
  }
  if (rows > 0) first[++count_] = rows;
}

// Destinations ####################################################################################

TargetBlocks::TargetBlocks(const AttentionInput& input, int64_t threads)
    : input_(input), blocks_(input.edges.indptr, input.edges.targets), lists_(static_cast<size_t>(threads)) {}

const char* TargetBlocks::row(int64_t source) const {
  const AttentionRows& rows = input_.rows;
  return rows.table.row(rows.row ? rows.row[source] : source);
}

template <class Index>
int64_t TargetBlocks::list_edges(const Index* indices, int64_t first, int64_t last, Lists& lists) const {
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

void TargetBlocks::list_kept(int64_t first, int64_t last, Lists& lists) const {
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

AttentionBlock TargetBlocks::make(int64_t block, int64_t slot) {
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
  lists.scratch.reserve(attention_scratch(longest, input_.model.heads, input_.rows.columns) *
                        wide_size(input_.rows.table.element));
  return {first,
          targets,
          lists.begin.data(),
          lists.rows.data(),
          lists.place.data(),
          drops ? lists.keep.data() : nullptr,
          lists.slots.data(),
          lists.self.data(),
          lists.scratch.data()};
}

// Sources #########################################################################################

SourceBlocks::SourceBlocks(const AttentionInput& input, const AttentionUpstream& upstream,
                           const AttentionTranspose& transpose, const void* pairs, int64_t threads)
    : input_(input),
      transpose_(transpose),
      grad_(static_cast<const char*>(upstream.grad)),
      pairs_(static_cast<const char*>(pairs)),
      grad_bytes_(input.model.heads * input.rows.columns * element_bytes(upstream.type)),
      pair_bytes_(2 * input.model.heads * wide_size(input.rows.table.element)),
      blocks_(transpose.ptr, transpose.sources),
      lists_(static_cast<size_t>(threads)) {}

void SourceBlocks::add(int64_t target, int64_t slot, int64_t at, Lists& lists) const {
  lists.grads.data()[at] = grad_ + target * grad_bytes_;
  lists.pairs.data()[at] = pairs_ + slot * pair_bytes_;
}

AttentionSources SourceBlocks::make(int64_t block, int64_t slot) {
  const AttentionEdges& edges = input_.edges;
  const int64_t first = blocks_.begin(block), last = blocks_.end(block), sources = last - first;
  const int64_t most = transpose_.ptr[last] - transpose_.ptr[first] + sources;
  Lists& lists = lists_[static_cast<size_t>(slot)];
  lists.begin.reserve(sources + 1);
  lists.grads.reserve(most);
  lists.pairs.reserve(most);
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
  lists.scratch.reserve(attention_scratch(0, input_.model.heads, input_.rows.columns) *
                        wide_size(input_.rows.table.element));
  return {first, sources, lists.begin.data(), lists.grads.data(), lists.pairs.data(), lists.scratch.data()};
}

}  // namespace pyg_batchgnn
