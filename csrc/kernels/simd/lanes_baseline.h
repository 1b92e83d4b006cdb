// Vectors of 16 bytes, which the compiler makes of whatever the processor has.
#pragma once

#include "kernels/operand.h"

namespace pyg_batchgnn {
namespace {

template <class Sum>
struct Lanes {
  typedef Sum Vector __attribute__((vector_size(16)));
  static constexpr int kWidth = 16 / sizeof(Sum);
  static constexpr int kRegisters = 16;

  static Vector zero() { return Vector{}; }
  static Vector fill(Sum value) { return Vector{} + value; }
  static Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
  static Vector add(Vector a, Vector b) { return a + b; }

  template <class T>
  static Vector load(const T* p, int64_t count = kWidth) {
    Vector v{};
    for (int64_t i = 0; i < count; ++i) v[i] = widen(p[i]);
    return v;
  }
  template <class T>
  static void store(T* p, Vector v, int64_t count = kWidth) {
    for (int64_t i = 0; i < count; ++i) p[i] = narrow<T>(v[i]);
  }
  static void stream(Sum* p, Vector v) { store(p, v); }
  static void end_stream() {}

  static Sum sum(Vector v) {
    Sum total = 0;
    for (int i = 0; i < kWidth; ++i) total += v[i];
    return total;
  }
  static void sum4(const Vector* v, Sum* out) {
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
  }
};

}  // namespace
}  // namespace pyg_batchgnn
