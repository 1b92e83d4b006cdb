#include <atomic>
#include <mutex>
#include <unordered_map>

#include "bindings/operators.h"
#include "kernels/disk/move_rows.h"

namespace pyg_batchgnn {
namespace {

// A tensor over rows of a table that others write to later. While it or a view of it lives, one
// more is counted in `outstanding`.
struct Lease {
  Tensor table, outstanding;
};

// By the address of the first row. Leases that live at the same time have different ones.
struct Leases {
  std::mutex mutex;
  std::unordered_map<void*, Lease> by_address;
};

Leases& leases() {
  static Leases* const all = new Leases;  // tensors may outlive static objects
  return *all;
}

void count(const Tensor& outstanding, int32_t change) {
  std::atomic_ref<int32_t>(*mutable_data<int32_t>(outstanding)).fetch_add(change);
}

void end_lease(void* rows) {
  Leases& all = leases();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.by_address.find(rows);
  count(found->second.outstanding, -1);
  all.by_address.erase(found);
}

}  // namespace

namespace operators {

void move_rows(const Tensor& from, const Tensor& from_row, const Tensor& to, const Tensor& to_row,
               int64_t threads) {
  const int64_t count = from_row.numel();
  if (count == 0) return;
  const int64_t row_bytes = from.stride(0) * static_cast<int64_t>(from.element_size());
  pyg_batchgnn::move_rows(data<char>(from), data<int64_t>(from_row), mutable_data<char>(to),
                          data<int64_t>(to_row), count, row_bytes, threads);
}

Tensor lease_rows(const Tensor& table, int64_t first, const Tensor& outstanding) {
  std::vector<int64_t> sizes(table.sizes().begin(), table.sizes().end());
  const std::vector<int64_t> strides(table.strides().begin(), table.strides().end());
  sizes[0] -= first;
  void* const rows = mutable_data<char>(table) + first * strides[0] * static_cast<int64_t>(table.element_size());
  Leases& all = leases();
  {
    const std::scoped_lock lock(all.mutex);
    if (!all.by_address.try_emplace(rows, Lease{table, outstanding}).second) {
      throw std::runtime_error("these rows are leased already");
    }
    count(outstanding, 1);
  }
  return torch::stable::from_blob(rows, {sizes.data(), sizes.size()}, {strides.data(), strides.size()},
                                  torch::stable::Device(torch::headeronly::DeviceType::CPU),
                                  table.scalar_type(), &end_lease);
}

}  // namespace operators

constexpr Operator kOperators[] = {
    OPERATOR(move_rows, "(Tensor from, Tensor from_row, Tensor(a!) to, Tensor to_row, int threads) -> ()"),
    OPERATOR(lease_rows, "(Tensor table, int first, Tensor(a!) outstanding) -> Tensor"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
