#include "kernels/simd/decode.h"

#include <algorithm>
#include <bit>
#include <cmath>

#define PYG_BATCHGNN_BODY "kernels/simd/decode_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

void decode_row(const Code* from, Decoding by, int64_t count, float* to) {
  PYG_BATCHGNN_DISPATCH(decode<1>(&from, by, count, to, 0))
}

void decode_row(const Code* from, Decoding by, int64_t count, Bfloat16* to) {
  PYG_BATCHGNN_DISPATCH(decode<1>(&from, by, count, to, 0))
}

void decode_rows(const Code* const* from, Decoding by, int64_t count, float* to, int64_t stride) {
  PYG_BATCHGNN_DISPATCH(decode<kDecodedRows>(from, by, count, to, stride))
}

void decode_rows(const Code* const* from, Decoding by, int64_t count, Bfloat16* to, int64_t stride) {
  PYG_BATCHGNN_DISPATCH(decode<kDecodedRows>(from, by, count, to, stride))
}

void stream_rows(const Code* const* from, Decoding by, int64_t count, float* to) {
  PYG_BATCHGNN_DISPATCH(stream(from, by, count, to))
}

void end_rows() { PYG_BATCHGNN_DISPATCH(end_stream()) }

void decode_row(const Code* from, Decoding by, int64_t count, double* to) {
  constexpr int64_t kBlock = 64;
  float block[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t some = std::min(kBlock, count - at);
    decode_row(from + at, by.from(at), some, block);
    std::copy_n(block, some, to + at);
  }
}

}  // namespace pyg_batchgnn
