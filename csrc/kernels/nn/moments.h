// Means and squared deviations of columns, joined from blocks of rows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pyg_batchgnn {

// The mean of some rows and the sum of squared deviations from it, [columns] each.
struct ColumnMoments {
  double* mean;
  double* deviation;
};

// Adds the nb rows of `b` to the na rows of `a` (Chan, Golub and LeVeque 1979).
inline void join(ColumnMoments a, int64_t na, ColumnMoments b, int64_t nb, int64_t columns) {
  const double total = static_cast<double>(na + nb);
  const double share = static_cast<double>(nb) / total;
  const double between = share * static_cast<double>(na);
  for (int64_t c = 0; c < columns; ++c) {
    const double gap = b.mean[c] - a.mean[c];
    a.mean[c] += gap * share;
    a.deviation[c] += b.deviation[c] + gap * gap * between;
  }
}

// Converts sums about a center into moments.
template <class A>
void to_moments(const A* center, const A* sum, const A* square, int64_t rows, int64_t columns,
                ColumnMoments out) {
  const double inverse = 1.0 / static_cast<double>(rows);
  for (int64_t c = 0; c < columns; ++c) {
    const double offset = static_cast<double>(sum[c]) * inverse;
    out.mean[c] = static_cast<double>(center[c]) + offset;
    out.deviation[c] = std::max(0.0, static_cast<double>(square[c]) - offset * static_cast<double>(sum[c]));
  }
}

}  // namespace pyg_batchgnn
