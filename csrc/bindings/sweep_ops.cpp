#include <atomic>
#include <mutex>
#include <unordered_map>

#include "bindings/operators.h"
#include "kernels/disk/sweep.h"
#include "kernels/gather.h"

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

RowStates states_of(const Tensor& next, const Tensor& slot) {
  return {mutable_data<int32_t>(next), mutable_data<int32_t>(slot), next.numel()};
}

UnitRows unit_of(const Tensor& rows, const Tensor& following) {
  return {data<int64_t>(rows), data<int32_t>(following), rows.numel()};
}

}  // namespace

namespace operators {

Tensor note_use_(const Tensor& next, const Tensor& rows, int64_t number) {
  Tensor following = new_array<int32_t>({rows.numel()});
  with_integer(rows, [&](auto type) {
    note_use(mutable_data<int32_t>(next), data<decltype(type)>(rows), rows.numel(),
             static_cast<int32_t>(number), mutable_data<int32_t>(following));
  });
  return following;
}

Tensor sweep_new(int64_t capacity) { return hold(std::make_unique<Sweep>(capacity)); }

std::vector<UnitRows> rows_of(const std::vector<Tensor>& in_use) {
  std::vector<UnitRows> units;
  for (const Tensor& rows : in_use) units.push_back({data<int64_t>(rows), nullptr, rows.numel()});
  return units;
}

void sweep_extend_(const Tensor& sweep, const Tensor& next, const Tensor& slot, const Tensor& first,
                   int64_t last, const std::vector<Tensor>& in_use) {
  held<Sweep>(sweep).extend(states_of(next, slot), data<int32_t>(first), static_cast<int32_t>(last),
                            rows_of(in_use));
}

void sweep_begin_(const Tensor& sweep, const Tensor& next, const Tensor& slot, int64_t number, int64_t period,
                  const std::vector<Tensor>& in_use) {
  held<Sweep>(sweep).begin(states_of(next, slot), static_cast<int32_t>(number), static_cast<int32_t>(period),
                           rows_of(in_use));
}

void sweep_retire_(const Tensor& sweep, const Tensor& rows, const Tensor& following, int64_t last) {
  held<Sweep>(sweep).retire(unit_of(rows, following), static_cast<int32_t>(last));
}

std::tuple<Tensor, Tensor, Tensor, bool, bool> sweep_prepare_(const Tensor& sweep, const Tensor& next,
                                                              const Tensor& slot, const Tensor& rows,
                                                              const Tensor& following, int64_t number) {
  Reading out = held<Sweep>(sweep).prepare(states_of(next, slot), unit_of(rows, following),
                                           static_cast<int32_t>(number));
  const bool fits = out.fits, evicts = out.evicts;
  return {adopt(std::move(out.rows), {out.count}), adopt(std::move(out.slots), {out.count}),
          adopt(std::move(out.unit), {rows.numel()}), fits, evicts};
}

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
  void* const rows =
      mutable_data<char>(table) + first * strides[0] * static_cast<int64_t>(table.element_size());
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
    OPERATOR(note_use_, "(Tensor(a!) next, Tensor rows, int number) -> Tensor"),
    OPERATOR(sweep_new, "(int capacity) -> Tensor"),
    OPERATOR(sweep_begin_,
             "(Tensor(a!) sweep, Tensor next, Tensor(b!) slot, int number, int period, Tensor[] in_use) -> "
             "()"),
    OPERATOR(sweep_extend_,
             "(Tensor(a!) sweep, Tensor(b!) next, Tensor(c!) slot, Tensor first, int last, Tensor[] in_use) "
             "-> ()"),
    OPERATOR(sweep_retire_, "(Tensor(a!) sweep, Tensor rows, Tensor following, int last) -> ()"),
    OPERATOR(sweep_prepare_,
             "(Tensor(a!) sweep, Tensor(b!) next, Tensor(c!) slot, Tensor rows, Tensor following, int "
             "number) -> (Tensor rows, Tensor slots, Tensor unit, bool fits, bool evicts)"),
    OPERATOR(move_rows, "(Tensor from, Tensor from_row, Tensor(a!) to, Tensor to_row, int threads) -> ()"),
    OPERATOR(lease_rows, "(Tensor table, int first, Tensor(a!) outstanding) -> Tensor"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
