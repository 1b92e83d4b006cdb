// Batch normalisation, ReLU and keyed dropout of odd shapes, forward and back; test_sanitizers.py
// compiles it with sanitizers. Arrays are exactly as long as they must be.
#include "kernels/nn/norm.h"

#include <cstdlib>
#include <iostream>
#include <vector>

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
  for (const bool affine : {false, true}) {
    const Normalisation by{mean.data(), inverse.data(), affine ? weight.data() : nullptr,
                           affine ? bias.data() : nullptr};
    for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kRelu}) {
      batch_norm(matrix, by, epilogue, kThreads, y.data());
      for (const Statistics statistics : {Statistics::kOwn, Statistics::kGiven}) {
        batch_norm_grads(matrix, grad.data(), by, epilogue, statistics, kThreads, d_x.data(), d_weight.data(),
                         d_bias.data());
      }
    }
  }
}

template <class T>
void activation(int64_t rows, int64_t columns) {
  const MatrixSize size{rows, columns};
  std::vector<int64_t> node(static_cast<size_t>(rows), 12345);
  for (const double drop : {0.0, 0.3, 1.0 - 1.0 / kDropoutLevels}) {
    const Dropout dropout(5, drop);
    for (const bool relu : {false, true}) {
      std::vector<T> x = numbers<T>(rows * columns), out = x;
      std::vector<uint8_t> mask(static_cast<size_t>(rows * size.mask_bytes()));
      const bool dropped = drop > 0;
      activate(x.data(), size, {relu, dropped ? &dropout : nullptr, relu ? node.data() : nullptr}, kThreads,
               mask.data());
      mask_gradient(x.data(), mask.data(), size, dropout.scale(), kThreads, out.data());
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
      activation<T>(rows, columns);
    }
  }
  normalise<T>(20000, 33);
  activation<T>(20000, 9);
}

}  // namespace

int main() {
  all_shapes<float>();
  all_shapes<double>();
  all_shapes<Bfloat16>();
  std::cout << "done\n";
}
