// The types of numbers in memory.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

enum class Element : uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16 };

constexpr int64_t element_bytes(Element element) {
  return element == Element::kFloat64 ? 8 : element == Element::kFloat32 ? 4 : 2;
}

}  // namespace pyg_batchgnn
