// The covariance of the columns of a matrix. It gives mean and variance of the columns of any
// product without computing the product.
#pragma once

#include <cstdint>

#include "kernels/nn/linear.h"

namespace pyg_batchgnn {

// Computes `mean` [columns] and `covariance` [columns, columns] about it, divided by `rows`, in T;
// zeros without rows. The bits do not depend on the number of threads.
template <class T>
void column_covariance(const LinearInput& x, int64_t rows, int64_t threads, double* mean, double* covariance);

}  // namespace pyg_batchgnn
