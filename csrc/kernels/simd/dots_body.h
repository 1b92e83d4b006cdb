// Single elements of a product, each a dot product of two rows. Included behind products_body.h.
//
// An element is summed in kDotLanes partial sums, which are added quarter to quarter and half to half: in the
// same order whatever the width of vectors, so AVX2 and AVX-512 agree in every bit.

template <class T>
constexpr int64_t kDotLanes = 4 * Ahead::kLine / static_cast<int64_t>(sizeof(T));

template <class T>
constexpr int kDotVectors = static_cast<int>(kDotLanes<T> / Lanes<T>::kWidth);

template <class T>
PYG_BATCHGNN_INLINE T sum_lanes(const typename Lanes<T>::Vector* sums) {
  using L = Lanes<T>;
  constexpr int kQuarter = kDotVectors<T> / 4;
  alignas(Ahead::kLine) T lanes[kDotLanes<T> / 4];
  for (int v = 0; v < kQuarter; ++v) {
    const auto all =
        L::add(L::add(sums[v], sums[kQuarter + v]), L::add(sums[2 * kQuarter + v], sums[3 * kQuarter + v]));
    if constexpr (requires { L::sum_halves(all); }) return L::sum_halves(all);
    L::store(lanes + v * L::kWidth, all);
  }
  for (int64_t half = kDotLanes<T> / 8; half != 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[half + i];
  }
  return lanes[0];
}

// A row of `a` of kSteps * kDotLanes terms, in registers where there are enough, and its elements two by two.
template <class T, int kSteps>
void dot_rows(const DotProducts<T>& p) {
  using L = Lanes<T>;
  constexpr int kVectors = kDotVectors<T>;
  for (int64_t r = 0; r < p.rows; ++r) {
    uint64_t word = p.words[r];
    p.ahead->fetch(kLinesPerRow);
    if (word == 0) continue;
    typename L::Vector a[kSteps * kVectors];
#pragma GCC unroll 64
    for (int v = 0; v < kSteps * kVectors; ++v) a[v] = L::load(p.a + r * p.a_stride + v * L::kWidth);
    T* const out = p.out + r * p.out_stride;
    while (word != 0) {
      const int64_t first = std::countr_zero(word);
      word &= word - 1;
      const int64_t second = word == 0 ? first : std::countr_zero(word);
      word &= word - 1;
      const T* const b = p.b + first * p.b_stride;
      const T* const c = p.b + second * p.b_stride;
      typename L::Vector sum_b[kVectors], sum_c[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum_b[v] = L::times(a[v], L::load(b + v * L::kWidth));
        sum_c[v] = L::times(a[v], L::load(c + v * L::kWidth));
      }
#pragma GCC unroll 64
      for (int v = kVectors; v < kSteps * kVectors; ++v) {
        sum_b[v % kVectors] = L::fma(a[v], L::load(b + v * L::kWidth), sum_b[v % kVectors]);
        sum_c[v % kVectors] = L::fma(a[v], L::load(c + v * L::kWidth), sum_c[v % kVectors]);
      }
      out[first] = sum_lanes<T>(sum_b);
      out[second] = sum_lanes<T>(sum_c);
    }
  }
}

template <class T>
void dots(const DotProducts<T>& p) {
  switch (p.terms / kDotLanes<T>) {
    case 1:
      return dot_rows<T, 1>(p);
    case 2:
      return dot_rows<T, 2>(p);
    case 3:
      return dot_rows<T, 3>(p);
    case 4:
      return dot_rows<T, 4>(p);
    default:
      return;
  }
}
