// The loops of activation.h.

inline void dropout_draws(uint64_t row_key, int64_t columns, uint16_t* draws) {
  const int64_t words = (columns + kDropoutColumnsPerWord - 1) / kDropoutColumnsPerWord;
  for (int64_t i = 0; i < words; ++i) {
    const uint64_t word = dropout_word(row_key, i);
    std::memcpy(draws + i * kDropoutColumnsPerWord, &word, sizeof(word));
  }
}

inline void dropout_passes(const uint16_t* draws, uint32_t kept_levels, int64_t columns, uint8_t* pass) {
  const auto last = static_cast<uint16_t>(kept_levels - 1);  // fits 16 bits also if all levels are
                                                             // kept
  for (int64_t c = 0; c < columns; ++c) pass[c] = draws[c] <= last;
}

template <class T>
void relu_passes(const T* x, int64_t columns, uint8_t* __restrict pass) {
  for (int64_t c = 0; c < columns; ++c) pass[c] &= !(widen(x[c]) <= 0);
}

template <class T>
void select_scaled(const T* x, const uint8_t* __restrict pass, Wide<T> scale, int64_t columns, T* y) {
#pragma GCC ivdep
  for (int64_t c = 0; c < columns; ++c) {
    const Wide<T> scaled = widen(x[c]) * scale;
    y[c] = narrow<T>(pass[c] != 0 ? scaled : Wide<T>(0));
  }
}
