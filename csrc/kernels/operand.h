// Matrices and index vectors of whatever type a tensor has.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace pyg_batchgnn {

// The types of numbers in memory.

enum class Element : uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt8 };

// Of float or double.
template <class T>
constexpr Element kElement = std::is_same_v<T, double> ? Element::kFloat64 : Element::kFloat32;

constexpr int64_t element_bytes(Element element) {
  switch (element) {
    case Element::kFloat64:
      return 8;
    case Element::kFloat32:
      return 4;
    case Element::kInt8:
      return 1;
    default:
      return 2;
  }
}

// bfloat16, the upper half of a float32. Kernels read it as float and round when they write.

struct Bfloat16 {
  uint16_t bits;
};

// The type in which values of T are computed.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(Bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

template <class T>
T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    // Rounds to nearest, ties to even. A NaN keeps its upper half and stays a NaN.
    const auto word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = word + 0x7FFFu + ((word >> 16) & 1u);
    const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    return {static_cast<uint16_t>((is_nan ? word | 0x400000u : rounded) >> 16)};
  } else {
    return value;
  }
}

// IEEE binary16, a storage type of feature tables. Kernels read it as float and never write it.

struct Half {
  uint16_t bits;
};

// Scaling by a power of two moves the exponent to its place and makes subnormal numbers normal.
inline float widen(Half value) {
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7FFFu) << 13;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const bool finite = magnitude < 0x0F800000u;
  const auto bits =
      finite ? std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) : magnitude | 0x7F800000u;
  return std::bit_cast<float>(bits | sign);
}

// A code of one byte, a storage type of feature tables. It stands for code * scale + offset of its
// column, rounded once. Kernels read it as the number of the code, and decode where they say so.

struct Code {
  int8_t number;
};

inline float widen(Code value) { return static_cast<float>(value.number); }

// The scales and offsets of consecutive columns; false without codes.
struct Decoding {
  const float* scale = nullptr;
  const float* offset = nullptr;

  explicit operator bool() const { return scale != nullptr; }
  // Returns those of the columns from `column`.
  Decoding from(int64_t column) const {
    return scale == nullptr ? *this : Decoding{scale + column, offset + column};
  }
};

// Rows of `columns` numbers, `stride` elements apart.
struct Matrix {
  const void* data = nullptr;
  Element element = Element::kFloat32;
  int64_t stride = 0;
  Decoding decoding{};  // of codes

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

// Calls body with a pointer of the type of the numbers.
template <class Body>
void with_integers(Integers integers, const Body& body) {
  if (integers.wide) return body(static_cast<const int64_t*>(integers.data));
  body(static_cast<const int32_t*>(integers.data));
}

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
    case Element::kInt8:
      return body(Code{});
  }
}

}  // namespace pyg_batchgnn
