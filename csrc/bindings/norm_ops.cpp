#include <cmath>

#include "bindings/columns.h"
#include "bindings/operators.h"
#include "kernels/nn/activation.h"
#include "kernels/nn/norm.h"

namespace pyg_batchgnn {
namespace {

template <class T>
Rows<T> rows_of(const Tensor& x) {
  return {data<T>(x), x.size(0), x.size(1)};
}

Epilogue epilogue_of(bool relu) { return relu ? Epilogue::kRelu : Epilogue::kNone; }

Column inverse_deviation(const Column& variance, int64_t columns, double eps) {
  Column inverse(columns);
  for (int64_t c = 0; c < columns; ++c) inverse.data()[c] = 1.0 / std::sqrt(variance.data()[c] + eps);
  return inverse;
}

// Returns the mean and the biased variance of the columns of x.
std::tuple<Column, Column> own_statistics(const Tensor& x, int64_t threads) {
  const int64_t columns = x.size(1);
  Column mean(columns), variance(columns);
  with_float(x, [&](auto type) {
    column_moments(rows_of<decltype(type)>(x), threads, mean.data(), variance.data());
  });
  const double rows = static_cast<double>(std::max<int64_t>(1, x.size(0)));
  for (int64_t c = 0; c < columns; ++c) variance.data()[c] /= rows;
  return {std::move(mean), std::move(variance)};
}

}  // namespace

namespace operators {

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias,
                                              const std::optional<Tensor>& mean,
                                              const std::optional<Tensor>& variance, double eps, bool relu,
                                              int64_t threads) {
  auto [means, variances] =
      mean.has_value() ? std::tuple(copy_of(*mean), copy_of(*variance)) : own_statistics(x, threads);
  const Column inverse = inverse_deviation(variances, x.size(1), eps);
  const auto scale = copy_of(weight), shift = copy_of(bias);
  const Normalisation by{means.data(), inverse.data(), pointer(scale), pointer(shift)};
  Tensor y = empty_like_block(x);
  with_float(x, [&](auto type) {
    using T = decltype(type);
    pyg_batchgnn::batch_norm(rows_of<T>(x), by, epilogue_of(relu), threads, mutable_data<T>(y));
  });
  return {std::move(y), std::move(means).tensor(), std::move(variances).tensor()};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_grads(const Tensor& grad, const Tensor& x,
                                                    const std::optional<Tensor>& weight,
                                                    const std::optional<Tensor>& bias, const Tensor& mean,
                                                    const Tensor& variance, double eps, bool relu,
                                                    bool own_statistics, int64_t threads) {
  const Column means = copy_of(mean);
  const Column inverse = inverse_deviation(copy_of(variance), x.size(1), eps);
  const auto scale = copy_of(weight), shift = copy_of(bias);
  const Normalisation by{means.data(), inverse.data(), pointer(scale), pointer(shift)};
  const Statistics statistics = own_statistics ? Statistics::kOwn : Statistics::kGiven;
  Column d_weight(x.size(1)), d_bias(x.size(1));
  Tensor d_x = empty_like_block(x);
  with_float(x, [&](auto type) {
    using T = decltype(type);
    pyg_batchgnn::batch_norm_grads(rows_of<T>(x), data<T>(grad), by, epilogue_of(relu), statistics, threads,
                                   mutable_data<T>(d_x), d_weight.data(), d_bias.data());
  });
  return {std::move(d_x), std::move(d_weight).tensor(), std::move(d_bias).tensor()};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_grad_columns(const Tensor& grad, const Tensor& x,
                                                           const std::optional<Tensor>& weight,
                                                           const std::optional<Tensor>& bias,
                                                           const Tensor& mean, const Tensor& variance,
                                                           const std::optional<Tensor>& sums, double eps,
                                                           bool relu, int64_t threads) {
  const int64_t columns = x.size(1);
  const Column means = copy_of(mean);
  const Column inverse = inverse_deviation(copy_of(variance), columns, eps);
  const auto scale = copy_of(weight), shift = copy_of(bias);
  const Normalisation by{means.data(), inverse.data(), pointer(scale), pointer(shift)};
  Column d_weight(columns), d_bias(columns);
  std::optional<Tensor> of;
  with_float(x, [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    Buffer<A> values;
    const GradientColumns<A> out{values.reserve(GradientColumns<A>::kRows * columns + 1), columns};
    pyg_batchgnn::batch_norm_grad_columns(rows_of<T>(x), data<T>(grad), sums ? data<double>(*sums) : nullptr,
                                          by, epilogue_of(relu), Statistics::kOwn, threads, out,
                                          d_weight.data(), d_bias.data());
    of = adopt_block(values.take(), {GradientColumns<A>::kRows, columns},
                     sizeof(A) == sizeof(double) ? ScalarType::Double : ScalarType::Float);
  });
  return {std::move(*of), std::move(d_weight).tensor(), std::move(d_bias).tensor()};
}

Tensor batch_norm_columns(const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                          const Tensor& mean, const Tensor& variance, double eps) {
  const int64_t columns = mean.size(0);
  const Column means = copy_of(mean);
  const Column inverse = inverse_deviation(copy_of(variance), columns, eps);
  const auto scale = copy_of(weight), shift = copy_of(bias);
  Buffer<float> values;
  affine_columns({means.data(), inverse.data(), pointer(scale), pointer(shift)}, columns,
                 values.reserve(3 * columns + 1));
  return adopt_block(values.take(), {3, columns}, ScalarType::Float);
}

Tensor activate_(const Tensor& x, bool relu, double drop, int64_t key, const std::optional<Tensor>& node,
                 int64_t threads) {
  const MatrixSize size{x.size(0), x.size(1)};
  const Dropout dropout(static_cast<uint64_t>(key), drop);
  const Activation activation{relu, drop > 0.0 ? &dropout : nullptr,
                              node.has_value() ? data<int64_t>(*node) : nullptr};
  Buffer<uint8_t> mask;
  mask.reserve(size.rows * size.mask_bytes() + 1);
  with_float(x, [&](auto type) {
    pyg_batchgnn::activate(mutable_data<decltype(type)>(x), size, activation, threads, mask.data());
  });
  return adopt_block(mask.take(), {size.rows, size.mask_bytes()}, ScalarType::Byte);
}

Tensor mask_grad(const Tensor& grad, const Tensor& mask, double scale, int64_t threads) {
  Tensor out = empty_like_block(grad);
  with_float(grad, [&](auto type) {
    using T = decltype(type);
    mask_gradient(data<T>(grad), data<uint8_t>(mask), {grad.size(0), grad.size(1)}, scale, threads,
                  mutable_data<T>(out));
  });
  return out;
}

}  // namespace operators
}  // namespace pyg_batchgnn
