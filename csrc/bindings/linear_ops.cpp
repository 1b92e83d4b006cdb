#include <algorithm>
#include <cstring>

#include "bindings/operators.h"
#include "bindings/tensors.h"
#include "kernels/nn/linear.h"

namespace pyg_batchgnn {
namespace {

std::vector<LinearInput> inputs_of(const std::vector<Tensor>& tensors,
                                   const std::vector<OptionalTensor>& rows,
                                   const std::vector<OptionalTensor>& decodings) {
  std::vector<LinearInput> inputs;
  for (size_t t = 0; t < tensors.size(); ++t) {
    inputs.push_back({matrix(tensors[t], decodings[t]), integers(rows[t]), tensors[t].size(1)});
  }
  return inputs;
}

std::vector<LinearWeight> weights_of(const std::vector<Tensor>& tensors) {
  std::vector<LinearWeight> weights;
  for (const Tensor& weight : tensors) {
    weights.push_back({weight.const_data_ptr(), element_of(weight.scalar_type())});
  }
  return weights;
}

}  // namespace

namespace operators {

TwoTensors linear(const std::vector<Tensor>& inputs, const std::vector<OptionalTensor>& rows,
                  const std::vector<OptionalTensor>& decodings, const std::vector<Tensor>& weights,
                  const OptionalTensor& bias, int64_t num_rows, int64_t groups, ScalarType out_dtype,
                  bool relu, double drop, int64_t key, const OptionalTensor& node,
                  bool /* of the gradients */, int64_t threads) {
  const LinearShape shape{num_rows, weights[0].size(0), groups, element_of(out_dtype)};
  const bool masked = relu || drop > 0;
  Tensor y = new_tensor({num_rows, shape.outputs}, out_dtype);
  Tensor mask = new_array<uint8_t>({masked ? num_rows : 0, masked ? (shape.outputs + 7) / 8 : 0});
  const LinearUpdate update{pointer(bias),
                            bias ? element_of(bias->scalar_type()) : Element::kFloat32,
                            relu,
                            drop,
                            static_cast<uint64_t>(key),
                            data_or_null<int64_t>(node)};
  const LinearOutput output{y.mutable_data_ptr(), masked ? mutable_data<uint8_t>(mask) : nullptr};
  pyg_batchgnn::linear({shape, inputs_of(inputs, rows, decodings), weights_of(weights), update, output},
                       threads);
  return {std::move(y), std::move(mask)};
}

ThreeTensors linear_moments(const Tensor& x, const OptionalTensor& decoding, const Tensor& weight,
                            const OptionalTensor& bias, ScalarType out_dtype, int64_t threads) {
  const LinearShape shape{x.size(0), weight.size(0), 1, element_of(out_dtype)};
  Tensor y = new_tensor({shape.rows, shape.outputs}, out_dtype);
  Column mean(shape.outputs), variance(shape.outputs);
  const LinearUpdate update{
      pointer(bias), bias ? element_of(bias->scalar_type()) : Element::kFloat32, false, 0.0, 0, nullptr};
  const LinearOutput output{y.mutable_data_ptr(), nullptr, {mean.data(), variance.data()}};
  const std::vector<LinearInput> inputs = inputs_of({x}, {std::nullopt}, {decoding});
  pyg_batchgnn::linear({shape, inputs, weights_of({weight}), update, output}, threads);
  const double rows = static_cast<double>(std::max<int64_t>(1, shape.rows));
  for (int64_t o = 0; o < shape.outputs; ++o) variance.data()[o] /= rows;
  return {std::move(y), std::move(mean).tensor(), std::move(variance).tensor()};
}

namespace {

// Returns the wanted gradients, given that of the result.
std::tuple<std::vector<Tensor>, std::vector<Tensor>, Tensor> gradients_of(
    const LinearShape& shape, const LinearGradient& gradient, const std::vector<LinearInput>& from,
    const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights,
    const std::vector<bool>& need_input, bool need_weight, bool need_bias, int64_t threads) {
  std::vector<Tensor> input_grads, weight_grads;
  LinearWanted wanted{{}, {}, nullptr};
  for (size_t t = 0; t < inputs.size(); ++t) {
    const int64_t all_rows = need_input[t] ? inputs[t].size(0) : 0;
    input_grads.push_back(new_tensor({all_rows, inputs[t].size(1)}, inputs[t].scalar_type()));
    auto* const first = static_cast<char*>(input_grads.back().mutable_data_ptr());
    wanted.inputs.push_back(need_input[t] ? first : nullptr);
    if (!need_input[t]) continue;
    const int64_t row_bytes = inputs[t].size(1) * element_bytes(element_of(inputs[t].scalar_type()));
    std::memset(first + shape.rows * row_bytes, 0, static_cast<size_t>((all_rows - shape.rows) * row_bytes));
  }
  for (size_t t = 0; need_weight && t < weights.size(); ++t) {
    weight_grads.push_back(new_tensor({weights[t].size(0), weights[t].size(1)}, weights[t].scalar_type()));
    wanted.weights.push_back(weight_grads.back().mutable_data_ptr());
  }
  Tensor bias_grad = new_tensor({need_bias ? shape.outputs : 0}, weights[0].scalar_type());
  if (need_bias) wanted.bias = bias_grad.mutable_data_ptr();
  pyg_batchgnn::linear_grads({shape, from, weights_of(weights), gradient, wanted}, threads);
  return {std::move(input_grads), std::move(weight_grads), std::move(bias_grad)};
}

}  // namespace

std::tuple<std::vector<Tensor>, std::vector<Tensor>, Tensor> linear_grads(
    const Tensor& grad, const Tensor& mask, double scale, const std::vector<Tensor>& inputs,
    const std::vector<OptionalTensor>& rows, const std::vector<OptionalTensor>& decodings,
    const std::vector<Tensor>& weights, int64_t groups, bool after_relu, std::vector<bool> need_input,
    bool need_weight, bool need_bias, int64_t threads) {
  const LinearShape shape{grad.size(0), grad.size(1), groups, element_of(grad.scalar_type())};
  std::vector<LinearInput> from = inputs_of(inputs, rows, decodings);
  for (LinearInput& input : from) input.after_relu = after_relu;
  const LinearGradient gradient{grad.const_data_ptr(), shape.compute,
                                mask.numel() != 0 ? data<uint8_t>(mask) : nullptr, scale};
  return gradients_of(shape, gradient, from, inputs, weights, need_input, need_weight, need_bias, threads);
}

TwoTensors linear_grads_normed(const Tensor& grad, const Tensor& normed, const Tensor& columns, bool relu,
                               const Tensor& input, const OptionalTensor& decoding, const Tensor& weight,
                               bool after_relu, bool need_input, int64_t threads) {
  const LinearShape shape{grad.size(0), grad.size(1), 1, element_of(grad.scalar_type())};
  std::vector<LinearInput> from = inputs_of({input}, {std::nullopt}, {decoding});
  from.front().after_relu = after_relu;
  const NormedRows norm{normed.const_data_ptr(), columns.const_data_ptr(), relu};
  const LinearGradient gradient{grad.const_data_ptr(), shape.compute, nullptr, 1.0, &norm};
  auto [d_input, d_weight, none] =
      gradients_of(shape, gradient, from, {input}, {weight}, {need_input}, true, false, threads);
  return {std::move(d_input.front()), std::move(d_weight.front())};
}

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(linear,
             "(Tensor[] inputs, Tensor?[] rows, Tensor?[] decodings, Tensor[] weights, Tensor? bias, int "
             "num_rows, int groups, ScalarType out_dtype, bool relu, float drop, int key, Tensor? node, "
             "bool after_relu, int threads) -> (Tensor y, Tensor mask)"),
    OPERATOR(linear_moments,
             "(Tensor x, Tensor? decoding, Tensor weight, Tensor? bias, ScalarType out_dtype, int threads) "
             "-> (Tensor y, Tensor mean, Tensor variance)"),
    OPERATOR(linear_grads,
             "(Tensor grad, Tensor mask, float scale, Tensor[] inputs, Tensor?[] rows, Tensor?[] decodings, "
             "Tensor[] weights, int groups, bool after_relu, bool[] need_input, bool "
             "need_weight, bool need_bias, int threads) -> (Tensor[] inputs, Tensor[] weights, Tensor bias)"),
    OPERATOR(linear_grads_normed,
             "(Tensor grad, Tensor normed, Tensor columns, bool relu, Tensor input, Tensor? decoding, "
             "Tensor weight, bool after_relu, bool need_input, int threads) -> (Tensor input, Tensor "
             "weight)"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
