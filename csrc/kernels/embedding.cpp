#include "kernels/embedding.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/random.h"
#include "kernels/simd/embedding_rows.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kGrain = 1 << 14;  // fewer numbers do not pay for a thread
constexpr int64_t kAhead = 4;        // rows between prefetch and use
constexpr int64_t kLine = 64 / sizeof(float);

template <class T>
struct Gradient {
  const T* values;
  double share;
};

template <class T>
class Update {
 public:
  Update(const RowTable<T>& table, const RowChanges& changes, const RowGradients<T>& gradients,
         const RowStep& step)
      : table_(table), changes_(changes), gradients_(gradients), step_(step) {}

  void run(int64_t begin, int64_t end) const {
    std::vector<T> sum(static_cast<size_t>(table_.columns));
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(i + kAhead);
      if (table_.frozen != nullptr && table_.frozen[changes_.row[i]] != 0) continue;
      if (const T* gradient = summed(i, sum.data())) apply(changes_.row[i] * table_.columns, gradient);
    }
  }

 private:
  // Returns the gradient of a source; no values if its rank is left out.
  Gradient<T> gradient_of(int64_t source) const {
    const RowGradients<T>& all = gradients_;
    const int64_t row = source >= 0 ? source : ~source;
    const int64_t from = source >= 0
                             ? all.rank
                             : std::upper_bound(all.far_ptr, all.far_ptr + all.ranks, row) - all.far_ptr - 1;
    if (all.share[from] == 0) return {nullptr, 0};
    if (source >= 0) return {all.near + row * table_.columns, all.share[from]};
    return {all.far[from] + (row - all.far_ptr[from]) * table_.columns, all.share[from]};
  }

  // Returns the sum of the gradients of change i, in `sum` if there is more to do than to read one;
  // null if all are left out.
  const T* summed(int64_t i, T* sum) const {
    const T* found = nullptr;
    for (int64_t e = changes_.ptr[i]; e < changes_.ptr[i + 1]; ++e) {
      const Gradient<T> one = gradient_of(changes_.source[e]);
      if (one.values == nullptr) continue;
      if (changes_.ptr[i + 1] - changes_.ptr[i] == 1 && one.share == 1) return one.values;
      kernels_.weigh(one.values, static_cast<T>(one.share), table_.columns, found != nullptr, sum);
      found = sum;
    }
    return found;
  }

  void apply(int64_t at, const T* gradient) const {
    const int64_t columns = table_.columns;
    const auto rate = static_cast<T>(step_.rate), eps = static_cast<T>(step_.eps);
    T* weight = table_.weight + at;
    switch (step_.rule) {
      case RowRule::kSgd:
        return kernels_.sgd(gradient, columns, rate, weight);
      case RowRule::kAdagrad:
        return kernels_.adagrad(gradient, columns, rate, eps, table_.first + at, weight);
      case RowRule::kAdam:
        return kernels_.adam(gradient, columns,
                             {rate, eps, static_cast<T>(step_.first), static_cast<T>(step_.second)},
                             table_.first + at, table_.second + at, weight);
    }
  }

  void prefetch(int64_t i) const {
    const int64_t at = changes_.row[i] * table_.columns;
    const T* gradient = gradient_of(changes_.source[changes_.ptr[i]]).values;
    for (int64_t c = 0; c < table_.columns; c += kLine) {
      if (gradient != nullptr) __builtin_prefetch(gradient + c);
      __builtin_prefetch(table_.weight + at + c, 1);
      if (step_.rule != RowRule::kSgd) __builtin_prefetch(table_.first + at + c, 1);
      if (step_.rule == RowRule::kAdam) __builtin_prefetch(table_.second + at + c, 1);
    }
  }

  const RowTable<T>& table_;
  const RowChanges& changes_;
  const RowGradients<T>& gradients_;
  const RowStep& step_;
  const EmbeddingKernels<T>& kernels_ = embedding_kernels<T>();
};

}  // namespace

template <class T>
void update_rows(const RowTable<T>& table, const RowChanges& changes, const RowGradients<T>& gradients,
                 const RowStep& step, int64_t threads) {
  const Update<T> update(table, changes, gradients, step);
  run_ranges(changes.count, kGrain / std::max<int64_t>(table.columns, 1) + 1, threads,
             [&](int64_t begin, int64_t end) { update.run(begin, end); });
}

template void update_rows(const RowTable<float>&, const RowChanges&, const RowGradients<float>&,
                          const RowStep&, int64_t);
template void update_rows(const RowTable<double>&, const RowChanges&, const RowGradients<double>&,
                          const RowStep&, int64_t);

namespace {

constexpr int64_t kGrainDrawn = 1 << 16;  // fewer drawn numbers do not pay for a thread

// The number of a word in [-1, 1): its upper 53 bits.
double signed_unit(uint64_t word) {
  return static_cast<double>(static_cast<int64_t>(word >> 11)) * 0x1p-52 - 1;
}

}  // namespace

template <class T>
void fill_uniform(uint64_t key, const int64_t* node, int64_t count, int64_t columns, double bound, T* rows,
                  int64_t threads) {
  const int64_t grain = kGrainDrawn / std::max<int64_t>(columns, 1) + 1;
  run_ranges(count, grain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      WordStream words(fold(key, static_cast<uint64_t>(node[i])));
      for (int64_t c = 0; c < columns; ++c) {
        rows[i * columns + c] = static_cast<T>(bound * signed_unit(words.next()));
      }
    }
  });
}

template void fill_uniform(uint64_t, const int64_t*, int64_t, int64_t, double, float*, int64_t);
template void fill_uniform(uint64_t, const int64_t*, int64_t, int64_t, double, double*, int64_t);

}  // namespace pyg_batchgnn
