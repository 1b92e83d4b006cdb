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

template <class T>
int64_t words_below(const T* sources, int64_t count, uint64_t key, uint64_t limit, uint64_t* word,
                    int64_t* place) {
  int64_t found = 0;
  for (int64_t first = 0; first < count; first += kWordGroup) {
    T last[kWordGroup] = {};
    const T* source = sources + first;
    const int64_t given = std::min(kWordGroup, count - first);
    if (given < kWordGroup) source = static_cast<const T*>(std::copy_n(source, given, last) - given);
    uint64_t group[kWordGroup], some = 0;
    for (int64_t i = 0; i < kWordGroup; ++i) {
      group[i] = source_word(key, static_cast<int64_t>(source[i]));
      some |= group[i] <= limit ? 1 : 0;
    }
    if (some == 0) continue;
    for (int64_t i = 0; i < given; ++i) {
      word[found] = group[i];
      place[found] = first + i;
      found += group[i] <= limit ? 1 : 0;
    }
  }
  return found;
}

// Counts for each word how many are smaller: for a vector of words at once.
inline bool least_words(uint64_t* word, int64_t count, int64_t picks, const int64_t* place, int64_t* out) {
  constexpr int64_t kLanes = Lanes<double>::kWidth;
  typedef uint64_t Words __attribute__((vector_size(kLanes * sizeof(uint64_t))));
  std::fill_n(word + count, kWordGroup, ~uint64_t{0});
  int64_t chosen[kFewWords + kLanes], taken = 0;
  for (int64_t first = 0; first < count; first += kLanes) {
    Words group, larger = {};
    __builtin_memcpy(&group, word + first, sizeof(Words));
    for (int64_t j = 0; j < count; ++j) larger += (Words)(group > word[j]);  // minus one where it holds
    for (int64_t g = 0; g < kLanes; ++g) {
      chosen[taken] = place[first + g];
      taken += -larger[g] < static_cast<uint64_t>(picks) && first + g < count ? 1 : 0;
    }
  }
  std::copy_n(chosen, picks, out);
  return taken == picks;
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

template <class T>
void list_set_bits(const uint64_t* words, int64_t count, int64_t* before, T* out) {
  int64_t total = 0;
  for (int64_t w = 0; w < count; ++w) {
    // Most words of a sparse set have two bits at most, so that these are written without a branch.
    uint64_t left = words[w];
    const int64_t found = std::popcount(left), first = w * 64;
    before[w] = total;
    out[total] = static_cast<T>(first + std::countr_zero(left));
    left &= left - 1;
    out[total + 1] = static_cast<T>(first + std::countr_zero(left));
    left &= left - 1;
    for (int64_t i = 2; i < found; ++i, left &= left - 1) {
      out[total + i] = static_cast<T>(first + std::countr_zero(left));
    }
    total += found;
  }
}

inline void rank_bits(const uint64_t* words, const int64_t* before, const int64_t* bit, int64_t count,
                      int64_t* rank) {
  constexpr int64_t kAhead = 32;
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(&words[bit[i + kAhead] >> 6]);
      __builtin_prefetch(&before[bit[i + kAhead] >> 6]);
    }
    const int64_t w = bit[i] >> 6;
    rank[i] = before[w] + std::popcount(words[w] & ((uint64_t{1} << (bit[i] & 63)) - 1));
  }
}
