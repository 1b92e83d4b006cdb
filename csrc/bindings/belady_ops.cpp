#include <algorithm>

#include "bindings/operators.h"
#include "kernels/disk/belady.h"

namespace pyg_batchgnn {
namespace {

CachedNodes cached(const Tensor& node, const Tensor& next, const Tensor& slot) {
  return {data<int64_t>(node), data<int32_t>(next), data<int32_t>(slot), node.numel()};
}

}  // namespace

namespace operators {

Tensor belady_find(const Tensor& cached_node, const Tensor& cached_next, const Tensor& cached_slot,
                   const Tensor& node) {
  Buffer<int32_t> slot;
  find_slots(cached(cached_node, cached_next, cached_slot), data<int64_t>(node), node.numel(),
             slot.reserve(node.numel() + 1));
  return adopt(std::move(slot), {node.numel()});
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> belady_keep(const Tensor& cached_node,
                                                               const Tensor& cached_next,
                                                               const Tensor& cached_slot, const Tensor& node,
                                                               const Tensor& next, int64_t capacity) {
  const UnitNodes unit{data<int64_t>(node), data<int32_t>(next), node.numel()};
  Kept kept = keep_soonest(cached(cached_node, cached_next, cached_slot), unit, capacity);
  const int64_t count = kept.count, copies = kept.copies;
  return {adopt(std::move(kept.node), {count}), adopt(std::move(kept.next), {count}),
          adopt(std::move(kept.slot), {count}), adopt(std::move(kept.from), {copies}),
          adopt(std::move(kept.to), {copies})};
}

void move_rows(const Tensor& from, const Tensor& from_row, const Tensor& to, const Tensor& to_row,
               int64_t threads) {
  const int64_t count = from_row.numel();
  if (count == 0) return;
  const int64_t row_bytes = from.stride(0) * static_cast<int64_t>(from.element_size());
  pyg_batchgnn::move_rows(data<char>(from), data<int64_t>(from_row), mutable_data<char>(to),
                          data<int64_t>(to_row), count, row_bytes, threads);
}

}  // namespace operators

constexpr Operator kOperators[] = {
    OPERATOR(belady_find, "(Tensor cached_node, Tensor cached_next, Tensor cached_slot, Tensor node) -> Tensor"),
    OPERATOR(belady_keep,
             "(Tensor cached_node, Tensor cached_next, Tensor cached_slot, Tensor node, Tensor next, "
             "int capacity) -> (Tensor node, Tensor next, Tensor slot, Tensor from, Tensor to)"),
    OPERATOR(move_rows, "(Tensor from, Tensor from_row, Tensor(a!) to, Tensor to_row, int threads) -> ()"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
