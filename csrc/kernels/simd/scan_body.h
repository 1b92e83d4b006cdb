// The loops of scan.h.

template <class T>
Extent scan_extent(const T* values, int64_t count) {
  if (count == 0) return {0, -1};
  T low = values[0], high = values[0];
  for (int64_t i = 1; i < count; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  return {low, high};
}

// Blocks without an early exit, which the compiler can vectorise.
template <class T>
bool scan_ascending(const T* values, int64_t count) {
  constexpr int64_t kBlock = 1024;
  for (int64_t begin = 1; begin < count; begin += kBlock) {
    int64_t falls = 0;
    for (int64_t i = begin; i < std::min(begin + kBlock, count); ++i) falls += values[i] < values[i - 1];
    if (falls != 0) return false;
  }
  return true;
}

inline int64_t scan_set_bits(const uint64_t* words, int64_t count) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += std::popcount(words[i]);
  return total;
}
