#include "kernels/simd/scan.h"

#include <algorithm>
#include <bit>

#define PYG_BATCHGNN_BODY "kernels/simd/scan_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

Extent scan_extent(const int32_t* values,
                   int64_t count){PYG_BATCHGNN_DISPATCH(scan_extent(values, count))} Extent
    scan_extent(const int64_t* values,
                int64_t count){PYG_BATCHGNN_DISPATCH(scan_extent(values, count))} int64_t
    words_below(const int32_t* sources, int64_t count, uint64_t key, uint64_t limit,
                uint64_t* word){PYG_BATCHGNN_DISPATCH(words_below(sources, count, key, limit, word))} int64_t
    words_below(const int64_t* sources, int64_t count, uint64_t key, uint64_t limit, uint64_t* word) {
  PYG_BATCHGNN_DISPATCH(words_below(sources, count, key, limit, word))
}
bool least_words(uint64_t* word, int64_t count, int64_t picks, int64_t* place) {
  PYG_BATCHGNN_DISPATCH(least_words(word, count, picks, place))
}
bool scan_ascending(const int32_t* values, int64_t count) {
  PYG_BATCHGNN_DISPATCH(scan_ascending(values, count))
}
bool scan_ascending(const int64_t* values,
                    int64_t count){PYG_BATCHGNN_DISPATCH(scan_ascending(values, count))} int64_t
    scan_set_bits(const uint64_t* words, int64_t count) {
  PYG_BATCHGNN_DISPATCH(scan_set_bits(words, count))
}
void list_set_bits(const uint64_t* words, int64_t count, int64_t* before, int32_t* out) {
  PYG_BATCHGNN_DISPATCH(list_set_bits(words, count, before, out))
}
void list_set_bits(const uint64_t* words, int64_t count, int64_t* before, int64_t* out) {
  PYG_BATCHGNN_DISPATCH(list_set_bits(words, count, before, out))
}
void rank_bits(const uint64_t* words, const int64_t* before, const int64_t* bit, int64_t count,
               int64_t* rank) {
  PYG_BATCHGNN_DISPATCH(rank_bits(words, before, bit, count, rank))
}

}  // namespace pyg_batchgnn
