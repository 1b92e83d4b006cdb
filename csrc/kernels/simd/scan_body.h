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

// Words, a vector at a time.
constexpr int64_t kWords = Lanes<double>::kWidth;
typedef uint64_t Words __attribute__((vector_size(kWords * sizeof(uint64_t))));

// Writes the values whose word is at most `limit`, in order, and maybe others behind them. Returns
// how many there are.
template <class Vector>
PYG_BATCHGNN_INLINE int64_t write_below(Vector value, Vector word, uint64_t limit, void* to) {
  auto* out = static_cast<uint64_t*>(to);
  int64_t count = 0;
  for (int64_t i = 0; i < kWords; ++i) {
    out[count] = value[i];
    count += word[i] <= limit ? 1 : 0;
  }
  return count;
}

template <class T>
int64_t words_below(const T* sources, int64_t count, uint64_t key, uint64_t limit, uint64_t* word) {
  typedef T Sources __attribute__((vector_size(kWords * sizeof(T))));
  T few[kWords] = {};
  if (count < kWords) sources = std::copy_n(sources, count, few) - count;
  Words lane;
  for (int64_t i = 0; i < kWords; ++i) lane[i] = static_cast<uint64_t>(i);
  int64_t found = 0;
  // Takes the words of a vector but those of the first places, which are taken already.
  const auto take = [&](int64_t first, int64_t taken) {
    Sources source;
    __builtin_memcpy(&source, sources + first, sizeof(Sources));
    // source_word without its last step, which leaves the upper bits as they are
    Words z = __builtin_convertvector(source, Words) * kGamma + (key + kGamma);
    z = (z ^ (z >> 30)) * kMixFirst;
    z = (z ^ (z >> 27)) * kMixSecond;
    const Words value = (z & ~kPlaceOfWord) | (lane + static_cast<uint64_t>(first));
    if (taken > 0) z |= (Words)(lane < static_cast<uint64_t>(taken));
    found += write_below(value, z, limit, word + found);
  };
  int64_t first = 0;
  for (; first + kWords <= count; first += kWords) take(first, 0);
  if (first < count) take(std::max<int64_t>(0, count - kWords), first == 0 ? 0 : first + kWords - count);
  while (found > 0 && static_cast<int64_t>(word[found - 1] & kPlaceOfWord) >= count) --found;
  return found;
}

// Counts for each word how many are smaller: for a vector of words at once.
inline bool least_words(uint64_t* word, int64_t count, int64_t picks, int64_t* place) {
  std::fill_n(word + count, kWords, ~uint64_t{0});
  int64_t taken = 0;
  for (int64_t first = 0; first < count && taken <= picks; first += kWords) {
    Words group, smaller = {};
    __builtin_memcpy(&group, word + first, sizeof(Words));
    const Words upper = group & ~kPlaceOfWord;
    for (int64_t j = 0; j < count; ++j) smaller -= (Words)(upper > word[j]);
    taken += write_below(group & kPlaceOfWord, smaller, static_cast<uint64_t>(picks - 1), place + taken);
  }
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
