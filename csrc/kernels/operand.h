// Matrices and index vectors of whatever type a tensor has.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/element.h"
#include "kernels/half.h"

namespace pyg_batchgnn {

// Rows of `columns` numbers, `stride` elements apart.
struct Matrix {
  const void* data = nullptr;
  Element element = Element::kFloat32;
  int64_t stride = 0;

  int64_t row_bytes(int64_t columns) const { return columns * element_bytes(element); }
  const char* row(int64_t i) const { return static_cast<const char*>(data) + row_bytes(i * stride); }
};

// int32 or int64 numbers; false without a pointer.
struct Integers {
  const void* data = nullptr;
  bool wide = false;

  explicit operator bool() const { return data != nullptr; }
  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
  void prefetch(int64_t i) const { __builtin_prefetch(static_cast<const char*>(data) + i * (wide ? 8 : 4)); }
};

// Calls body with a value of the C++ type that `element` stands for.
template <class Body>
void with_element(Element element, const Body& body) {
  switch (element) {
    case Element::kFloat32:
      return body(float{});
    case Element::kFloat64:
      return body(double{});
    case Element::kFloat16:
      return body(Half{});
    case Element::kBFloat16:
      return body(Bfloat16{});
  }
}

}  // namespace pyg_batchgnn
