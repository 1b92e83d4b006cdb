#include "kernels/simd/embedding_rows.h"

#define PYG_BATCHGNN_BODY "kernels/simd/embedding_rows_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

template <class T>
const EmbeddingKernels<T>& embedding_kernels() {
  PYG_BATCHGNN_DISPATCH(kEmbeddingKernels<T>)
}

template const EmbeddingKernels<float>& embedding_kernels();
template const EmbeddingKernels<double>& embedding_kernels();

}  // namespace pyg_batchgnn
