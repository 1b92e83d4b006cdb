#include "kernels/simd/scan.h"

#include <algorithm>
#include <bit>

#define PYG_BATCHGNN_BODY "kernels/simd/scan_body.h"
#include "kernels/simd/each_level.h"

namespace pyg_batchgnn {

Extent scan_extent(const int32_t* values,
                   int64_t count){PYG_BATCHGNN_DISPATCH(scan_extent(values, count))} Extent
    scan_extent(const int64_t* values, int64_t count) {
  PYG_BATCHGNN_DISPATCH(scan_extent(values, count))
}
bool scan_ascending(const int32_t* values, int64_t count) {
  PYG_BATCHGNN_DISPATCH(scan_ascending(values, count))
}
bool scan_ascending(const int64_t* values,
                    int64_t count){PYG_BATCHGNN_DISPATCH(scan_ascending(values, count))} int64_t
    scan_set_bits(const uint64_t* words, int64_t count) {
  PYG_BATCHGNN_DISPATCH(scan_set_bits(words, count))
}

}  // namespace pyg_batchgnn
