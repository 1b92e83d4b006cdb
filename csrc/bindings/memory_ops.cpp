#include "bindings/operators.h"
#include "kernels/pages.h"
#include "kernels/simd/level.h"

namespace pyg_batchgnn {

namespace operators {

void empty_cache() {
  drop_sampling_scratch();
  drop_hgt_scratch();
  drop_graph_scratch();
  pyg_batchgnn::empty_cache();
}

std::tuple<int64_t, int64_t, int64_t, int64_t> memory_stats() {
  const AllocationStats stats = allocation_stats();
  return {stats.live_bytes, stats.cached_bytes, stats.peak_bytes, stats.system_calls};
}

void reset_memory_peak() { reset_peak(); }

void advise_huge_pages(const Tensor& tensor) {
  pyg_batchgnn::advise_huge_pages(tensor.const_data_ptr(),
                                  static_cast<size_t>(tensor.numel()) * tensor.element_size());
}

Tensor empty_bytes(int64_t bytes) {
  return adopt_block(allocate_block(static_cast<size_t>(bytes)), {bytes}, ScalarType::Byte);
}

int64_t simd_level() { return static_cast<int64_t>(pyg_batchgnn::simd_level()); }

}  // namespace operators
}  // namespace pyg_batchgnn
