#include "bindings/operators.h"
#include "kernels/partition/group.h"
#include "kernels/partition/place.h"
#include "kernels/partition/stream.h"

namespace pyg_batchgnn {
namespace {

template <class T>
T* writable(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Returns the order of the rows, empty if they are in that order, and the rows of each group.
template <class Group>
std::tuple<Tensor, Tensor> grouped(const Group* group, int64_t rows, int64_t groups) {
  Buffer<int32_t> order;
  Buffer<int64_t> counts;
  const bool ordered = group_rows(group, rows, groups, order.reserve(rows + 1), counts.reserve(groups));
  return {adopt(std::move(order), {ordered ? 0 : rows}), adopt(std::move(counts), {groups})};
}

template <class Word, class Index, class EdgeId>
bool place(const Tensor& edges, int64_t first, const Tensor& cursor, const Tensor& indices,
           const Tensor& edge_ids) {
  const GrowingLists<Index, EdgeId> lists{first,
                                          cursor.numel(),
                                          indices.numel(),
                                          writable<int64_t>(cursor),
                                          writable<Index>(indices),
                                          writable<EdgeId>(edge_ids)};
  return place_edges(data<Word>(edges), edges.size(0), lists);
}

}  // namespace

namespace operators {

std::tuple<Tensor, Tensor> group_by_owner(const Tensor& owner, int64_t groups) {
  return with_integer(owner,
                      [&](auto type) { return grouped(data<decltype(type)>(owner), owner.numel(), groups); });
}

std::tuple<Tensor, Tensor> group_by_range(const Tensor& values, const Tensor& bounds) {
  const int64_t rows = values.numel(), groups = bounds.numel() - 1;
  Buffer<int32_t> group;
  with_integer(values, [&](auto type) {
    find_groups(data<decltype(type)>(values), rows, data<int64_t>(bounds), groups, group.reserve(rows + 1));
    return 0;
  });
  return grouped(group.data(), rows, groups);
}

bool count_values_(const Tensor& values, int64_t first, const Tensor& counts) {
  return with_integer(values, [&](auto type) {
    return count_values(data<decltype(type)>(values), values.numel(), first, counts.numel(),
                        writable<int64_t>(counts));
  });
}

bool place_edges_(const Tensor& edges, int64_t first, const Tensor& cursor, const Tensor& indices,
                  const Tensor& edge_ids) {
  if (!is_wide(edges)) return place<int32_t, int32_t, int32_t>(edges, first, cursor, indices, edge_ids);
  return with_integer(indices, [&](auto index) {
    return with_integer(edge_ids, [&](auto edge_id) {
      return place<int64_t, decltype(index), decltype(edge_id)>(edges, first, cursor, indices, edge_ids);
    });
  });
}

void assign_nodes_(const Tensor& indptr, const Tensor& indices, int64_t first, const Tensor& weight,
                   const Tensor& owner, const Tensor& found, int64_t begin, int64_t end, const Tensor& load,
                   const Tensor& limit, bool fennel, bool mend, double alpha, int64_t step, int64_t key) {
  const StreamRules rules{fennel ? Score::kFennel : Score::kLdg,
                          mend ? StreamPass::kMend : StreamPass::kAssign,
                          load.size(1),
                          load.size(0),
                          data<double>(limit),
                          alpha,
                          static_cast<double>(step),
                          static_cast<uint64_t>(key)};
  with_integer(indices, [&](auto type) {
    using Index = decltype(type);
    const StreamSlice<Index> slice{first,
                                   owner.numel(),
                                   data<int64_t>(indptr),
                                   data<Index>(indices),
                                   data<int32_t>(weight),
                                   writable<int32_t>(owner)};
    pyg_batchgnn::assign_nodes(slice, begin, end, data<int32_t>(found), rules, writable<double>(load));
    return 0;
  });
}

}  // namespace operators
}  // namespace pyg_batchgnn
