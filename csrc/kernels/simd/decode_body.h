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

template <class Out>
void decode(const Code* from, Decoding by, int64_t count, Out* to) {
  using L = Lanes<float>;
  if constexpr (L::kWidth > 4) {
    const auto vector = [&](int64_t at) {
      L::store(to + at, L::fma(L::load(from + at), L::load(by.scale + at), L::load(by.offset + at)));
    };
    int64_t c = 0;
    for (; c + L::kWidth <= count; c += L::kWidth) vector(c);
    if (c == count) return;
    // The last vector begins earlier and decodes some columns twice.
    if (count >= L::kWidth) return vector(count - L::kWidth);
    const auto scale = L::load(by.scale, count), offset = L::load(by.offset, count);
    L::store(to, L::fma(L::load(from, count), scale, offset), count);
  } else {
    for (int64_t c = 0; c < count; ++c) to[c] = narrow<Out>(decode_one(from[c], by.scale[c], by.offset[c]));
  }
}
