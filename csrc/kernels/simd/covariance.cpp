#include "kernels/simd/covariance.h"

#include <algorithm>

#define PYG_BATCHGNN_BODY "kernels/simd/covariance_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

template <class T>
void row_mean(const StridedRows<T>& x, T* mean) {
  PYG_BATCHGNN_DISPATCH(row_mean(x, mean))
}

template <class T>
void center_rows(const StridedRows<T>& x, const T* mean, T* out, int64_t stride) {
  PYG_BATCHGNN_DISPATCH(center_rows(x, mean, out, stride))
}

template <class T>
void shifted_sums(const StridedRows<T>& x, const T* shift, const T* center, T* sum, T* square) {
  PYG_BATCHGNN_DISPATCH(shifted_sums(x, shift, center, sum, square))
}

template <class T>
void add_products(const T* from, double by, const double* gap, int64_t count, double* to) {
  PYG_BATCHGNN_DISPATCH(add_products(from, by, gap, count, to))
}

template void row_mean(const StridedRows<float>& x, float* mean);
template void center_rows(const StridedRows<float>& x, const float* mean, float* out, int64_t stride);
template void shifted_sums(const StridedRows<float>& x, const float* shift, const float* center, float* sum,
                           float* square);
template void add_products(const float* from, double by, const double* gap, int64_t count, double* to);
template void row_mean(const StridedRows<double>& x, double* mean);
template void center_rows(const StridedRows<double>& x, const double* mean, double* out, int64_t stride);
template void shifted_sums(const StridedRows<double>& x, const double* shift, const double* center,
                           double* sum, double* square);
template void add_products(const double* from, double by, const double* gap, int64_t count, double* to);

}  // namespace pyg_batchgnn
