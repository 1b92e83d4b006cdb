#include "kernels/simd/sum_rows.h"

#include <type_traits>

#define PYG_BATCHGNN_BODY "kernels/simd/sum_rows_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

void sum_rows(const SumRows<float>& task, Element element) {
  PYG_BATCHGNN_DISPATCH(sum_any_rows(task, element))
}

void sum_rows(const SumRows<double>& task, Element element) { baseline::sum_any_rows(task, element); }

}  // namespace pyg_batchgnn
