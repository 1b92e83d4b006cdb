#include "ccl/backend.h"
#include "ccl/dtypes.h"

namespace pyg_batchgnn {

using c10d::OpType;

WorkPtr CclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  auto task = begin(OpType::BROADCAST, options.timeout, tensors);
  const auto type = datatype_of(tensor);
  const int root = static_cast<int>(options.rootRank);
  const size_t count = static_cast<size_t>(tensor.numel());
  if (count > 0) {
    void* memory = rank_ == root ? task->read(tensor) : task->write(tensor);
    task->starts.push_back([=](const ::ccl::communicator& communicator) {
      return ::ccl::broadcast(memory, count, type, root, communicator);
    });
  }
  return submit(std::move(task));
}

// The ranks' tensors may differ in size. Every rank knows the sizes from its outputs.
void CclBackend::add_all_gather(Task& task, const Tensors& outputs, const at::Tensor& input) const {
  check_dense(input, "all-gather");
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_), "ccl: all-gather of ", size_,
                    " ranks into ", outputs.size(), " tensors");
  const auto type = datatype_of(input);
  ::ccl::vector_class<void*> to;
  ::ccl::vector_class<size_t> counts;
  size_t total = 0;
  for (const at::Tensor& output : outputs) {
    check_dense(output, "all-gather");
    check_type(input, output, "all-gather");
    to.push_back(task.write(output));
    counts.push_back(static_cast<size_t>(output.numel()));
    total += counts.back();
  }
  const size_t own = counts[static_cast<size_t>(rank_)];
  TORCH_CHECK_VALUE(own == static_cast<size_t>(input.numel()), "ccl: all-gather of ", input.numel(),
                    " elements into ", own, " for this rank");
  if (total == 0) return;
  const void* from = task.read(input);
  task.starts.push_back([=](const ::ccl::communicator& communicator) {
    return ::ccl::allgatherv(from, own, to, counts, type, communicator);
  });
}

void CclBackend::add_all_gather(Task& task, const at::Tensor& output, const at::Tensor& input) const {
  check_dense(input, "all-gather");
  check_dense(output, "all-gather");
  check_type(input, output, "all-gather");
  TORCH_CHECK_VALUE(output.numel() == input.numel() * size_, "ccl: all-gather of ", input.numel(),
                    " elements over ", size_, " ranks into one tensor of ", output.numel());
  const auto type = datatype_of(input);
  const size_t count = static_cast<size_t>(input.numel());
  if (count == 0) return;
  const void* from = task.read(input);
  void* to = task.write(output);
  const ::ccl::vector_class<size_t> counts(static_cast<size_t>(size_), count);
  task.starts.push_back([=](const ::ccl::communicator& communicator) {
    return ::ccl::allgatherv(from, count, to, counts, type, communicator);
  });
}

WorkPtr CclBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, "all-gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "ccl: all-gather takes one list of outputs, not ", outputs.size());
  auto task = begin(OpType::ALLGATHER, options.timeout, outputs[0]);
  add_all_gather(*task, outputs[0], input);
  return submit(std::move(task));
}

WorkPtr CclBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::AllgatherOptions& options) {
  auto task = begin(OpType::_ALLGATHER_BASE, options.timeout, {output});
  add_all_gather(*task, output, input);
  return submit(std::move(task));
}

WorkPtr CclBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  Tensors all;
  for (const Tensors& row : outputs) all.insert(all.end(), row.begin(), row.end());
  auto task = begin(OpType::ALLGATHER_COALESCED, options.timeout, all);
  // The rows are ranks, the columns are tensors.
  for (size_t at = 0; at < inputs.size(); ++at) {
    Tensors column;
    for (const Tensors& row : outputs) column.push_back(row.at(at));
    add_all_gather(*task, column, inputs[at]);
  }
  return submit(std::move(task));
}

WorkPtr CclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "ccl: all-gather of ", inputs.size(), " tensors into ",
                    outputs.size());
  auto task = begin(OpType::COALESCED, options.timeout, outputs);
  for (size_t at = 0; at < inputs.size(); ++at) add_all_gather(*task, outputs[at], inputs[at]);
  return submit(std::move(task));
}

}  // namespace pyg_batchgnn
