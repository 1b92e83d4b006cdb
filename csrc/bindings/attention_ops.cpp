#include <algorithm>

#include "bindings/elements.h"
#include "bindings/operators.h"
#include "kernels/nn/attention.h"

namespace pyg_batchgnn {
namespace {

const void* pointer(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? tensor->const_data_ptr() : nullptr;
}

Integers integers(const Tensor& tensor) { return {tensor.const_data_ptr(), is_wide(tensor)}; }

const int64_t* longs(const std::optional<Tensor>& tensor) {
  return static_cast<const int64_t*>(pointer(tensor));
}

AttentionRows rows_of(const Tensor& x, const std::optional<Tensor>& row) {
  return {{x.const_data_ptr(), element_of(x.scalar_type()), x.stride(0)},
          row.has_value() ? integers(*row) : Integers{},
          x.size(1)};
}

// A result and its memory.
struct Result {
  Tensor tensor;
  void* data;
};

Result make_result(const std::vector<int64_t>& sizes, ScalarType type) {
  int64_t bytes = element_bytes(element_of(type));
  for (const int64_t size : sizes) bytes *= size;
  void* const block = allocate_block(static_cast<size_t>(std::max<int64_t>(1, bytes)));
  return {adopt_block(block, sizes, type), block};
}

AttentionEdges edges_of(const Tensor& indptr, const Tensor& indices, int64_t targets, int64_t loops) {
  return {data<int64_t>(indptr), integers(indices), targets, loops};
}

}  // namespace

namespace operators {

std::tuple<Tensor, Tensor> attention(const Tensor& x, const std::optional<Tensor>& row, const Tensor& indptr,
                                     const Tensor& indices, const Tensor& source_weight,
                                     const std::optional<Tensor>& target_weight,
                                     const std::optional<Tensor>& target_logits,
                                     const std::optional<Tensor>& edge_logits,
                                     const std::optional<Tensor>& node,
                                     const std::vector<Tensor>& /*by_source*/, int64_t num_targets,
                                     int64_t num_loops, double negative_slope, double drop, int64_t key,
                                     ScalarType out_dtype, int64_t threads) {
  const int64_t heads = source_weight.size(0), columns = x.size(1);
  const AttentionInput input{edges_of(indptr, indices, num_targets, num_loops),
                             rows_of(x, row),
                             {drop, static_cast<uint64_t>(key), longs(node)},
                             {heads, negative_slope, source_weight.const_data_ptr(), pointer(target_weight)}};
  const Result out = make_result({num_targets, heads * columns}, out_dtype);
  const Result coefficient = make_result({attention_slots(input.edges), heads}, source_weight.scalar_type());
  attention_forward(input, pointer(target_logits), pointer(edge_logits),
                    {out.data, element_of(out_dtype), coefficient.data}, threads);
  return {out.tensor, coefficient.tensor};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> attention_grads(
    const Tensor& grad, const std::optional<Tensor>& grad_coefficient, const Tensor& coefficient,
    const Tensor& x, const std::optional<Tensor>& row, const Tensor& indptr, const Tensor& indices,
    const Tensor& source_weight, const std::optional<Tensor>& target_weight,
    const std::optional<Tensor>& node, const std::vector<Tensor>& by_source, int64_t num_targets,
    int64_t num_loops, double negative_slope, double drop, int64_t key, bool need_edge_logits,
    int64_t threads) {
  const int64_t heads = source_weight.size(0), columns = x.size(1);
  const ScalarType wide = source_weight.scalar_type();
  const AttentionInput input{edges_of(indptr, indices, num_targets, num_loops),
                             rows_of(x, row),
                             {drop, static_cast<uint64_t>(key), longs(node)},
                             {heads, negative_slope, source_weight.const_data_ptr(), pointer(target_weight)}};
  const bool need_x = !by_source.empty();
  AttentionTranspose transpose{};
  if (need_x) {
    const Tensor &ptr = by_source[0], &targets = by_source[1], &edge = by_source[2];
    transpose = {data<int64_t>(ptr), integers(targets), integers(edge), ptr.numel() - 1};
  }
  const int64_t slots = need_edge_logits ? attention_slots(input.edges) : 0;
  const Result source_grad = make_result({heads, columns}, wide);
  const Result target_grad = make_result({heads, columns}, wide);
  const Result target_logits = make_result({num_targets, heads}, wide);
  const Result edge_logits = make_result({slots, heads}, wide);
  const Result x_grad = make_result({need_x ? transpose.sources : 0, columns}, x.scalar_type());
  attention_backward(input,
                     {grad.const_data_ptr(), element_of(grad.scalar_type()), coefficient.const_data_ptr(),
                      pointer(grad_coefficient)},
                     transpose,
                     {source_grad.data, target_grad.data, target_logits.data,
                      need_edge_logits ? edge_logits.data : nullptr, need_x ? x_grad.data : nullptr},
                     threads);
  return {source_grad.tensor, target_grad.tensor, target_logits.tensor, edge_logits.tensor, x_grad.tensor};
}

Tensor attention_keep(const Tensor& indptr, const std::optional<Tensor>& node, int64_t num_targets,
                      int64_t num_loops, int64_t heads, double drop, int64_t key) {
  const AttentionEdges edges{data<int64_t>(indptr), Integers{}, num_targets, num_loops};
  Buffer<uint8_t> keep;
  const int64_t slots = attention_slots(edges);
  pyg_batchgnn::attention_keep(edges, {drop, static_cast<uint64_t>(key), longs(node)}, heads,
                               keep.reserve(slots * heads));
  return adopt_block(keep.take(), {slots, heads}, ScalarType::Byte);
}

}  // namespace operators
}  // namespace pyg_batchgnn
