// The operands of a forward pass: single elements, or pairs of bfloat16 that are multiplied.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/nn/linear_blocks.h"
#include "kernels/simd/products.h"
#include "kernels/simd/tiles.h"

namespace pyg_batchgnn {

// The operands of a tile of the output.
template <class Value, class T>
struct TileProduct {
  const Value* const* values;  // kRows of the operands
  int64_t value_stride;        // of converted rows
  int64_t terms, vectors;
  const Value* panel;
  int64_t panel_stride;
  T* tile;
  int64_t tile_stride;
  bool add;
  PrefetchQueue* prefetch;
};

template <class T>
struct Elements {
  using Sum = T;
  using Value = T;
  static constexpr int64_t kRows = kTileRows;  // of a tile of the output

  static int64_t terms(int64_t columns) { return columns; }

  // Sets element (term, output) of a panel from the weight's row of the output.
  static T pack(const T* weight, int64_t, int64_t term) { return weight[term]; }

  // Returns whether rows can be read in place.
  static bool in_place(const LinearShape& shape, const LinearInput& input) {
    return input.element == kElement<T> && shape.compute == kElement<T>;
  }

  // Returns the distance between converted rows.
  static int64_t row_stride(const LinearShape&, const LinearInput& input) {
    return block_stride<T>(input.columns);
  }

  // Finds rows [begin, end), converted or in place.
  static void rows(const LinearShape& shape, const LinearInput& input, int64_t begin, int64_t end,
                   T* converted, const T** pointers) {
    for (int64_t i = begin; i < end; ++i) {
      if (in_place(shape, input)) {
        pointers[i - begin] = reinterpret_cast<const T*>(input.row(i));
        continue;
      }
      read_columns(input, input.row(i), 0, input.columns, shape.compute, converted);
      pointers[i - begin] = converted;
      converted += row_stride(shape, input);
    }
  }

  static void multiply(const TileProduct<T, T>& p) {
    product_kernels<T>().dense({p.values, 1, kTileRows, p.terms, p.vectors, p.panel, p.panel_stride, p.tile,
                                p.tile_stride, p.add, p.prefetch});
  }

  static void finish(const Finish<T>& f) { product_kernels<T>().finish(f); }
};

// A row in bfloat16, of numbers other than codes.
inline void round_row(const char* from, Element element, int64_t columns, uint16_t* to) {
  const ProductKernels<float>& kernels = product_kernels<float>();
  if (element == Element::kBFloat16) {
    if (columns > 0) std::memcpy(to, from, static_cast<size_t>(columns) * sizeof(uint16_t));
  } else if (element == Element::kFloat32) {
    kernels.write(reinterpret_cast<const float*>(from), columns, Element::kBFloat16, to);
  } else {
    float block[kWordBits];
    for (int64_t at = 0; at < columns; at += kWordBits) {
      const int64_t count = std::min(kWordBits, columns - at);
      kernels.read(from + at * element_bytes(element), element, count, block);
      kernels.write(block, count, Element::kBFloat16, to + at);
    }
  }
}

// Columns [first, first + count) of a row of an input in bfloat16.
inline void round_columns(const LinearInput& input, const char* row, int64_t first, int64_t count,
                          uint16_t* to) {
  const char* const from = row + first * element_bytes(input.element);
  if (input.element != Element::kInt8) return round_row(from, input.element, count, to);
  decode_row(reinterpret_cast<const Code*>(from), input.decoding.from(first), count,
             reinterpret_cast<Bfloat16*>(to));
}

// Reads rows of the gradient, masked or behind a normalisation; zeros up to `stride` columns and
// kListTerms rows.
inline void read_grad(const LinearGrads& job, int64_t begin, int64_t rows, uint16_t* to, int64_t stride) {
  const LinearGradient& gradient = job.gradient;
  const int64_t outputs = job.shape.outputs, mask_bytes = (outputs + 7) / 8;
  if (gradient.norm == nullptr) {
    const auto* const mask = gradient.mask == nullptr ? nullptr : gradient.mask + begin * mask_bytes;
    return mask_pairs({static_cast<const uint16_t*>(gradient.grad) + begin * outputs, outputs, mask,
                       mask_bytes, rows, outputs, to, stride});
  }
  for (int64_t i = 0; i < rows; ++i, to += stride) {
    normed_row(gradient, begin + i, outputs, reinterpret_cast<Bfloat16*>(to));
    std::fill(to + outputs, to + stride, uint16_t{0});
  }
  std::fill_n(to, (kListTerms - rows) * stride, uint16_t{0});
}

// Writes the gradients of weights and bias, given their sums before the scale: [outputs, stride] of
// the weights of all inputs, side by side, and bias_of(output).
template <class BiasOf>
void write_scaled(const LinearGrads& job, const float* sums, int64_t stride, const BiasOf& bias_of) {
  const ProductKernels<float>& kernels = product_kernels<float>();
  const auto scale = static_cast<float>(job.gradient.scale);
  Buffer<float> scaled;
  for (size_t t = 0; t < job.wanted.weights.size(); sums += job.group_columns(t), ++t) {
    const int64_t columns = job.group_columns(t), item = element_bytes(job.weights[t].element);
    scaled.reserve(columns + 1);
    for (int64_t o = 0; o < job.shape.outputs; ++o) {
      for (int64_t c = 0; c < columns; ++c) scaled.data()[c] = sums[o * stride + c] * scale;
      kernels.write(scaled.data(), columns, job.weights[t].element,
                    static_cast<char*>(job.wanted.weights[t]) + o * columns * item);
    }
  }
  if (job.wanted.bias == nullptr) return;
  scaled.reserve(job.shape.outputs + 1);
  for (int64_t o = 0; o < job.shape.outputs; ++o) scaled.data()[o] = bias_of(o) * scale;
  kernels.write(scaled.data(), job.shape.outputs, job.weights.front().element, job.wanted.bias);
}

// Two bfloat16 in 32 bits, the first in the lower half. A last odd one is paired with zero.
struct Pairs {
  using Sum = float;
  using Value = uint32_t;
  static constexpr int64_t kRows = kTileRows;

  static int64_t terms(int64_t columns) { return (columns + 1) / 2; }

  // The weight has been rounded to bfloat16.
  static uint32_t pack(const float* weight, int64_t columns, int64_t term) {
    const uint32_t low = std::bit_cast<uint32_t>(weight[2 * term]) >> 16;
    if (2 * term + 1 == columns) return low;
    return low | (std::bit_cast<uint32_t>(weight[2 * term + 1]) & 0xFFFF0000u);
  }

  static bool in_place(const LinearShape& shape, const LinearInput& input) {
    return input.element == Element::kBFloat16 && input.columns / shape.groups % 2 == 0 &&
           input.stride % 2 == 0 && reinterpret_cast<uintptr_t>(input.data) % sizeof(uint32_t) == 0;
  }

  static int64_t row_stride(const LinearShape& shape, const LinearInput& input) {
    return shape.groups * terms(input.columns / shape.groups);
  }

  static void rows(const LinearShape& shape, const LinearInput& input, int64_t begin, int64_t end,
                   uint32_t* to, const uint32_t** pointers) {
    const int64_t columns = input.columns / shape.groups, pairs = terms(columns);
    if (in_place(shape, input)) {
      for (int64_t i = begin; i < end; ++i) {
        pointers[i - begin] = reinterpret_cast<const uint32_t*>(input.row(i));
      }
      return;
    }
    const int64_t stride = row_stride(shape, input);
    for (int64_t i = begin; i < end; ++i, to += stride) {
      for (int64_t group = 0; group < shape.groups; ++group) {
        if (columns % 2 != 0) to[group * pairs + columns / 2] = 0;
        round_columns(input, input.row(i), group * columns, columns,
                      reinterpret_cast<uint16_t*>(to + group * pairs));
      }
      pointers[i - begin] = to;
    }
  }

  static void multiply(const TileProduct<uint32_t, float>& p) {
    pair_kernels()->dense(
        {p.values, p.terms, p.vectors, p.panel, p.panel_stride, p.tile, p.tile_stride, p.add, p.prefetch});
  }

  static void finish(const Finish<float>& f) {
    const bool words = f.columns % kWordBits == 0 && f.first_column % kWordBits == 0;
    const bool masked = f.mask != nullptr || (!f.relu && f.dropout == nullptr);
    (words && masked ? pair_kernels()->finish : product_kernels<float>().finish)(f);
  }
};

// Pairs for the matrix unit, whose rows lie one behind the other, zeros up to whole tiles.
struct Tiles : Pairs {
  static constexpr int64_t kRows = 2 * kTileSide;

  static int64_t terms(int64_t columns) { return round_up(Pairs::terms(columns), kTileSide); }

  static uint32_t pack(const float* weight, int64_t columns, int64_t term) {
    return term < Pairs::terms(columns) ? Pairs::pack(weight, columns, term) : 0;
  }

  static bool in_place(const LinearShape&, const LinearInput&) { return false; }

  static int64_t row_stride(const LinearShape& shape, const LinearInput& input) {
    return shape.groups * terms(input.columns / shape.groups);
  }

  static void rows(const LinearShape& shape, const LinearInput& input, int64_t begin, int64_t end,
                   uint32_t* to, const uint32_t** pointers) {
    const int64_t columns = input.columns / shape.groups, pairs = terms(columns);
    for (int64_t i = begin; i < end; ++i) {
      pointers[i - begin] = to;
      for (int64_t group = 0; group < shape.groups; ++group, to += pairs) {
        std::fill(to + columns / 2, to + pairs, 0u);
        round_columns(input, input.row(i), group * columns, columns, reinterpret_cast<uint16_t*>(to));
      }
    }
  }

  // The rows of the last tile may be fewer than kRows. What lies behind them is not used.
  static void multiply(const TileProduct<uint32_t, float>& p) {
    p.prefetch->fetch(kLinesPerTile);
    tile_kernels()->multiply({p.values[0], p.value_stride, p.panel, p.panel_stride, kRows, p.terms,
                              p.vectors * kTileSide, p.tile, p.tile_stride, p.add});
  }

 private:
  static constexpr int64_t kLinesPerTile = 96;
};

}  // namespace pyg_batchgnn
