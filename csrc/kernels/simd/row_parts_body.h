// Vectors of a row.

template <class A>
using Vector = typename Lanes<A>::Vector;

template <class A>
struct Whole {
  template <class T>
  __attribute__((always_inline)) Vector<A> load(const T* p) const {
    return Lanes<A>::load(p);
  }
  template <class T>
  __attribute__((always_inline)) void store(T* p, Vector<A> v) const {
    Lanes<A>::store(p, v);
  }
  __attribute__((always_inline)) Vector<A> keep(Vector<A> v) const { return v; }
};

// At the end of a row the first `count` elements; the others are read as zero.
template <class A>
struct Part {
  int64_t count;
  template <class T>
  __attribute__((always_inline)) Vector<A> load(const T* p) const {
    return Lanes<A>::load(p, count);
  }
  template <class T>
  __attribute__((always_inline)) void store(T* p, Vector<A> v) const {
    Lanes<A>::store(p, v, count);
  }
  __attribute__((always_inline)) Vector<A> keep(Vector<A> v) const {
    return Lanes<A>::keep(v, (1u << count) - 1u);
  }
};

// Calls loop(c, part) for the vectors of `columns` columns.
template <class A, class Loop>
PYG_BATCHGNN_INLINE void vectors_of(int64_t columns, const Loop& loop) {
  int64_t c = 0;
#pragma GCC unroll 4
  for (; c + Lanes<A>::kWidth <= columns; c += Lanes<A>::kWidth) loop(c, Whole<A>{});
  if (c < columns) loop(c, Part<A>{columns - c});
}
