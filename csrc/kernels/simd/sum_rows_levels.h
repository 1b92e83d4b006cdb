// What sum_rows.cpp chooses from. A level that the compiler cannot build is absent.
#pragma once

#include "kernels/simd/sum_rows.h"

namespace pyg_batchgnn {

#if defined(__x86_64__)
void sum_rows_avx512(const SumRows<float>& task, Element element);
void sum_rows_avx2(const SumRows<float>& task, Element element);
#endif

}  // namespace pyg_batchgnn
