// The loops of decode.h.

template <class Out>
void decode(const Code* from, Decoding by, int64_t count, Out* to) {
  int64_t c = 0;
#if defined(__x86_64__)
  // Without fused multiply-add of its own the baseline decodes one by one.
  if constexpr (Lanes<float>::kWidth > 4) {
    using L = Lanes<float>;
    const auto vector = [&](int64_t at) {
      L::store(to + at, L::fma(L::load(from + at), L::load(by.scale + at), L::load(by.offset + at)));
    };
    for (; c + L::kWidth <= count; c += L::kWidth) vector(c);
    if (c == count) return;
    // The last vector begins earlier and decodes some columns twice.
    if (count >= L::kWidth) return vector(count - L::kWidth);
    const auto scale = L::load(by.scale, count), offset = L::load(by.offset, count);
    return L::store(to, L::fma(L::load(from, count), scale, offset), count);
  }
#endif
  for (; c < count; ++c) to[c] = narrow<Out>(std::fma(widen(from[c]), by.scale[c], by.offset[c]));
}
