#include "kernels/simd/norm.h"

#include <algorithm>
#include <cstring>

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

void dropout_draws(uint64_t row_key, int64_t columns, uint16_t* draws) {
  PYG_BATCHGNN_DISPATCH(dropout_draws(row_key, columns, draws))
}

void dropout_passes(const uint16_t* draws, uint32_t kept_levels, int64_t columns, uint8_t* pass) {
  PYG_BATCHGNN_DISPATCH(dropout_passes(draws, kept_levels, columns, pass))
}

template <class T>
void relu_passes(const T* x, int64_t columns, uint8_t* pass) {
  PYG_BATCHGNN_DISPATCH(relu_passes(x, columns, pass))
}

template <class T>
void select_scaled(const T* x, const uint8_t* pass, Wide<T> scale, int64_t columns, T* y) {
  PYG_BATCHGNN_DISPATCH(select_scaled(x, pass, scale, columns, y))
}

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

// Packs eight bytes of 0 or 1 into the bits of one byte: the product moves byte i to bit 56 + i,
// without collisions.
constexpr uint64_t kGatherBits = 0x0102040810204080u;

void pack_bits(const uint8_t* pass, int64_t columns, uint8_t* bits) {
  for (int64_t c = 0; c < columns; c += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, pass + c, sizeof(bytes));
    bits[c / 8] = static_cast<uint8_t>((bytes * kGatherBits) >> 56);
  }
}

// Byte i of a word keeps bit i alone.
void unpack_bits(const uint8_t* bits, int64_t columns, uint8_t* pass) {
  for (int64_t c = 0; c < columns; c += 8) {
    const uint64_t bytes = (bits[c / 8] * 0x0101010101010101u) & 0x8040201008040201u;
    std::memcpy(pass + c, &bytes, sizeof(bytes));
  }
}

#define PYG_BATCHGNN_INSTANTIATE(T)                                                                       \
  template void center_sums(const Rows<T>&, const Wide<T>*, Wide<T>*, Wide<T>*);                          \
  template void affine_rows(const Rows<T>&, const Affine<Wide<T>>&, Epilogue, T*);                        \
  template void gradient_sums(const Rows<T>&, const T*, const Affine<Wide<T>>&, Epilogue, Wide<T>*,       \
                              Wide<T>*);                                                                  \
  template void gradient_rows(const Rows<T>&, const T*, const Affine<Wide<T>>&, Epilogue, const Wide<T>*, \
                              const Wide<T>*, T*);                                                        \
  template void relu_passes(const T*, int64_t, uint8_t*);                                                 \
  template void select_scaled(const T*, const uint8_t*, Wide<T>, int64_t, T*);

#define PYG_BATCHGNN_MOMENTS(T)                                                  \
  template void row_mean(const StridedRows<T>&, T*);                             \
  template void center_rows(const StridedRows<T>&, const T*, T*, int64_t);       \
  template void shifted_sums(const StridedRows<T>&, const T*, const T*, T*, T*); \
  template void add_products(const T*, double, const double*, int64_t, double*);

PYG_BATCHGNN_MOMENTS(float)
PYG_BATCHGNN_MOMENTS(double)
PYG_BATCHGNN_INSTANTIATE(float)
PYG_BATCHGNN_INSTANTIATE(double)
PYG_BATCHGNN_INSTANTIATE(Bfloat16)

}  // namespace pyg_batchgnn
