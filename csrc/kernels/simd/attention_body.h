// The loops of attention.h.
#include "kernels/simd/row_products_body.h"
#include "kernels/simd/softmax_body.h"

// Returns the number of list entries between the prefetch of a row and its use.
inline int64_t rows_ahead(int64_t row_bytes) {
  constexpr int64_t kBytes = 6400;
  const int64_t rows = kBytes / (row_bytes + 1) + 2;
  return rows < kMostRowsAhead ? rows : kMostRowsAhead;
}

// The arrays of one destination, cut from the scratch memory of the block.
template <class Sum>
struct Place {
  Sum *logits, *weights, *grads;  // [edges, heads]
  Sum *row, *narrow;              // [heads, columns], [columns]
  Sum *total, *target;            // [heads]

  Place(void* scratch, int64_t longest, const AttentionWeights& of) {
    const int64_t edges = padded(longest * of.heads) + 16, heads = padded(of.heads);
    auto* next = static_cast<Sum*>(scratch);
    const auto take = [&next](int64_t count) {
      Sum* const taken = next;
      next += count;
      return taken;
    };
    logits = take(edges);
    weights = take(edges);
    grads = take(edges);
    total = take(heads);
    target = take(heads);
    row = take(of.heads * of.columns);
    narrow = take(of.columns);
  }
};

inline int64_t longest_list(const AttentionBlock& block) {
  int64_t longest = 0;
  for (int64_t d = 0; d < block.targets; ++d) {
    const int64_t count = block.begin[d + 1] - block.begin[d];
    longest = count > longest ? count : longest;
  }
  return longest;
}

// One destination of a block.
template <class T>
struct Target {
  int64_t id, begin, count, first_slot, slots;
  const T* const* rows;
  const int32_t* place;

  Target(const AttentionBlock& block, int64_t d)
      : id(block.first + d),
        begin(block.begin[d]),
        count(block.begin[d + 1] - begin),
        first_slot(block.slots[d]),
        slots(block.slots[d + 1] - first_slot),
        rows(reinterpret_cast<const T* const*>(block.rows) + begin),
        place(block.place + begin) {}

  // Reads the entries of an array over slots for the edges that were not replaced.
  template <class Value>
  void read(const Value* all, int64_t heads, Value* to) const {
    const Value* from = all + first_slot * heads;
    for (int64_t e = 0; e < count; ++e) {
      for (int64_t h = 0; h < heads; ++h) to[e * heads + h] = from[place[e] * heads + h];
    }
  }

  template <class Value>
  void write(const Value* from, int64_t heads, Value* all) const {
    Value* to = all + first_slot * heads;
    if (count < slots) {
      for (int64_t i = 0; i < slots * heads; ++i) to[i] = 0;
    }
    for (int64_t e = 0; e < count; ++e) {
      for (int64_t h = 0; h < heads; ++h) to[place[e] * heads + h] = from[e * heads + h];
    }
  }
};

// out[e, h] = rows[e] . vectors[h] for all edges of a destination. Later rows are prefetched.
template <class T>
inline void edge_dots(const Target<T>& target, const Wide<T>* vectors, const AttentionWeights& of,
                      int64_t ahead, Wide<T>* out) {
  const int64_t H = of.heads, K = of.columns;
  int64_t e = 0;
  for (; e + 2 <= target.count; e += 2) {
    dots<2>(target.rows + e, vectors, K, K, out + e * H, H, ahead);
  }
  if (e < target.count) dots<1>(target.rows + e, vectors, K, K, out + e * H, H, ahead);
}

// Forward #########################################################################################

// Computes the terms that all logits of a destination share.
template <class T>
inline void target_logits(const AttentionForward& task, const AttentionBlock& block, int64_t d,
                          Wide<T>* out) {
  using Sum = Wide<T>;
  const AttentionWeights& of = task.weights;
  if (of.target != nullptr) {
    const auto* const* self = reinterpret_cast<const T* const*>(block.self) + d;
    dots<1>(self, static_cast<const Sum*>(of.target), of.columns, of.columns, out, of.heads, 0);
  } else {
    for (int64_t h = 0; h < of.heads; ++h) out[h] = 0;
  }
  if (task.target_logits == nullptr) return;
  const Sum* more = static_cast<const Sum*>(task.target_logits) + (block.first + d) * of.heads;
  for (int64_t h = 0; h < of.heads; ++h) out[h] += more[h];
}

template <class T>
inline void edge_logits(const AttentionForward& task, const Target<T>& target, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads;
  for (int64_t e = 0; e < target.count; ++e) {
    for (int64_t h = 0; h < H; ++h) at.logits[e * H + h] += at.target[h];
  }
  if (task.edge_logits == nullptr) return;
  target.read(static_cast<const Sum*>(task.edge_logits), H, at.weights);
  for (int64_t i = 0; i < target.count * H; ++i) at.logits[i] += at.weights[i];
}

// Stores the softmax, with the side of the leaky ReLU as its sign, and applies dropout.
template <class T>
inline void keep_coefficients(const AttentionForward& task, const AttentionBlock& block,
                              const Target<T>& target, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads, count = target.count * H;
  for (int64_t i = 0; i < count; ++i) at.logits[i] = at.logits[i] > 0 ? at.weights[i] : -at.weights[i];
  target.write(at.logits, H, static_cast<Sum*>(task.coefficient));
  if (block.keep == nullptr) return;
  const uint8_t* keep = block.keep + target.begin * H;
  const auto scale = static_cast<Sum>(task.weights.scale);
  for (int64_t i = 0; i < count; ++i) at.weights[i] *= keep[i] != 0 ? scale : Sum{0};
}

template <class T>
void forward_targets(const AttentionForward& task, const AttentionBlock& block) {
  using Sum = Wide<T>;
  const AttentionWeights& of = task.weights;
  const int64_t H = of.heads, K = of.columns;
  const Place<Sum> at(block.scratch, longest_list(block), of);
  const int64_t ahead = rows_ahead(K * static_cast<int64_t>(sizeof(T)));
  const bool direct = task.out_type == Element::kFloat32 || task.out_type == Element::kFloat64;
  const int64_t out_size = direct ? sizeof(Sum) : 2;
  for (int64_t d = 0; d < block.targets; ++d) {
    const Target<T> target(block, d);
    edge_dots(target, static_cast<const Sum*>(of.source), of, ahead, at.logits);
    target_logits<T>(task, block, d, at.target);
    edge_logits(task, target, at);
    softmax(at.logits, target.count, H, static_cast<Sum>(of.slope), at.weights);
    keep_coefficients(task, block, target, at);
    char* const out = static_cast<char*>(task.out) + target.id * H * K * out_size;
    Sum* const row = direct && !task.stream ? reinterpret_cast<Sum*>(out) : at.row;
    sums(target.rows, target.count, at.weights, H, K, row, K, Into::kFresh, ahead);
    if (!direct) narrow_row(row, H * K, task.out_type, out);
    if (task.stream) stream_row(row, H * K, reinterpret_cast<Sum*>(out));
  }
  if (task.stream) fence();
}

// Backward ########################################################################################

// Converts gradients of alpha to those of the softmax, and adds those of the returned coefficients.
template <class T>
inline void softmax_upstream(const AttentionBackward& task, const AttentionBlock& block,
                             const Target<T>& target, const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads, count = target.count * H;
  if (block.keep != nullptr) {
    const uint8_t* keep = block.keep + target.begin * H;
    const auto scale = static_cast<Sum>(task.weights.scale);
    for (int64_t i = 0; i < count; ++i) at.grads[i] *= keep[i] != 0 ? scale : Sum{0};
  }
  if (task.grad_coefficient == nullptr) return;
  target.read(static_cast<const Sum*>(task.grad_coefficient), H, at.logits);
  for (int64_t i = 0; i < count; ++i) at.grads[i] += at.weights[i] < 0 ? -at.logits[i] : at.logits[i];
}

// Stores alpha and the gradient of its logit side by side, for the pass over sources.
template <class T>
inline void keep_pairs(const AttentionBackward& task, const AttentionBlock& block, const Target<T>& target,
                       const Place<Wide<T>>& at) {
  using Sum = Wide<T>;
  const int64_t H = task.weights.heads;
  const uint8_t* keep = block.keep == nullptr ? nullptr : block.keep + target.begin * H;
  const auto scale = static_cast<Sum>(task.weights.scale);
  Sum* const pairs = static_cast<Sum*>(task.pairs) + target.first_slot * 2 * H;
  for (int64_t e = 0; e < target.count; ++e) {
    Sum* const pair = pairs + target.place[e] * 2 * H;
    for (int64_t h = 0; h < H; ++h) {
      const Sum signed_weight = at.weights[e * H + h];
      const Sum alpha = signed_weight < 0 ? -signed_weight : signed_weight;
      pair[h] = keep == nullptr ? alpha : keep[e * H + h] != 0 ? alpha * scale : 0;
      pair[H + h] = at.grads[e * H + h];
    }
  }
}

template <class T>
void backward_targets(const AttentionBackward& task, const AttentionBlock& block) {
  using Sum = Wide<T>;
  const AttentionWeights& of = task.weights;
  const int64_t H = of.heads, K = of.columns;
  const Place<Sum> at(block.scratch, longest_list(block), of);
  const int64_t ahead = rows_ahead(K * static_cast<int64_t>(sizeof(T)));
  const bool narrow = task.grad_type == Element::kBFloat16;
  const int64_t grad_size = narrow ? 2 : sizeof(Sum);
  auto* const source_weight = static_cast<Sum*>(task.partial);
  for (int64_t d = 0; d < block.targets; ++d) {
    const Target<T> target(block, d);
    const char* const from = static_cast<const char*>(task.grad) + target.id * H * K * grad_size;
    const Sum* const grad = widen_row(from, task.grad_type, H * K, at.row);
    edge_dots(target, grad, of, ahead, at.grads);
    target.read(static_cast<const Sum*>(task.coefficient), H, at.weights);
    softmax_upstream(task, block, target, at);
    softmax_grad(at.weights, target.count, H, static_cast<Sum>(of.slope), at.grads, at.total);
    Sum* const target_grad = static_cast<Sum*>(task.target_logits) + target.id * H;
    for (int64_t h = 0; h < H; ++h) target_grad[h] = at.total[h];
    sums(target.rows, target.count, at.grads, H, K, source_weight, K, Into::kAdd, ahead);
    if (of.target != nullptr) {
      const auto* const* self = reinterpret_cast<const T* const*>(block.self) + d;
      sums(self, 1, at.total, H, K, source_weight + H * K, K, Into::kAdd, 0);
    }
    if (task.edge_logits != nullptr) target.write(at.grads, H, static_cast<Sum*>(task.edge_logits));
    if (task.pairs != nullptr) keep_pairs(task, block, target, at);
  }
}

// Gradient of the inputs ##########################################################################

// dx_j = sum over (i, h) of alpha_ijh G_ih, plus logits' gradients times weights.
template <class Grad>
void input_grads(const AttentionInputGrad& task, const AttentionSources& block) {
  using Sum = Wide<Grad>;
  const AttentionWeights& of = task.weights;
  const int64_t H = of.heads, K = of.columns;
  const Place<Sum> at(block.scratch, 0, of);
  const bool narrow = task.out_type == Element::kBFloat16;
  const int64_t out_size = narrow ? 2 : sizeof(Sum);
  const auto* const source_weight = static_cast<const Sum*>(of.source);
  const auto* const target_weight = static_cast<const Sum*>(of.target);
  for (int64_t s = 0; s < block.sources; ++s) {
    const int64_t id = block.first + s;
    char* const to = static_cast<char*>(task.out) + id * K * out_size;
    Sum* const row = narrow ? at.narrow : reinterpret_cast<Sum*>(to);
    for (int64_t h = 0; h < H; ++h) at.total[h] = 0;
    for (int64_t k = 0; k < K; ++k) row[k] = 0;
    for (int64_t e = block.begin[s]; e < block.begin[s + 1]; ++e) {
      const auto* const pair = static_cast<const Sum*>(block.pairs[e]);
      const auto* const grad = reinterpret_cast<const Grad*>(block.grads[e]);
      add_heads(grad, pair, H, K, row);
      for (int64_t h = 0; h < H; ++h) at.total[h] += pair[H + h];
    }
    add_heads(source_weight, at.total, H, K, row);
    if (target_weight != nullptr && id < task.targets) {
      add_heads(target_weight, static_cast<const Sum*>(task.target_logits) + id * H, H, K, row);
    }
    if (narrow) narrow_row(row, K, task.out_type, to);
  }
}

// By type #########################################################################################

void forward_block(Element type, const AttentionForward& task, const AttentionBlock& block) {
  switch (type) {
    case Element::kFloat32:
      return forward_targets<float>(task, block);
    case Element::kFloat16:
      return forward_targets<Half>(task, block);
    case Element::kBFloat16:
      return forward_targets<Bfloat16>(task, block);
    case Element::kFloat64:
      return forward_targets<double>(task, block);
  }
}

void backward_block(Element type, const AttentionBackward& task, const AttentionBlock& block) {
  switch (type) {
    case Element::kFloat32:
      return backward_targets<float>(task, block);
    case Element::kFloat16:
      return backward_targets<Half>(task, block);
    case Element::kBFloat16:
      return backward_targets<Bfloat16>(task, block);
    case Element::kFloat64:
      return backward_targets<double>(task, block);
  }
}

void input_grad_block(const AttentionInputGrad& task, const AttentionSources& block) {
  switch (task.grad_type) {
    case Element::kFloat32:
      return input_grads<float>(task, block);
    case Element::kBFloat16:
      return input_grads<Bfloat16>(task, block);
    case Element::kFloat64:
      return input_grads<double>(task, block);
    case Element::kFloat16:  // never written
      return;
  }
}

constexpr AttentionKernels kAttentionKernels{&forward_block, &backward_block, &input_grad_block};
