// Batch and layer normalisation, ReLU and keyed dropout of odd shapes, forward and back;
// test_sanitizers.py compiles it with sanitizers. Arrays are exactly as long as they must be.
#include "kernels/nn/norm.h"

#include <vector>

#include "inputs.h"

using namespace pyg_batchgnn;

namespace {

constexpr int64_t kThreads = 3;

template <class T>
std::vector<T> numbers(int64_t count) {
  std::vector<T> made(static_cast<size_t>(count));
  for (size_t i = 0; i < made.size(); ++i) made[i] = narrow<T>(static_cast<Wide<T>>(i * i % 17) - 8);
  return made;
}

template <class T>
void normalise(int64_t rows, int64_t columns) {
  const std::vector<T> x = numbers<T>(rows * columns), grad = numbers<T>(rows * columns);
  std::vector<T> y = x, d_x = x;
  std::vector<double> mean = numbers<double>(columns), deviation = mean, inverse(mean.size(), 0.5);
  std::vector<double> d_weight = mean, d_bias = mean;
  const std::vector<double> weight = mean, bias = mean;
  const Rows<T> matrix{x.data(), rows, columns};
  column_moments(matrix, kThreads, mean.data(), deviation.data());
  result(mean);
  result(deviation);
  for (const bool affine : {false, true}) {
    const Normalisation by{mean.data(), inverse.data(), affine ? weight.data() : nullptr,
                           affine ? bias.data() : nullptr};
    for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kRelu}) {
      batch_norm(matrix, by, epilogue, kThreads, y.data());
      for (const Statistics statistics : {Statistics::kOwn, Statistics::kGiven}) {
        batch_norm_grads(matrix, grad.data(), by, epilogue, statistics, kThreads, d_x.data(), d_weight.data(),
                         d_bias.data());
        result(d_x);
        result(d_weight);
      }
      result(y);
    }
  }
}

// The bits and the elements agree with those of `activate` on the result without activation.
template <class T>
void normalise_rows(int64_t rows, int64_t columns) {
  using A = Wide<T>;
  const std::vector<T> x = numbers<T>(rows * columns), grad = numbers<T>(rows * columns);
  const std::vector<A> weight = numbers<A>(columns), bias = weight;
  const std::vector<int64_t> node(static_cast<size_t>(rows), 12345);
  std::vector<RowNorm<A>> norms(static_cast<size_t>(rows));
  std::vector<T> plain = x, y = x, d_x = x;
  std::vector<uint8_t> mask(static_cast<size_t>(rows * ((columns + 7) / 8))), wanted = mask;
  std::vector<double> d_weight(weight.size()), d_bias = d_weight;
  LayerNorm<T> job{columns, x.data(), weight.data(), bias.data(), 1e-5, norms.data(), plain.data(), {}};
  layer_norm(job, rows, kThreads);
  layer_norm_grads(LayerNormGrads<T>{columns, x.data(), grad.data(), weight.data(), norms.data(), nullptr,
                                     A(1), d_x.data()},
                   rows, kThreads, d_weight.data(), d_bias.data());
  job.y = y.data();
  for (const double drop : {0.0, 0.3, 1.0 - 1.0 / kDropoutLevels}) {
    const Dropout dropout(5, drop);
    for (const bool relu : {false, true}) {
      job.activation = {relu, drop > 0 ? &dropout : nullptr, relu ? node.data() : nullptr, mask.data()};
      layer_norm(job, rows, kThreads);
      std::vector<T> activated = plain;
      job.activation.mask = wanted.data();
      activate(activated.data(), rows, columns, job.activation, kThreads);
      if (mask != wanted) std::abort();
      if (!std::is_same_v<T, Bfloat16>) {
        for (size_t i = 0; i < y.size(); ++i) {
          if (widen(y[i]) != widen(activated[i])) std::abort();
        }
      }
      const LayerNormGrads<T> back{columns,
                                   x.data(),
                                   grad.data(),
                                   weight.data(),
                                   norms.data(),
                                   mask.data(),
                                   static_cast<A>(dropout.scale()),
                                   d_x.data()};
      layer_norm_grads(back, rows, kThreads, d_weight.data(), d_bias.data());
      result(y);
      result(d_x);
      result(d_weight);
    }
  }
}

template <class T>
void activation(int64_t rows, int64_t columns) {
  std::vector<int64_t> node(static_cast<size_t>(rows), 12345);
  for (const double drop : {0.0, 0.3, 1.0 - 1.0 / kDropoutLevels}) {
    const Dropout dropout(5, drop);
    for (const bool relu : {false, true}) {
      std::vector<T> x = numbers<T>(rows * columns), out = x;
      std::vector<uint8_t> mask(static_cast<size_t>(rows * ((columns + 7) / 8)));
      const Activation wanted{relu, drop > 0 ? &dropout : nullptr, relu ? node.data() : nullptr, mask.data()};
      activate(x.data(), rows, columns, wanted, kThreads);
      mask_gradient(x.data(), mask.data(), rows, columns, dropout.scale(), kThreads, out.data());
      result(x);
      result(out);
      for (size_t i = 0; i < x.size(); ++i) {
        if (widen(x[i]) == 0 && widen(out[i]) != 0) std::abort();
      }
    }
  }
}

template <class T>
void all_shapes() {
  for (const int64_t columns : {1, 7, 16, 33, 64, 260}) {
    for (const int64_t rows : {0, 1, 15, 257}) {
      normalise<T>(rows, columns);
      normalise_rows<T>(rows, columns);
      activation<T>(rows, columns);
    }
  }
  normalise<T>(20000, 33);
  normalise_rows<T>(9000, 33);
  activation<T>(20000, 9);
}

}  // namespace

int main() {
  all_shapes<float>();
  all_shapes<double>();
  all_shapes<Bfloat16>();
  return done();
}
