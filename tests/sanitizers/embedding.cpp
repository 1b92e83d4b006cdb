// Embedding tables of odd shapes: initial rows, rows of two tables, updates by every rule;
// test_sanitizers.py compiles it with sanitizers. Arrays are exactly as long as they must be.
#include "kernels/embedding.h"

#include <vector>

#include "inputs.h"
#include "kernels/gather.h"

using namespace pyg_batchgnn;

namespace {

constexpr int64_t kThreads = 3;

template <class T>
void read(int64_t rows, int64_t columns) {
  std::vector<int64_t> node(size(rows)), source(size(3 * rows));
  for (int64_t i = 0; i < rows; ++i) node[size(i)] = i * i;
  for (int64_t i = 0; i < 3 * rows; ++i) source[size(i)] = i % 2 == 0 ? i % rows : ~(i % rows);
  std::vector<T> near(size(rows * columns)), far = near, out(size(3 * rows * columns));
  fill_uniform(7, node.data(), rows, columns, 0.5, near.data(), kThreads);
  fill_uniform(8, node.data(), rows, columns, 0.5, far.data(), kThreads);
  const EitherRows both{reinterpret_cast<const char*>(near.data()), reinterpret_cast<const char*>(far.data()),
                        columns * static_cast<int64_t>(sizeof(T)), source.data()};
  gather_either(both, 3 * rows, reinterpret_cast<char*>(out.data()), kThreads);
  result(out);
}

// Every second row changes, by gradients of this rank, the second, and of the first and the third.
template <class T>
void update(int64_t rows, int64_t columns, RowRule rule) {
  std::vector<T> weight(size(rows * columns), T(1)), first = weight, second = weight;
  std::vector<T> near = weight, before = weight, behind(size(columns), T(2));
  std::vector<uint8_t> frozen(size(rows));
  std::vector<int64_t> row, ptr{0}, source;
  for (int64_t i = 0; i < rows; i += 2) {
    frozen[size(i)] = i % 6 == 0;
    row.push_back(i);
    source.push_back(~i);
    for (int64_t copy = 0; copy < i % 3; ++copy) source.push_back(i);
    source.push_back(~rows);
    ptr.push_back(static_cast<int64_t>(source.size()));
  }
  const T* far[] = {before.data(), nullptr, behind.data()};
  const int64_t far_ptr[] = {0, rows, rows, rows + 1};
  const RowStep step{rule, 0.1, 1e-8, 0.1, 0.01};
  const RowChanges changes{row.data(), ptr.data(), source.data(), static_cast<int64_t>(row.size())};
  for (const double left : {0.0, 0.25, 1.0}) {
    const double share[] = {left, 0.5, 0.25};
    for (const uint8_t* mask : std::vector<const uint8_t*>{nullptr, frozen.data()}) {
      const RowTable<T> table{weight.data(), first.data(), second.data(), mask, columns};
      update_rows(table, changes, RowGradients<T>{near.data(), far, far_ptr, share, 1, 3}, step, kThreads);
      for (const std::vector<T>* changed : {&weight, &first, &second}) result(*changed);
    }
  }
}

template <class T>
void all(int64_t rows, int64_t columns) {
  read<T>(rows, columns);
  for (const RowRule rule : {RowRule::kSgd, RowRule::kAdagrad, RowRule::kAdam}) {
    update<T>(rows, columns, rule);
  }
}

}  // namespace

int main() {
  for (const int64_t columns : {1, 5, 16, 100}) {
    for (const int64_t rows : {1, 30, 2000}) {
      all<float>(rows, columns);
      all<double>(rows, columns);
    }
  }
  return done();
}
