// Random numbers, checks and the digest of results of the programs that run the kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include "kernels/operand.h"

namespace pyg_batchgnn {

#ifndef PYG_BATCHGNN_FUZZ  // build_tools/fuzz_kernels.cpp has a class of that name
using Random = std::mt19937_64;
#endif

inline Random generator(7);

inline int64_t below(int64_t n) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(n)); }

inline int64_t any_number() {  // often at an end of what it may be
  const int64_t odd[] = {
      0, 1, -1, INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, int64_t{1} << 31, int64_t{1} << 52};
  return below(2) ? odd[below(9)] : static_cast<int64_t>(generator());
}

inline size_t size(int64_t count) { return static_cast<size_t>(count); }

inline void expect(bool holds) {
  if (!holds) std::abort();
}

// `count` numbers of a type, small and finite; codes are any.
inline std::vector<char> numbers(int64_t count, Element element) {
  const auto bytes = static_cast<size_t>(element_bytes(element));
  std::vector<char> made(size(count) * bytes);
  for (size_t i = 0; i < size(count); ++i) {
    const float value = static_cast<float>(below(64)) / 64.0f;
    char* const to = made.data() + i * bytes;
    if (element == Element::kFloat64) {
      const double wide = value;
      std::memcpy(to, &wide, sizeof(wide));
    } else if (element == Element::kFloat32) {
      std::memcpy(to, &value, sizeof(value));
    } else if (element == Element::kInt8) {
      *to = static_cast<char>(below(256));
    } else {
      const auto code = static_cast<uint16_t>(0x3800 + below(64));
      const uint16_t half = element == Element::kFloat16 ? code : narrow<Bfloat16>(value).bits;
      std::memcpy(to, &half, sizeof(half));
    }
  }
  return made;
}

// The decoding of columns, for codes alone.
struct Decodings {
  Decodings(int64_t columns, Element element)
      : numbers(element == Element::kInt8 ? size(2 * columns) : 0), columns(columns) {
    for (float& one : numbers) one = static_cast<float>(1 + below(64)) / 64.0f;
  }

  Decoding get() const {
    return numbers.empty() ? Decoding{} : Decoding{numbers.data(), numbers.data() + columns};
  }

  std::vector<float> numbers;
  int64_t columns;
};

// The digest of all results. Processors of any kind must agree on it at the baseline.
inline std::atomic<uint64_t> digest{0};

// Adds a result to the digest, in whatever order threads do so.
template <class T>
__attribute__((no_sanitize("thread"))) void result(const T* data, int64_t count) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(data);
  uint64_t own = 0xCBF29CE484222325;
  for (size_t i = 0; i < size(count) * sizeof(T); ++i) own = (own ^ bytes[i]) * 0x100000001B3;
  digest += own;
}

template <class T>
void result(const std::vector<T>& values) {
  result(values.data(), static_cast<int64_t>(values.size()));
}

// Says that a program has come to its end, and prints the digest.
inline int done() {
  std::cout << "done " << digest << std::endl;
  return 0;
}

}  // namespace pyg_batchgnn
