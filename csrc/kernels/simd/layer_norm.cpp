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
                          Wide<T>* product){
    PYG_BATCHGNN_DISPATCH(layer_norm_grad_rows(job, begin, end, sum, product))}

#define PYG_BATCHGNN_INSTANTIATE(T)                                     \
  template void layer_norm_rows(const LayerNorm<T>&, int64_t, int64_t); \
  template void layer_norm_grad_rows(const LayerNormGrads<T>&, int64_t, int64_t, Wide<T>*, Wide<T>*);

PYG_BATCHGNN_INSTANTIATE(float) PYG_BATCHGNN_INSTANTIATE(double) PYG_BATCHGNN_INSTANTIATE(Bfloat16)

}  // namespace pyg_batchgnn
