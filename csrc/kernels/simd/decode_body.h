// The loops of decode.h.

// Returns code * scale + offset, rounded once. Without an instruction for it the sum is taken in
// double, where the product of 8 and 24 bits is exact, and rounded to odd. Then rounding it to
// float rounds the exact sum (Boldo and Melquiond 2008).
PYG_BATCHGNN_INLINE float decode_one(Code code, float scale, float offset) {
#if defined(__FP_FAST_FMAF)
  return std::fma(widen(code), scale, offset);
#else
  const double product = static_cast<double>(code.number) * static_cast<double>(scale);
  const double total = product + static_cast<double>(offset), rest = total - product;
  const double error = (product - (total - rest)) + (static_cast<double>(offset) - rest);
  auto bits = std::bit_cast<int64_t>(total);
  const int64_t away = (error > 0) == (total > 0) ? 1 : -1;
  bits += error != 0 && (bits & 1) == 0 ? away : 0;
  return static_cast<float>(std::bit_cast<double>(bits));
#endif
}

// Decodes the columns of kVectors vectors of some rows.
template <class L, int kVectors, int kRows, class Out>
PYG_BATCHGNN_INLINE void decode_vectors(const Code* const (&from)[kRows], Decoding by, int64_t at, Out* to,
                                        int64_t stride) {
  typename L::Vector scale[kVectors], offset[kVectors], value[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = L::load(by.scale + at + v * L::kWidth);
    offset[v] = L::load(by.offset + at + v * L::kWidth);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      value[v] = L::fma(L::load(from[r] + at + v * L::kWidth), scale[v], offset[v]);
    }
    Out* const out = to + r * stride + at;
    if constexpr (kVectors == 2) {
      L::store_pair(out, value[0], value[1]);
    } else {
      L::store(out, value[0]);
    }
  }
}

template <int kRows, class Out>
void decode(const Code* const* rows, Decoding by, int64_t count, Out* to, int64_t stride) {
  using L = Lanes<float>;
  const Code* from[kRows];
  for (int r = 0; r < kRows; ++r) from[r] = rows[r];
  if constexpr (L::kWidth > 4) {
    int64_t c = 0;
    for (; c + 16 <= count; c += 16) decode_vectors<L, 16 / L::kWidth>(from, by, c, to, stride);
    if (c + L::kWidth <= count) decode_vectors<L, 1>(from, by, c, to, stride), c += L::kWidth;
    if (c == count) return;
    // The last vector begins earlier and decodes some columns twice.
    if (count >= L::kWidth) return decode_vectors<L, 1>(from, by, count - L::kWidth, to, stride);
    const auto scale = L::load(by.scale, count), offset = L::load(by.offset, count);
    for (int r = 0; r < kRows; ++r) {
      L::store(to + r * stride, L::fma(L::load(from[r], count), scale, offset), count);
    }
  } else {
    for (int r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < count; ++c) {
        to[r * stride + c] = narrow<Out>(decode_one(from[r][c], by.scale[c], by.offset[c]));
      }
    }
  }
}

void stream(const Code* const* from, Decoding by, int64_t count, float* to) {
  alignas(64) float rows[kDecodedRows * kStreamedColumns];
  decode<kDecodedRows>(from, by, count, rows, count);
  stream_lines(rows, kDecodedRows * count * static_cast<int64_t>(sizeof(float)), to);
}

void end_stream() { fence(); }
