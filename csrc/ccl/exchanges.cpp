#include <ATen/core/grad_mode.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "ccl/backend.h"
#include "ccl/dtypes.h"

namespace pyg_batchgnn {

using c10d::OpType;

namespace {

// The elements for (or from) each rank in one buffer. oneCCL does not take one buffer per rank.
using Counts = ::ccl::vector_class<size_t>;

Counts counts_of(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks) {
  c10d::checkSplitSizes(splits, tensor, ranks);
  Counts counts(static_cast<size_t>(ranks)), offsets(static_cast<size_t>(ranks));
  for (const int64_t rows : splits)
    TORCH_CHECK_VALUE(rows >= 0, "ccl: all-to-all with a split of ", rows, " rows");
  c10d::computeLengthsAndOffsets(splits, tensor, &counts, &offsets);
  return counts;
}

Counts counts_of(const Tensors& tensors) {
  Counts counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(static_cast<size_t>(tensor.numel()));
  return counts;
}

at::Tensor pack(const Tensors& tensors) {
  Tensors flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

}  // namespace

void CclBackend::add_exchange(Task& task, const at::Tensor& output, const Counts& received,
                              const at::Tensor& input, const Counts& sent) const {
  const auto self = static_cast<size_t>(rank_);
  TORCH_CHECK_VALUE(sent[self] == received[self], "ccl: this rank sends ", sent[self],
                    " elements to itself and expects ", received[self]);
  const auto type = datatype_of(input);
  const void* from = task.read(input);
  void* to = task.write(output);
  task.starts.push_back([=](const ::ccl::communicator& communicator) {
    return ::ccl::alltoallv(from, sent, to, received, type, communicator);
  });
}

// Every rank has one tensor per rank. Some may be empty.
void CclBackend::add_exchange(Task& task, const Tensors& outputs, const Tensors& inputs) const {
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      check_dense(tensor, "exchange");
      check_type(inputs[0], tensor, "exchange");
    }
  }
  const Counts received = counts_of(outputs);
  int64_t total = 0;
  for (const size_t count : received) total += static_cast<int64_t>(count);
  const at::Tensor packed = at::empty({total}, inputs[0].options());
  add_exchange(task, packed, received, pack(inputs), counts_of(inputs));
  task.at_end.push_back([packed, outputs] {
    at::NoGradGuard no_grad;
    int64_t begin = 0;
    for (const at::Tensor& output : outputs) {
      output.copy_(packed.narrow(0, begin, output.numel()).view(output.sizes()));
      begin += output.numel();
    }
  });
}

WorkPtr CclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                  std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  check_dense(input, "all-to-all");
  check_dense(output, "all-to-all");
  check_type(input, output, "all-to-all");
  auto task = begin(OpType::ALLTOALL_BASE, options.timeout, {output});
  add_exchange(*task, output, counts_of(output, output_splits, size_), input,
               counts_of(input, input_splits, size_));
  return submit(std::move(task));
}

WorkPtr CclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK_VALUE(inputs.size() == ranks && outputs.size() == ranks, "ccl: all-to-all of ", inputs.size(),
                    " tensors into ", outputs.size(), " over ", size_, " ranks");
  auto task = begin(OpType::ALLTOALL, options.timeout, outputs);
  add_exchange(*task, outputs, inputs);
  return submit(std::move(task));
}

// Gather and scatter are exchanges in which only one rank receives, or sends, anything.
WorkPtr CclBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  const bool is_root = rank_ == options.rootRank;
  TORCH_CHECK_VALUE(!is_root || (outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_)),
                    "ccl: gather takes a tensor for each of the ", size_, " ranks on its root");
  const at::Tensor none = at::empty({0}, input.options());
  Tensors to(static_cast<size_t>(size_), none), from = to;
  from[static_cast<size_t>(options.rootRank)] = input;
  if (is_root) to = outputs[0];
  auto task = begin(OpType::GATHER, options.timeout, is_root ? to : Tensors{});
  add_exchange(*task, to, from);
  return submit(std::move(task));
}

WorkPtr CclBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  const bool is_root = rank_ == options.rootRank;
  TORCH_CHECK_VALUE(!is_root || (inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_)),
                    "ccl: scatter takes a tensor for each of the ", size_, " ranks on its root");
  const at::Tensor none = at::empty({0}, output.options());
  Tensors to(static_cast<size_t>(size_), none), from = to;
  to[static_cast<size_t>(options.rootRank)] = output;
  if (is_root) from = inputs[0];
  auto task = begin(OpType::SCATTER, options.timeout, outputs);
  add_exchange(*task, to, from);
  return submit(std::move(task));
}

}  // namespace pyg_batchgnn
