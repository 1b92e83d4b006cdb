#include "kernels/nn/attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/allocation.h"
#include "kernels/nn/attention_blocks.h"
#include "kernels/parallel.h"
#include "kernels/simd/attention.h"

namespace pyg_batchgnn {
namespace {

size_t wide_size(Element type) { return type == Element::kFloat64 ? sizeof(double) : sizeof(float); }

AttentionWeights weights_of(const AttentionInput& input) {
  const Dropout dropout(input.dropout.key, input.dropout.drop);
  return {input.model.heads, input.rows.columns,        input.model.slope,
          dropout.scale(),   input.model.source_weight, input.model.target_weight};
}

// Returns whether the output is written past the caches: it has left them before it is read, and
// its rows are whole cache lines. Then its lines need not be read first.
bool writes_past_caches(const AttentionInput& input, const AttentionResult& result) {
  constexpr int64_t kLine = 64, kLarge = 16 << 20;
  if (element_bytes(result.out_type) == 2) return false;
  const int64_t bytes = input.model.heads * input.rows.columns * element_bytes(result.out_type);
  return bytes % kLine == 0 && input.edges.targets * bytes >= kLarge &&
         reinterpret_cast<uintptr_t>(result.out) % kLine == 0;
}

// Sets total[i] to the sum of parts[b][i] in the order of blocks.
template <class Sum>
void add_parts(const void* parts, int64_t blocks, int64_t count, void* total) {
  const auto* part = static_cast<const Sum*>(parts);
  auto* out = static_cast<Sum*>(total);
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int64_t b = 0; b < blocks; ++b) sum += part[b * 2 * count + i];
    out[i] = static_cast<Sum>(sum);
  }
}

void add_weight_grads(Element type, const char* parts, int64_t blocks, int64_t count,
                      const AttentionGrads& grads) {
  const size_t half = static_cast<size_t>(count) * wide_size(type);
  if (type == Element::kFloat64) {
    add_parts<double>(parts, blocks, count, grads.source_weight);
    add_parts<double>(parts + half, blocks, count, grads.target_weight);
  } else {
    add_parts<float>(parts, blocks, count, grads.source_weight);
    add_parts<float>(parts + half, blocks, count, grads.target_weight);
  }
}

// The pass over destinations computes all gradients but that of x. `pairs` is for the other pass,
// or null.
void backward_targets(const AttentionInput& input, const AttentionUpstream& upstream,
                      const AttentionGrads& grads, void* pairs, int64_t threads) {
  const AttentionKernels& kernels = attention_kernels();
  TargetBlocks blocks(input, threads);
  const int64_t count = input.model.heads * input.rows.columns;
  const size_t part_bytes = 2 * static_cast<size_t>(count) * wide_size(input.rows.table.element);
  Buffer<char> parts;
  parts.reserve(std::max<int64_t>(1, blocks.count() * static_cast<int64_t>(part_bytes)));
  run_tasks(blocks.count(), threads, [&](int64_t task, int64_t slot) {
    char* const part = parts.data() + static_cast<size_t>(task) * part_bytes;
    std::memset(part, 0, part_bytes);
    const AttentionBackward work{
        weights_of(input),   upstream.coefficient, upstream.grad, upstream.type, upstream.grad_coefficient,
        grads.target_logits, grads.edge_logits,    pairs,         part};
    kernels.backward(input.rows.table.element, work, blocks.make(task, slot));
  });
  add_weight_grads(input.rows.table.element, parts.data(), blocks.count(), count, grads);
}

}  // namespace

int64_t attention_slots(const AttentionEdges& edges) {
  return edges.indptr[edges.targets] + std::max<int64_t>(edges.loops, 0);
}

void attention_forward(const AttentionInput& input, const void* target_logits, const void* edge_logits,
                       const AttentionResult& result, int64_t threads) {
  const AttentionKernels& kernels = attention_kernels();
  const AttentionForward work{weights_of(input), target_logits,   edge_logits,
                              result.out,        result.out_type, writes_past_caches(input, result),
                              result.coefficient};
  TargetBlocks blocks(input, threads);
  run_tasks(blocks.count(), threads, [&](int64_t task, int64_t slot) {
    kernels.forward(input.rows.table.element, work, blocks.make(task, slot));
  });
}

void attention_backward(const AttentionInput& input, const AttentionUpstream& upstream,
                        const AttentionTranspose& transpose, const AttentionGrads& grads, int64_t threads) {
  Buffer<char> pairs;
  const int64_t pair_bytes =
      2 * input.model.heads * static_cast<int64_t>(wide_size(input.rows.table.element));
  if (grads.x != nullptr) pairs.reserve(std::max<int64_t>(1, attention_slots(input.edges)) * pair_bytes);
  backward_targets(input, upstream, grads, pairs.data(), threads);
  if (grads.x == nullptr) return;

  const AttentionKernels& kernels = attention_kernels();
  const AttentionInputGrad work{weights_of(input),   upstream.type, grads.target_logits,
                                input.edges.targets, grads.x,       input.rows.table.element};
  SourceBlocks blocks(input, upstream, transpose, pairs.data(), threads);
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
