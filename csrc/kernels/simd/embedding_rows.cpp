#include "kernels/simd/embedding_rows.h"

#include <cstddef>

#define PYG_BATCHGNN_BODY "kernels/simd/embedding_rows_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

template <class T>
void weigh_gradient(const T* gradient, T share, int64_t columns, bool adds, T* sum) {
  PYG_BATCHGNN_DISPATCH(weigh_gradient(gradient, share, columns, adds, sum))
}

template <class T>
void sgd_row(const T* gradient, int64_t columns, T rate, T* weight) {
  PYG_BATCHGNN_DISPATCH(sgd_row(gradient, columns, rate, weight))
}

template <class T>
void adagrad_row(const T* gradient, int64_t columns, T rate, T eps, T* square, T* weight) {
  PYG_BATCHGNN_DISPATCH(adagrad_row(gradient, columns, rate, eps, square, weight))
}

template <class T>
void adam_row(const T* gradient, int64_t columns, const AdamStep<T>& step, T* mean, T* square, T* weight) {
  PYG_BATCHGNN_DISPATCH(adam_row(gradient, columns, step, mean, square, weight))
}

template void weigh_gradient(const float*, float, int64_t, bool, float*);
template void sgd_row(const float*, int64_t, float, float*);
template void adagrad_row(const float*, int64_t, float, float, float*, float*);
template void adam_row(const float*, int64_t, const AdamStep<float>&, float*, float*, float*);
template void weigh_gradient(const double*, double, int64_t, bool, double*);
template void sgd_row(const double*, int64_t, double, double*);
template void adagrad_row(const double*, int64_t, double, double, double*, double*);
template void adam_row(const double*, int64_t, const AdamStep<double>&, double*, double*, double*);

}  // namespace pyg_batchgnn
