#include <algorithm>

#include "bindings/columns.h"
#include "bindings/elements.h"
#include "bindings/operators.h"
#include "kernels/nn/covariance.h"
#include "kernels/nn/folded_norm.h"

namespace pyg_batchgnn {
namespace {

// Returns a matrix of doubles as a tensor.
Tensor matrix(Buffer<double> values, int64_t rows, int64_t columns) {
  values.reserve(1);
  return adopt_block(values.take(), {rows, columns}, ScalarType::Double);
}

FoldedNorm norm_of(const Tensor& weight, const Column& values, const std::optional<Column>& scale,
                   double eps) {
  return {weight.size(0), weight.size(1), values.data(), pointer(scale), eps};
}

// Returns the rows of the weight times `factor`, in the dtype of `like`, rounded to `compute`.
Tensor scaled_rows(const FoldedNorm& norm, const double* factor, const Tensor& like, ScalarType compute) {
  Tensor out = empty_like_block(like);
  with_float(like, [&](auto type) {
    using T = decltype(type);
    for (int64_t o = 0; o < norm.outputs; ++o) {
      for (int64_t k = o * norm.columns; k < (o + 1) * norm.columns; ++k) {
        double value = norm.weight[k] * factor[o];
        if (compute == ScalarType::BFloat16) value = widen(narrow<Bfloat16>(static_cast<float>(value)));
        mutable_data<T>(out)[k] = narrow<T>(static_cast<Wide<T>>(value));
      }
    }
  });
  return out;
}

// Returns shift - folded * mean. The constant removes the contribution of the mean to the product
// with the rounded weight.
Tensor constant_of(const Tensor& folded, const std::optional<Column>& shift, const double* mean) {
  const int64_t outputs = folded.size(0), columns = folded.size(1);
  const Column rounded = copy_of(folded);
  Tensor out = empty_like_block(folded, {outputs});
  with_float(folded, [&](auto type) {
    using T = decltype(type);
    for (int64_t o = 0; o < outputs; ++o) {
      double value = shift ? shift->data()[o] : 0.0;
      for (int64_t k = 0; k < columns; ++k) value -= rounded.data()[o * columns + k] * mean[k];
      mutable_data<T>(out)[o] = narrow<T>(static_cast<Wide<T>>(value));
    }
  });
  return out;
}

}  // namespace

namespace operators {

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> fold_norm(const Tensor& x, const Tensor& weight,
                                                                     const std::optional<Tensor>& scale,
                                                                     const std::optional<Tensor>& shift,
                                                                     double eps, ScalarType compute,
                                                                     int64_t threads) {
  const int64_t outputs = weight.size(0), columns = weight.size(1);
  Column x_mean(columns), mean(outputs), variance(outputs), factor(outputs);
  Buffer<double> covariance, spread;
  covariance.reserve(columns * columns + 1);
  spread.reserve(outputs * columns + 1);
  const LinearInput input{
      x.const_data_ptr(), element_of(x.scalar_type()), x.stride(0), nullptr, false, columns};
  if (x.scalar_type() == ScalarType::Double) {
    column_covariance<double>(input, x.size(0), threads, x_mean.data(), covariance.data());
  } else {
    column_covariance<float>(input, x.size(0), threads, x_mean.data(), covariance.data());
  }
  const Column values = copy_of(weight);
  const auto scales = copy_of(scale), shifts = copy_of(shift);
  const FoldedNorm norm = norm_of(weight, values, scales, eps);
  pyg_batchgnn::fold_norm(norm, x_mean.data(), covariance.data(), spread.data(), mean.data(), variance.data(),
                          factor.data());
  Tensor folded = scaled_rows(norm, factor.data(), weight, compute);
  Tensor constant = constant_of(folded, shifts, x_mean.data());
  return {std::move(folded),          std::move(constant),
          std::move(mean).tensor(),   std::move(variance).tensor(),
          std::move(x_mean).tensor(), matrix(std::move(spread), outputs, columns)};
}

std::tuple<Tensor, Tensor> fold_norm_grads(const Tensor& d_folded, const Tensor& weight,
                                           const std::optional<Tensor>& scale, const Tensor& variance,
                                           const Tensor& spread, double eps) {
  const Column values = copy_of(weight), gradient = copy_of(d_folded);
  const auto scales = copy_of(scale);
  Column d_weight(weight.numel()), d_scale(weight.size(0));
  pyg_batchgnn::fold_norm_grads(norm_of(weight, values, scales, eps), data<double>(variance),
                                data<double>(spread), gradient.data(), d_weight.data(), d_scale.data());
  Tensor out = empty_like_block(weight);
  with_float(weight, [&](auto type) {
    using T = decltype(type);
    std::transform(d_weight.data(), d_weight.data() + weight.numel(), mutable_data<T>(out),
                   [](double value) { return narrow<T>(static_cast<Wide<T>>(value)); });
  });
  return {std::move(out), std::move(d_scale).tensor()};
}

}  // namespace operators
}  // namespace pyg_batchgnn
