#include <vector>

#include "bindings/operators.h"
#include "bindings/tensors.h"
#include "kernels/embedding.h"
#include "kernels/gather.h"

namespace pyg_batchgnn {
namespace {

// Returns the step of a rule. numbers: the rate, eps, and how far Adam's averages move.
RowStep step_of(int64_t rule, const Tensor& numbers) {
  const auto* given = data<double>(numbers);
  return {static_cast<RowRule>(rule), given[0], given[1], given[2], given[3]};
}

}  // namespace

namespace operators {

void fill_uniform_(const Tensor& rows, const Tensor& node, int64_t key, double bound, int64_t threads) {
  with_wide_float(rows, [&](auto type) {
    fill_uniform(static_cast<uint64_t>(key), data<int64_t>(node), node.numel(), rows.size(1), bound,
                 mutable_data<decltype(type)>(rows), threads);
  });
}

void gather_either(const Tensor& near, const Tensor& far, const Tensor& source, const Tensor& out,
                   int64_t threads) {
  const auto row_bytes = static_cast<int64_t>(out.element_size()) * out.size(1);
  pyg_batchgnn::gather_either({data<char>(near), data<char>(far), row_bytes, data<int64_t>(source)},
                              source.numel(), mutable_data<char>(out), threads);
}

void update_rows_(const Tensor& weight, const Tensor& first, const Tensor& second,
                  const OptionalTensor& frozen, const Tensor& row, const Tensor& ptr, const Tensor& source,
                  const Tensor& near, const std::vector<Tensor>& far, const Tensor& far_ptr,
                  const Tensor& share, int64_t rank, int64_t rule, const Tensor& numbers, int64_t threads) {
  const RowChanges changes{data<int64_t>(row), data<int64_t>(ptr), data<int64_t>(source), row.numel()};
  with_wide_float(weight, [&](auto type) {
    using T = decltype(type);
    const RowTable<T> table{mutable_data<T>(weight), mutable_data<T>(first), mutable_data<T>(second),
                            data_or_null<uint8_t>(frozen), weight.size(1)};
    std::vector<const T*> rows;
    for (const Tensor& one : far) rows.push_back(data<T>(one));
    const RowGradients<T> gradients{data<T>(near),       rows.data(), data<int64_t>(far_ptr),
                                    data<double>(share), rank,        share.numel()};
    update_rows(table, changes, gradients, step_of(rule, numbers), threads);
  });
}

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(fill_uniform_, "(Tensor(a!) rows, Tensor node, int key, float bound, int threads) -> ()"),
    OPERATOR(gather_either, "(Tensor near, Tensor far, Tensor source, Tensor(a!) out, int threads) -> ()"),
    OPERATOR(update_rows_,
             "(Tensor(a!) weight, Tensor(b!) first, Tensor(c!) second, Tensor? frozen, Tensor row, Tensor "
             "ptr, Tensor source, Tensor near, Tensor[] far, Tensor far_ptr, Tensor share, int rank, int "
             "rule, Tensor numbers, int threads) -> ()"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
