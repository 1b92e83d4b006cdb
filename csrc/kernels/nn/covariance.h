// How the columns of a matrix vary together: from that the mean and variance of any product's columns are
// known without computing it.
#pragma once

#include <cstdint>

#include "kernels/nn/linear.h"

namespace pyg_batchgnn {

// `mean` [columns] and `covariance` [columns, columns] about it, divided by `rows`; zeros where there are no
// rows. Computed in T. The bits do not depend on the number of threads.
template <class T>
void column_covariance(const LinearInput& x, int64_t rows, int64_t threads, double* mean, double* covariance);

}  // namespace pyg_batchgnn
