// The loops of tiles.h, for a `Unit` with eight tiles: 0-3 are sums, 4-5 rows of a, 6-7 rows of b.

// R x C tiles of sums, which stay in the unit from the first pair to the last.
template <class Unit, int R, int C>
void sum_tiles(const TilesProduct& p, const uint32_t* a, const uint32_t* b, float* out) {
  float* const below = out + kTileSide * p.out_stride;
  Unit::template begin<0>(p.add, out, p.out_stride);
  if constexpr (C == 2) Unit::template begin<1>(p.add, out + kTileSide, p.out_stride);
  if constexpr (R == 2) Unit::template begin<2>(p.add, below, p.out_stride);
  if constexpr (R == 2 && C == 2) Unit::template begin<3>(p.add, below + kTileSide, p.out_stride);
  for (int64_t s = 0; s < p.pairs; s += kTileSide, b += kTileSide * p.b_stride) {
    Unit::template load<4>(a + s, p.a_stride);
    Unit::template load<6>(b, p.b_stride);
    Unit::template multiply<0, 4, 6>();
    if constexpr (C == 2) {
      Unit::template load<7>(b + kTileSide, p.b_stride);
      Unit::template multiply<1, 4, 7>();
    }
    if constexpr (R == 2) {
      Unit::template load<5>(a + kTileSide * p.a_stride + s, p.a_stride);
      Unit::template multiply<2, 5, 6>();
    }
    if constexpr (R == 2 && C == 2) Unit::template multiply<3, 5, 7>();
  }
  Unit::template store<0>(out, p.out_stride);
  if constexpr (C == 2) Unit::template store<1>(out + kTileSide, p.out_stride);
  if constexpr (R == 2) Unit::template store<2>(below, p.out_stride);
  if constexpr (R == 2 && C == 2) Unit::template store<3>(below + kTileSide, p.out_stride);
}

template <class Unit, int R>
void sum_rows_of_tiles(const TilesProduct& p, const uint32_t* a, float* out) {
  int64_t c = 0;
  for (; c + 2 * kTileSide <= p.columns; c += 2 * kTileSide) {
    sum_tiles<Unit, R, 2>(p, a, p.b + c, out + c);
  }
  if (c < p.columns) sum_tiles<Unit, R, 1>(p, a, p.b + c, out + c);
}

template <class Unit>
void multiply_tiles(const TilesProduct& p) {
  [[maybe_unused]] const Unit unit;
  int64_t r = 0;
  for (; r + 2 * kTileSide <= p.rows; r += 2 * kTileSide) {
    sum_rows_of_tiles<Unit, 2>(p, p.a + r * p.a_stride, p.out + r * p.out_stride);
  }
  if (r < p.rows) sum_rows_of_tiles<Unit, 1>(p, p.a + r * p.a_stride, p.out + r * p.out_stride);
}
