#include <cstring>

#include "bindings/operators.h"
#include "kernels/pages.h"
#include "kernels/simd/copy.h"

namespace pyg_batchgnn {

void empty_memory_cache() {
  drop_sampling_scratch();
  drop_graph_scratch();
  empty_cache();
}

std::vector<int64_t> memory_stats() {
  const AllocationStats stats = allocation_stats();
  return {stats.live_bytes, stats.cached_bytes, stats.peak_bytes, stats.system_calls};
}

void reset_memory_peak() { reset_peak(); }

void advise_huge(const Tensor& tensor) {
  advise_huge_pages(tensor.const_data_ptr(), static_cast<size_t>(tensor.numel()) * tensor.element_size());
}

// Bits of the widest instructions in use: 512, 256, or 0 for what every processor has.
int64_t simd_level() {
  if (std::strcmp(stream_copy_name(), "avx512") == 0) return 512;
  return std::strcmp(stream_copy_name(), "avx2") == 0 ? 256 : 0;
}

}  // namespace pyg_batchgnn
