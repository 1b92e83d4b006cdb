#include "ccl/backend.h"
#include "ccl/dtypes.h"

namespace pyg_batchgnn {

using c10d::OpType;

void CclBackend::add_average(Task& task, const at::Tensor& tensor) const {
  task.at_end.push_back([tensor, size = size_] {
    at::NoGradGuard no_grad;
    at::Tensor(tensor).div_(size);
  });
}

void CclBackend::add_all_reduce(Task& task, const at::Tensor& tensor, const c10d::ReduceOp& operation) const {
  check_dense(tensor, "all-reduce");
  const auto type = datatype_of(tensor);
  const Reduction reduction = reduction_of(operation, tensor);
  const size_t count = static_cast<size_t>(tensor.numel());
  if (count == 0) return;
  void* memory = task.write(tensor, true);
  task.starts.push_back([=](const ::ccl::communicator& communicator) {
    return ::ccl::allreduce(memory, memory, count, type, reduction.operation, communicator);
  });
  if (reduction.divide) add_average(task, tensor);
}

WorkPtr CclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "all-reduce");
  auto task = begin(OpType::ALLREDUCE, options.timeout, tensors);
  add_all_reduce(*task, tensor, options.reduceOp);
  return submit(std::move(task));
}

WorkPtr CclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  auto task = begin(OpType::ALLREDUCE_COALESCED, options.timeout, tensors);
  for (const at::Tensor& tensor : tensors) add_all_reduce(*task, tensor, options.reduceOp);
  return submit(std::move(task));
}

WorkPtr CclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce");
  auto task = begin(OpType::REDUCE, options.timeout, tensors);
  const auto type = datatype_of(tensor);
  const Reduction reduction = reduction_of(options.reduceOp, tensor);
  const int root = static_cast<int>(options.rootRank);
  const size_t count = static_cast<size_t>(tensor.numel());
  if (count == 0) return submit(std::move(task));
  const void* from = rank_ == root ? task->write(tensor, true) : task->read(tensor);
  void* to = rank_ == root ? const_cast<void*>(from) : task->scratch(tensor);  // others keep theirs
  task->starts.push_back([=](const ::ccl::communicator& communicator) {
    return ::ccl::reduce(from, to, count, type, reduction.operation, root, communicator);
  });
  if (reduction.divide && rank_ == root) add_average(*task, tensor);
  return submit(std::move(task));
}

void CclBackend::add_reduce_scatter(Task& task, const at::Tensor& output, const at::Tensor& input,
                                    const c10d::ReduceOp& operation) const {
  check_dense(input, "reduce-scatter");
  check_dense(output, "reduce-scatter");
  check_type(input, output, "reduce-scatter");
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size_, "ccl: reduce-scatter of ", input.numel(),
                    " elements over ", size_, " ranks gives ", size_, " equal pieces, not one of ",
                    output.numel());
  const auto type = datatype_of(input);
  const Reduction reduction = reduction_of(operation, input);
  const size_t count = static_cast<size_t>(output.numel());
  if (count == 0) return;
  const void* from = task.read(input);
  void* to = task.write(output);
  task.starts.push_back([=](const ::ccl::communicator& communicator) {
    return ::ccl::reduce_scatter(from, to, count, type, reduction.operation, communicator);
  });
  if (reduction.divide) add_average(task, output);
}

WorkPtr CclBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce-scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
                    "ccl: reduce-scatter takes a tensor for each of the ", size_, " ranks");
  auto task = begin(OpType::REDUCE_SCATTER, options.timeout, outputs);
  const Tensors& pieces = inputs[0];
  check_type(pieces[0], output, "reduce-scatter");
  // Pieces may differ in size, so there is one reduction per rank.
  for (int root = 0; root < size_; ++root) {
    const at::Tensor& piece = pieces[static_cast<size_t>(root)];
    check_dense(piece, "reduce-scatter");
    check_type(piece, output, "reduce-scatter");
    const auto type = datatype_of(piece);
    const Reduction reduction = reduction_of(options.reduceOp, piece);
    const size_t count = static_cast<size_t>(piece.numel());
    TORCH_CHECK_VALUE(root != rank_ || piece.numel() == output.numel(), "ccl: reduce-scatter of ",
                      piece.numel(), " elements into ", output.numel());
    if (count == 0) continue;
    const void* from = task->read(piece);
    void* to = root == rank_ ? task->write(output) : task->scratch(piece);
    task->starts.push_back([=](const ::ccl::communicator& communicator) {
      return ::ccl::reduce(from, to, count, type, reduction.operation, root, communicator);
    });
    if (reduction.divide && root == rank_) add_average(*task, output);
  }
  return submit(std::move(task));
}

WorkPtr CclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::ReduceScatterOptions& options) {
  auto task = begin(OpType::_REDUCE_SCATTER_BASE, options.timeout, {output});
  add_reduce_scatter(*task, output, input, options.reduceOp);
  return submit(std::move(task));
}

WorkPtr CclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "ccl: reduce-scatter of ", inputs.size(),
                    " tensors into ", outputs.size());
  auto task = begin(OpType::REDUCE_SCATTER_TENSOR_COALESCED, options.timeout, outputs);
  for (size_t at = 0; at < inputs.size(); ++at) {
    add_reduce_scatter(*task, outputs[at], inputs[at], options.reduceOp);
  }
  return submit(std::move(task));
}

// oneCCL's own barrier blocks inside the library, where no timeout applies.
WorkPtr CclBackend::barrier(const c10d::BarrierOptions& options) {
  auto task = begin(OpType::BARRIER, options.timeout, {});
  add_all_reduce(*task, at::zeros({1}, at::kInt), c10d::ReduceOp::SUM);
  return submit(std::move(task));
}

}  // namespace pyg_batchgnn
