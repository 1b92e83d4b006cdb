#include "kernels/simd/layer_norm.h"

#include <algorithm>
#include <cstring>

#define PYG_BATCHGNN_BODY "kernels/simd/layer_norm_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

template <class T>
void layer_norm_rows(const LayerNorm<T>& job, int64_t begin, int64_t end) {
  PYG_BATCHGNN_DISPATCH(layer_norm_rows(job, begin, end))
}

template <class T>
void layer_norm_grad_rows(const LayerNormGrads<T>& job, int64_t begin, int64_t end, Wide<T>* sum,
                          Wide<T>* product) {
  PYG_BATCHGNN_DISPATCH(layer_norm_grad_rows(job, begin, end, sum, product))
}

template <class T>
void activate_rows(T* x, int64_t columns, const Activation& activation, int64_t begin, int64_t end) {
  PYG_BATCHGNN_DISPATCH(activate_rows(x, columns, activation, begin, end))
}

template <class T>
void mask_rows(const T* grad, const uint8_t* mask, int64_t columns, double scale, int64_t begin, int64_t end,
               T* out){PYG_BATCHGNN_DISPATCH(mask_rows(grad, mask, columns, scale, begin, end, out))}

#define PYG_BATCHGNN_INSTANTIATE(T)                                                                   \
  template void layer_norm_rows(const LayerNorm<T>&, int64_t, int64_t);                               \
  template void layer_norm_grad_rows(const LayerNormGrads<T>&, int64_t, int64_t, Wide<T>*, Wide<T>*); \
  template void activate_rows(T*, int64_t, const Activation&, int64_t, int64_t);                      \
  template void mask_rows(const T*, const uint8_t*, int64_t, double, int64_t, int64_t, T*);

PYG_BATCHGNN_INSTANTIATE(float) PYG_BATCHGNN_INSTANTIATE(double) PYG_BATCHGNN_INSTANTIATE(Bfloat16)

}  // namespace pyg_batchgnn
