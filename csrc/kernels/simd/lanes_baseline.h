// Vectors of 16 bytes, which the compiler maps to the processor's. Lanes has at each level:
//
// - Vector, kWidth, kRegisters: the vector, its elements, and how many of them the processor holds.
// - k...Vectors: how many vectors of a row a kernel keeps in registers.
// - load(p), load(p, count), store(p, v), store(p, v, count): from and to memory of T, and for T =
//   float of Bfloat16 and (loads) of Half and Code; with `count` only the first elements, others
//   are zero. store_pair, without NaNs, where vectors hold 8. stream: past the caches.
// - fma(a, b, c) = a * b + c, rounded once where the processor can.
// - passing(a), nonzero(a): bits of the elements that are positive or NaN, that are not 0. keep(a,
//   bits).
// - sum(v): of the elements; sum4: of four vectors, in the same order. add_lanes where two vectors'
//   sums are made at once.
//
// Outside of Lanes: in_register, kept_columns (of dropout), stream_lines and fence.

template <class T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr int kWidth = 16 / sizeof(T);
  static constexpr int kRegisters = 16;
  static constexpr int kTileVectors = 2;
  static constexpr int kSparseVectors = 8;
  static constexpr int kReluBackwardVectors = 4;
  static constexpr int kTwoRowVectors = 6;
  static constexpr int kSumVectors = 8;

  PYG_BATCHGNN_INLINE Vector zero() { return Vector{}; }
  PYG_BATCHGNN_INLINE Vector fill(T value) { return Vector{} + value; }
  PYG_BATCHGNN_INLINE Vector add(Vector a, Vector b) { return a + b; }
  PYG_BATCHGNN_INLINE Vector multiply(Vector a, Vector b) { return a * b; }
  PYG_BATCHGNN_INLINE Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }

  using Bits = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  typedef Bits Mask __attribute__((vector_size(16)));
  PYG_BATCHGNN_INLINE Mask lanes() {
    Mask lane{};
    for (int i = 0; i < kWidth; ++i) lane[i] = 1 << i;
    return lane;
  }
  PYG_BATCHGNN_INLINE uint64_t bits_of(Mask mask) {
    uint64_t bits = 0;
    mask &= lanes();
    for (int i = 0; i < kWidth; ++i) bits |= static_cast<uint64_t>(mask[i]);
    return bits;
  }
  PYG_BATCHGNN_INLINE uint64_t passing(Vector a) { return bits_of(~(a <= zero())); }
  PYG_BATCHGNN_INLINE uint64_t nonzero(Vector a) { return bits_of(a != zero()); }
  PYG_BATCHGNN_INLINE Vector keep(Vector a, uint64_t bits) {
    return (Vector)((Mask)a & (((Mask{} + static_cast<Bits>(bits)) & lanes()) == lanes()));
  }

  PYG_BATCHGNN_INLINE Vector load(const T* from) {
    Vector a;
    __builtin_memcpy(&a, from, sizeof(a));
    return a;
  }
  template <class In>
  PYG_BATCHGNN_INLINE Vector load(const In* p, int64_t count = kWidth) {
    Vector v{};
    for (int64_t i = 0; i < count; ++i) v[i] = widen(p[i]);
    return v;
  }
  PYG_BATCHGNN_INLINE void store(T* to, Vector a) { __builtin_memcpy(to, &a, sizeof(a)); }
  template <class Out>
  PYG_BATCHGNN_INLINE void store(Out* p, Vector v, int64_t count = kWidth) {
    for (int64_t i = 0; i < count; ++i) p[i] = narrow<Out>(v[i]);
  }
  template <class Out>
  PYG_BATCHGNN_INLINE void stream(Out* p, Vector v) {
    store(p, v);
  }

  PYG_BATCHGNN_INLINE T sum(Vector v) {
    T total = 0;
    for (int i = 0; i < kWidth; ++i) total += v[i];
    return total;
  }
  PYG_BATCHGNN_INLINE void sum4(const Vector* v, T* out) {
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
  }
};

template <class Vector>
PYG_BATCHGNN_INLINE Vector in_register(Vector value) {
  return value;
}

// Returns bits of the columns 4 * word to 4 * word + 63 of a row that dropout keeps.
PYG_BATCHGNN_INLINE uint64_t kept_columns(const Dropout& dropout, uint64_t row_key, int64_t word) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < 16; ++i) {
    const uint64_t random = dropout_word(row_key, word + i);
    for (int64_t c = 0; c < 4; ++c) {
      const uint64_t level = (random >> (16 * c)) & (kDropoutLevels - 1);
      bits |= static_cast<uint64_t>(level < dropout.kept_levels) << (4 * i + c);
    }
  }
  return bits;
}

PYG_BATCHGNN_INLINE void stream_lines(const void* from, int64_t bytes, void* to) {
  __builtin_memcpy(to, from, static_cast<size_t>(bytes));
}

PYG_BATCHGNN_INLINE void fence() {}
