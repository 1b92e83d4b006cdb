// Dense layers of odd shapes, forward and back; test_sanitizers.py compiles it with sanitizers.
// Every operand is a block of exactly its size.
#include "kernels/nn/linear.h"

#include <vector>

#include "inputs.h"

namespace {

using namespace pyg_batchgnn;

std::vector<char> zeros(int64_t count, Element element) {
  return std::vector<char>(static_cast<size_t>(count * element_bytes(element)));
}

template <class T>
void layer(int64_t rows, int64_t outputs, int64_t columns, int64_t groups, Element compute, Element table) {
  const Element weight = compute == Element::kFloat64 ? compute : Element::kFloat32;
  const LinearShape shape{rows, outputs * groups, groups, compute};
  const std::vector<char> x = numbers(rows * columns * groups, compute),
                          other = numbers(7 * 3 * groups, table);
  const std::vector<char> w = numbers(shape.outputs * columns, weight),
                          v = numbers(shape.outputs * 3, weight);
  const std::vector<char> bias = numbers(shape.outputs, weight);
  std::vector<int64_t> row(size(rows)), node(size(rows));
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<int64_t>(i * i % 7);
  const Decodings by(3 * groups, table);
  std::vector<LinearInput> inputs{
      {{x.data(), compute, columns * groups}, {}, columns * groups},
      {{other.data(), table, 3 * groups, by.get()}, {row.data(), true}, 3 * groups}};
  const std::vector<LinearWeight> weights{{w.data(), weight}, {v.data(), weight}};
  std::vector<char> y = zeros(rows * shape.outputs, compute);
  std::vector<uint8_t> mask(static_cast<size_t>(rows * ((shape.outputs + 7) / 8)));
  linear({shape, inputs, weights, {bias.data(), weight, true, 0.5, 1, node.data()}, {y.data(), mask.data()}},
         3);
  result(y);
  result(mask);
  std::vector<char> dx = zeros(rows * columns * groups, compute), dw = w, dv = v, db = bias;
  for (const bool dense : {false, true}) {
    if (dense) std::fill(mask.begin(), mask.end(), uint8_t{255});
    std::vector<char> grad = numbers(rows * shape.outputs, compute);
    const auto bytes = size(element_bytes(compute));
    for (size_t i = 0; i < grad.size() && !dense; ++i) grad[i] = i / bytes % 5 == 0 ? grad[i] : char{0};
    const LinearGradient gradient{grad.data(), compute, mask.data(), 2.0};
    const LinearWanted wanted{{dx.data(), nullptr}, {dw.data(), dv.data()}, db.data()};
    linear_grads({shape, inputs, weights, gradient, wanted}, 3);
    for (const std::vector<char>* made : {&dx, &dw, &dv, &db}) result(*made);
  }
}

// Gradients behind a normalisation, of inputs that a ReLU made; and that of a weight by centred
// rows.
template <class T>
void around_norms(int64_t rows, int64_t outputs, int64_t columns, Element compute) {
  const Element weight = compute == Element::kFloat64 ? compute : Element::kFloat32;
  const LinearShape shape{rows, outputs, 1, compute};
  std::vector<char> x = zeros(rows * columns, compute);
  for (size_t i = 0; i < x.size(); i += 17) x[i] = 1;
  const std::vector<char> w = numbers(outputs * columns, weight), grad = numbers(rows * outputs, compute);
  const std::vector<T> norm_columns(size(5 * outputs), T(0.5));
  std::vector<char> dx = zeros(rows * columns, compute), dw = w, db = zeros(outputs, weight);
  LinearInput input{{x.data(), compute, columns}, {}, columns};
  input.after_relu = true;
  const NormedRows norm{grad.data(), norm_columns.data(), true};
  linear_grads({shape,
                {input},
                {{w.data(), weight}},
                {grad.data(), compute, nullptr, 1.0, &norm},
                {{dx.data()}, {dw.data()}, db.data()}},
               3);
  for (const std::vector<char>* made : {&dx, &dw, &db}) result(*made);
}

}  // namespace

int main() {
  for (const int64_t rows : {0, 1, 5, 64, 197, 1030}) {
    for (const int64_t outputs : {1, 9, 47, 64, 130}) {
      for (const int64_t columns : {0, 1, 16, 33}) {
        // Many rows take most of the time, so they meet fewer shapes.
        if (rows > 1000 && (columns < 16 || (outputs != 9 && outputs != 130))) continue;
        around_norms<float>(rows, outputs, columns, Element::kFloat32);
        around_norms<float>(rows, outputs, columns, Element::kBFloat16);
        around_norms<double>(rows, outputs, columns, Element::kFloat64);
        for (const int64_t groups : {1, 3}) {
          layer<float>(rows, outputs, columns, groups, Element::kFloat32, Element::kFloat16);
          layer<float>(rows, outputs, columns, groups, Element::kBFloat16, Element::kFloat32);
          layer<double>(rows, outputs, columns, groups, Element::kFloat64, Element::kBFloat16);
          if (rows > 197) continue;
          layer<float>(rows, outputs, columns, groups, Element::kFloat32, Element::kInt8);
          layer<float>(rows, outputs, columns, groups, Element::kBFloat16, Element::kInt8);
        }
      }
    }
  }
  return done();
}
