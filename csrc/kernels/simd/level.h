// The levels of vector instructions, and how a kernel is compiled for each of them.
//
// Every kernel of this folder is written in the same way:
// - NAME.h declares it and says what it computes.
// - NAME_body.h holds its loops, once. They are plain C++ or use Lanes<T>, the vectors of the level
//   at hand (lanes_avx512.h, lanes_avx2.h, lanes_baseline.h).
// - NAME.cpp includes each_level.h, which compiles the body for each level in a namespace of its
//   own, and chooses with PYG_BATCHGNN_DISPATCH when the program runs. A kernel for instructions
//   that have no counterpart elsewhere (bfloat16 products) has one level and no body
// file: its .cpp file is compiled between PYG_BATCHGNN_BEGIN_LEVEL and PYG_BATCHGNN_END_LEVEL.
//
// Standard headers are included before a level begins. What they define inline must run on every
// processor: the linker keeps one copy of it.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

enum class Simd : int { kBaseline = 0, kAvx2 = 256, kAvx512 = 512 };

// The highest level that the processor has. The environment variable
// PYG_BATCHGNN_SIMD=avx2|baseline lowers it, so that tests can run every level.
Simd simd_level() noexcept;

// How products of bfloat16 are computed: widened to float32, two terms at a time by vdpbf16ps, or
// by a matrix unit (tiles.h). All round differently. A processor has the levels below its highest.
enum class Bfloat16Level : int { kWidened = 0, kPairs = 1, kTiles = 2 };

// The highest level that the processor has.
Bfloat16Level most_bfloat16_level() noexcept;

// Returns the level of a processor that has those up to `most`: tiles by a real matrix unit; else
// pairs, but not on Intel's processors, whose vdpbf16ps is slower than their float32 products.
constexpr Bfloat16Level default_bfloat16_level(Bfloat16Level most, bool intel, bool unit) {
  if (unit) return most;
  if (intel) return Bfloat16Level::kWidened;
  return most < Bfloat16Level::kPairs ? most : Bfloat16Level::kPairs;
}

// The level in use, at first the default of the processor, by no clock. The environment variable
// PYG_BATCHGNN_BFLOAT16=widened|pairs|tiles names another one, so that tests can run every level.
Bfloat16Level bfloat16_level() noexcept;

// Sets the level of products that begin from now on. The processor must have it.
void set_bfloat16_level(Bfloat16Level level) noexcept;

}  // namespace pyg_batchgnn

#define PYG_BATCHGNN_INLINE __attribute__((always_inline)) static inline

#if defined(__x86_64__)

#include <immintrin.h>

#define PYG_BATCHGNN_AVX2 "avx2,fma,f16c,popcnt"
#define PYG_BATCHGNN_AVX512 "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,popcnt"
#define PYG_BATCHGNN_AVX512_BF16 PYG_BATCHGNN_AVX512 ",avx512bf16"
#define PYG_BATCHGNN_AVX512_BF16_VBMI2 PYG_BATCHGNN_AVX512_BF16 ",avx512vbmi2"

// What is defined between these two may use the instructions of `features`.
#define PYG_BATCHGNN_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define PYG_BATCHGNN_BEGIN_LEVEL(features) \
  PYG_BATCHGNN_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define PYG_BATCHGNN_END_LEVEL PYG_BATCHGNN_PRAGMA(clang attribute pop)
#else
// GCC 12 warns of the undefined operands in its own intrinsics.
#define PYG_BATCHGNN_BEGIN_LEVEL(features)                            \
  PYG_BATCHGNN_PRAGMA(GCC diagnostic ignored "-Wmaybe-uninitialized") \
  PYG_BATCHGNN_PRAGMA(GCC diagnostic ignored "-Wuninitialized")       \
  PYG_BATCHGNN_PRAGMA(GCC push_options)                               \
  PYG_BATCHGNN_PRAGMA(GCC target(features))
#define PYG_BATCHGNN_END_LEVEL PYG_BATCHGNN_PRAGMA(GCC pop_options)
#endif

// Returns `expression` of the namespace of the processor's level.
#define PYG_BATCHGNN_DISPATCH(expression) \
  switch (simd_level()) {                 \
    case Simd::kAvx512:                   \
      return avx512::expression;          \
    case Simd::kAvx2:                     \
      return avx2::expression;            \
    default:                              \
      return baseline::expression;        \
  }

#else

#define PYG_BATCHGNN_DISPATCH(expression) return baseline::expression;

#endif
