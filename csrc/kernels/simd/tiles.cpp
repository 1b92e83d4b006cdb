#include "kernels/simd/tiles.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "kernels/simd/level.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

PYG_BATCHGNN_BEGIN_LEVEL(PYG_BATCHGNN_AVX512)

namespace pyg_batchgnn::tiles {
namespace {

#include "kernels/simd/tiles_body.h"

void interleave(const uint16_t* first, const uint16_t* second, int64_t count, uint32_t* to) {
  for (int64_t c = 0; c < count; c += kTileSide) {
    const auto load = [c](const uint16_t* from) {
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + c)));
    };
    _mm512_storeu_si512(to + c, _mm512_or_si512(load(first), _mm512_slli_epi32(load(second), 16)));
  }
}

// Four steps, each of which brings elements together that are 1, 2, 4 or 8 rows apart.
void transpose(const uint32_t* from, int64_t stride, int64_t columns, uint32_t* to, int64_t to_stride) {
  for (int64_t c = 0; c < columns; c += kTileSide) {
    __m512i a[kTileSide], b[kTileSide];
    for (int i = 0; i < kTileSide; ++i) a[i] = _mm512_loadu_si512(from + i * stride + c);
    for (int i = 0; i < kTileSide; i += 2) {
      b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
      b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < kTileSide; i += 4) {
      a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
      a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
      a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
      a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int half = 0; half < kTileSide; half += 8) {
      for (int i = half; i < half + 4; ++i) {
        b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xDD);
      }
    }
    for (int i = 0; i < 8; ++i) {
      _mm512_storeu_si512(to + (c + i) * to_stride, _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88));
      _mm512_storeu_si512(to + (c + i + 8) * to_stride, _mm512_shuffle_i32x4(b[i], b[i + 8], 0xDD));
    }
  }
}

// The unit in plain C++, for processors without one. Denormals are not flushed.
struct EmulatedUnit {
  template <int kTile>
  static void begin(bool add, const float* from, int64_t stride) {
    for (int64_t r = 0; r < kTileSide; ++r) {
      for (int64_t c = 0; c < kTileSide; ++c) sums[kTile][r][c] = add ? from[r * stride + c] : 0.0f;
    }
  }
  template <int kTile>
  static void store(float* to, int64_t stride) {
    for (int64_t r = 0; r < kTileSide; ++r)
      std::memcpy(to + r * stride, sums[kTile][r], sizeof(sums[kTile][r]));
  }
  template <int kTile>
  static void load(const uint32_t* from, int64_t stride) {
    for (int64_t r = 0; r < kTileSide; ++r) {
      std::memcpy(pairs[kTile - 4][r], from + r * stride, sizeof(pairs[0][r]));
    }
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    for (int64_t r = 0; r < kTileSide; ++r) {
      for (int64_t c = 0; c < kTileSide; ++c) {
        float first = 0, second = 0;
        for (int64_t s = 0; s < kTileSide; ++s) {
          const uint32_t x = pairs[kA - 4][r][s], y = pairs[kB - 4][s][c];
          first += low(x) * low(y);
          second += high(x) * high(y);
        }
        sums[kSum][r][c] += first + second;
      }
    }
  }

 private:
  static float low(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
  static float high(uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); }

  static thread_local float sums[4][kTileSide][kTileSide];
  static thread_local uint32_t pairs[4][kTileSide][kTileSide];
};

thread_local float EmulatedUnit::sums[4][kTileSide][kTileSide];
thread_local uint32_t EmulatedUnit::pairs[4][kTileSide][kTileSide];

constexpr TileKernels kEmulated{&multiply_tiles<EmulatedUnit>, &interleave, &transpose};

}  // namespace
}  // namespace pyg_batchgnn::tiles

PYG_BATCHGNN_END_LEVEL

namespace pyg_batchgnn::amx {
namespace {

#include "kernels/simd/tiles_body.h"

// The unit of this thread, set up while an object lives. The compiler's intrinsics take numbers of
// tiles as text, which a template does not have.
class Unit {
 public:
  Unit() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    static_assert(sizeof(shape) == 64);
    asm volatile("ldtilecfg %0" : : "m"(shape));
  }
  ~Unit() { asm volatile("tilerelease"); }
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  template <int kTile>
  static void begin(bool add, const float* from, int64_t stride) {
    if (add) return load<kTile>(from, stride);
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void store(float* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride * 4), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride * 4), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

void multiply(const TilesProduct& p) { multiply_tiles<Unit>(p); }

}  // namespace
}  // namespace pyg_batchgnn::amx

namespace pyg_batchgnn {
namespace {

// Returns whether the processor has the unit and the system lets this process use it.
bool has_amx() {
  constexpr unsigned kBfloat16 = 1u << 22, kTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBfloat16) == 0 || (d & kTile) == 0) return false;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

constexpr TileKernels kAmx{&amx::multiply, &tiles::interleave, &tiles::transpose};

const TileKernels* choose() {
  if (simd_level() != Simd::kAvx512) return nullptr;
  const char* const variable = std::getenv("PYG_BATCHGNN_TILES");
  if (variable != nullptr && std::string_view(variable) == "emulated") return &tiles::kEmulated;
  return has_amx() ? &kAmx : nullptr;
}

}  // namespace

const TileKernels* tile_kernels() {
  static const TileKernels* const kernels = choose();
  return kernels;
}

bool has_matrix_unit() { return tile_kernels() == &kAmx; }

}  // namespace pyg_batchgnn

#else

namespace pyg_batchgnn {

const TileKernels* tile_kernels() { return nullptr; }
bool has_matrix_unit() { return false; }

}  // namespace pyg_batchgnn

#endif
