// The update of embedding rows by the gradients of all ranks, with the rule of an optimizer.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

enum class RowRule : int64_t { kSgd = 0, kAdagrad = 1, kAdam = 2 };

// A step of an optimizer. The sign of the update is minus.
struct RowStep {
  RowRule rule;
  double rate;
  double eps;            // of Adagrad and Adam
  double first, second;  // of Adam: how far the two averages move, 1 - beta1 and 1 - beta2
};

// The rows of one rank, and the state of the optimizer that lies with each row.
template <class T>
struct RowTable {
  T* weight;              // [rows, columns]
  T* first;               // Adagrad's sum of squares, Adam's average of gradients; else unused
  T* second;              // Adam's average of squares; else unused
  const uint8_t* frozen;  // [rows], not 0 for rows that stay as they are; or null
  int64_t columns;
};

// row[i] gets the gradients source[ptr[i]] to source[ptr[i + 1] - 1], which are added in this
// order. No row occurs twice.
struct RowChanges {
  const int64_t* row;
  const int64_t* ptr;
  const int64_t* source;
  int64_t count;
};

// The gradients of a step. A source is a row of `near`, or ~i for row i of `far`.
template <class T>
struct RowGradients {
  const T* near;           // [., columns], of this rank's minibatch
  const T* const* far;     // [ranks], the rows of each other rank; unread where its share is 0
  const int64_t* far_ptr;  // [ranks + 1], the number of each rank's first row among all of `far`
  const double* share;     // [ranks], the factor of each rank's gradients; 0 leaves them out
  int64_t rank, ranks;     // this rank, and the number of ranks
};

// Updates rows, but for those with no gradient left; the same bits on any number of threads.
template <class T>
void update_rows(const RowTable<T>& table, const RowChanges& changes, const RowGradients<T>& gradients,
                 const RowStep& step, int64_t threads);

// The initial rows of embedding tables (docs/concepts/sampling-contract.md defines them).

// Writes one row per node, of numbers in [-bound, bound) that depend on (key, node, column) alone.
template <class T>
void fill_uniform(uint64_t key, const int64_t* node, int64_t count, int64_t columns, double bound, T* rows,
                  int64_t threads);

}  // namespace pyg_batchgnn
