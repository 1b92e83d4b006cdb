#include "bindings/operators.h"
#include "kernels/pages.h"
#include "kernels/simd/dispatch.h"

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

Tensor empty_bytes(int64_t bytes) {
  return adopt_block(allocate_block(static_cast<size_t>(bytes)), {bytes}, ScalarType::Byte);
}

int64_t simd_bits() { return static_cast<int64_t>(simd_level()); }

}  // namespace pyg_batchgnn
