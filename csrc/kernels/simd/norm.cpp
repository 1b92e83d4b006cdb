#include "kernels/simd/norm.h"

#include <algorithm>

#define PYG_BATCHGNN_BODY "kernels/simd/norm_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

template <class T>
void center_sums(const Rows<T>& x, const Wide<T>* center, Wide<T>* sum, Wide<T>* square) {
  PYG_BATCHGNN_DISPATCH(center_sums(x, center, sum, square))
}

template <class T>
void affine_rows(const Rows<T>& x, const Affine<Wide<T>>& affine, Epilogue epilogue, T* y) {
  PYG_BATCHGNN_DISPATCH(affine_rows(x, affine, epilogue, y))
}

template <class T>
void gradient_sums(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   Wide<T>* sum, Wide<T>* product) {
  PYG_BATCHGNN_DISPATCH(gradient_sums(x, grad, affine, epilogue, sum, product))
}

template <class T>
void gradient_rows(const Rows<T>& x, const T* grad, const Affine<Wide<T>>& affine, Epilogue epilogue,
                   const Wide<T>* constant, const Wide<T>* slope, T* out) {
  PYG_BATCHGNN_DISPATCH(gradient_rows(x, grad, affine, epilogue, constant, slope, out))
}

template void center_sums(const Rows<float>& x, const float* center, float* sum, float* square);
template void affine_rows(const Rows<float>& x, const Affine<float>& affine, Epilogue epilogue, float* y);
template void gradient_sums(const Rows<float>& x, const float* grad, const Affine<float>& affine,
                            Epilogue epilogue, float* sum, float* product);
template void gradient_rows(const Rows<float>& x, const float* grad, const Affine<float>& affine,
                            Epilogue epilogue, const float* constant, const float* slope, float* out);
template void center_sums(const Rows<double>& x, const double* center, double* sum, double* square);
template void affine_rows(const Rows<double>& x, const Affine<double>& affine, Epilogue epilogue, double* y);
template void gradient_sums(const Rows<double>& x, const double* grad, const Affine<double>& affine,
                            Epilogue epilogue, double* sum, double* product);
template void gradient_rows(const Rows<double>& x, const double* grad, const Affine<double>& affine,
                            Epilogue epilogue, const double* constant, const double* slope, double* out);
template void center_sums(const Rows<Bfloat16>& x, const float* center, float* sum, float* square);
template void affine_rows(const Rows<Bfloat16>& x, const Affine<float>& affine, Epilogue epilogue,
                          Bfloat16* y);
template void gradient_sums(const Rows<Bfloat16>& x, const Bfloat16* grad, const Affine<float>& affine,
                            Epilogue epilogue, float* sum, float* product);
template void gradient_rows(const Rows<Bfloat16>& x, const Bfloat16* grad, const Affine<float>& affine,
                            Epilogue epilogue, const float* constant, const float* slope, Bfloat16* out);

}  // namespace pyg_batchgnn
