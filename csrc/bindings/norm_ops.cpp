#include <algorithm>
#include <cmath>

#include "bindings/operators.h"
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

// The numbers of a normalisation, and what kernels read of them.
struct NormColumns {
  Column mean, inverse;
  std::optional<Column> scale, shift;

  NormColumns(Column means, const Column& variance, const OptionalTensor& weight, const OptionalTensor& bias,
              int64_t columns, double eps)
      : mean(std::move(means)),
        inverse(inverse_deviation(variance, columns, eps)),
        scale(copy_of(weight)),
        shift(copy_of(bias)) {}

  Normalisation get() const { return {mean.data(), inverse.data(), pointer(scale), pointer(shift)}; }
};

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

// Returns one number per column in the type of the computation, `otherwise` without a tensor.
template <class A>
Buffer<A> columns_of(const OptionalTensor& values, int64_t columns, A otherwise) {
  Buffer<A> copy;
  std::fill_n(copy.reserve(columns + 1), columns, otherwise);
  if (values.has_value()) {
    with_float(*values, [&](auto type) {
      const auto* const from = data<decltype(type)>(*values);
      std::transform(from, from + columns, copy.data(),
                     [](auto value) { return static_cast<A>(widen(value)); });
    });
  }
  return copy;
}

// The mask that an activation of the rows of x writes, which has no rows unless it is wanted.
struct RowMask {
  const bool relu;
  const Dropout dropout;
  const int64_t* const node;
  const Tensor mask;

  RowMask(const Tensor& x, bool wanted, bool relu, double drop, int64_t key, const OptionalTensor& node)
      : relu(relu),
        dropout(static_cast<uint64_t>(key), drop),
        node(data_or_null<int64_t>(node)),
        mask(new_array<uint8_t>({wanted ? x.size(0) : 0, (x.size(1) + 7) / 8})) {}

  Activation activation() const {
    return {relu, dropout.kept_levels < kDropoutLevels ? &dropout : nullptr, node,
            mask.numel() > 0 ? mutable_data<uint8_t>(mask) : nullptr};
  }
};

template <class A>
constexpr int64_t kNormNumbers = sizeof(RowNorm<A>) / sizeof(A);

}  // namespace

namespace operators {

ThreeTensors batch_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                        const OptionalTensor& mean, const OptionalTensor& variance, double eps, bool relu,
                        int64_t threads) {
  auto [means, variances] =
      mean.has_value() ? std::tuple(copy_of(*mean), copy_of(*variance)) : own_statistics(x, threads);
  NormColumns by(std::move(means), variances, weight, bias, x.size(1), eps);
  Tensor y = new_tensor_like(x);
  with_float(x, [&](auto type) {
    using T = decltype(type);
    pyg_batchgnn::batch_norm(rows_of<T>(x), by.get(), epilogue_of(relu), threads, mutable_data<T>(y));
  });
  return {std::move(y), std::move(by.mean).tensor(), std::move(variances).tensor()};
}

// The gradients of x, or the columns that they are computed from (`GradientColumns`); and of weight
// and bias.
ThreeTensors batch_norm_grads(const Tensor& grad, const Tensor& x, const OptionalTensor& weight,
                              const OptionalTensor& bias, const Tensor& mean, const Tensor& variance,
                              double eps, bool relu, bool own_statistics, bool as_columns, int64_t threads) {
  const int64_t columns = x.size(1);
  const NormColumns by(copy_of(mean), copy_of(variance), weight, bias, columns, eps);
  const Statistics statistics = own_statistics ? Statistics::kOwn : Statistics::kGiven;
  Column d_weight(columns), d_bias(columns);
  OptionalTensor out;
  with_float(x, [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    const auto compute = [&](const auto& function, auto to) {
      function(rows_of<T>(x), data<T>(grad), by.get(), epilogue_of(relu), statistics, threads, to,
               d_weight.data(), d_bias.data());
    };
    out = as_columns ? new_array<A>({GradientColumns<A>::kRows, columns}) : new_tensor_like(x);
    if (as_columns) {
      compute(batch_norm_grad_columns<T>, GradientColumns<A>{mutable_data<A>(*out), columns});
    } else {
      compute(pyg_batchgnn::batch_norm_grads<T>, mutable_data<T>(*out));
    }
  });
  return {std::move(*out), std::move(d_weight).tensor(), std::move(d_bias).tensor()};
}

ThreeTensors layer_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                        bool relu, double drop, int64_t key, const OptionalTensor& node, int64_t threads) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const RowMask own(x, relu || drop > 0.0, relu, drop, key, node);
  Tensor y = new_tensor_like(x);
  OptionalTensor norms;
  with_float(x, [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    const Buffer<A> scale = columns_of(weight, columns, A(1)), shift = columns_of(bias, columns, A(0));
    norms = new_array<A>({rows, kNormNumbers<A>});
    const LayerNorm<T> job{columns,
                           data<T>(x),
                           scale.data(),
                           shift.data(),
                           eps,
                           mutable_data<RowNorm<A>>(*norms),
                           mutable_data<T>(y),
                           own.activation()};
    pyg_batchgnn::layer_norm(job, rows, threads);
  });
  return {std::move(y), std::move(*norms), own.mask};
}

ThreeTensors layer_norm_grads(const Tensor& grad, const Tensor& x, const OptionalTensor& weight,
                              const Tensor& norms, const Tensor& mask, double scale, int64_t threads) {
  const int64_t columns = x.size(1);
  Column d_weight(columns), d_bias(columns);
  Tensor d_x = new_tensor_like(x);
  with_float(x, [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    const Buffer<A> by_column = columns_of(weight, columns, A(1));
    const LayerNormGrads<T> job{columns,
                                data<T>(x),
                                data<T>(grad),
                                by_column.data(),
                                data<RowNorm<A>>(norms),
                                mask.size(0) > 0 ? data<uint8_t>(mask) : nullptr,
                                static_cast<A>(scale),
                                mutable_data<T>(d_x)};
    pyg_batchgnn::layer_norm_grads(job, x.size(0), threads, d_weight.data(), d_bias.data());
  });
  return {std::move(d_x), std::move(d_weight).tensor(), std::move(d_bias).tensor()};
}

Tensor activate_(const Tensor& x, bool relu, double drop, int64_t key, const OptionalTensor& node,
                 int64_t threads) {
  const RowMask own(x, true, relu, drop, key, node);
  with_float(x, [&](auto type) {
    activate(mutable_data<decltype(type)>(x), x.size(0), x.size(1), own.activation(), threads);
  });
  return own.mask;
}

Tensor mask_grad(const Tensor& grad, const Tensor& mask, double scale, int64_t threads) {
  Tensor out = new_tensor_like(grad);
  with_float(grad, [&](auto type) {
    using T = decltype(type);
    mask_gradient(data<T>(grad), data<uint8_t>(mask), grad.size(0), grad.size(1), scale, threads,
                  mutable_data<T>(out));
  });
  return out;
}

}  // namespace operators

constexpr Operator kOperators[] = {
    OPERATOR(batch_norm,
             "(Tensor x, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? variance, float eps, bool "
             "relu, int threads) -> (Tensor y, Tensor mean, Tensor variance)"),
    OPERATOR(
        batch_norm_grads,
        "(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor variance, float "
        "eps, bool relu, bool own_statistics, bool as_columns, int threads) -> (Tensor x, Tensor weight, "
        "Tensor bias)"),
    OPERATOR(layer_norm,
             "(Tensor x, Tensor? weight, Tensor? bias, float eps, bool relu, float drop, int key, Tensor? "
             "node, int threads) -> (Tensor y, Tensor norms, Tensor mask)"),
    OPERATOR(layer_norm_grads,
             "(Tensor grad, Tensor x, Tensor? weight, Tensor norms, Tensor mask, float scale, int threads) "
             "-> (Tensor x, Tensor weight, Tensor bias)"),
    OPERATOR(activate_,
             "(Tensor(a!) x, bool relu, float drop, int key, Tensor? node, int threads) -> Tensor"),
    OPERATOR(mask_grad, "(Tensor grad, Tensor mask, float scale, int threads) -> Tensor"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
