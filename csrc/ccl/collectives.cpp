// The collectives of the backend, over oneCCL's.

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "ccl/backend.h"

namespace pyg_batchgnn {

using c10d::OpType;

namespace {

// Returns oneCCL's name for a type. Throws a TypeError that lists oneCCL's types if it has no such
// type. Booleans travel as bytes.
::ccl::datatype datatype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
    case at::kByte:
      return ::ccl::datatype::uint8;
    case at::kChar:
      return ::ccl::datatype::int8;
    case at::kShort:
      return ::ccl::datatype::int16;
    case at::kUInt16:
      return ::ccl::datatype::uint16;
    case at::kInt:
      return ::ccl::datatype::int32;
    case at::kUInt32:
      return ::ccl::datatype::uint32;
    case at::kLong:
      return ::ccl::datatype::int64;
    case at::kUInt64:
      return ::ccl::datatype::uint64;
    case at::kHalf:
      return ::ccl::datatype::float16;
    case at::kBFloat16:
      return ::ccl::datatype::bfloat16;
    case at::kFloat:
      return ::ccl::datatype::float32;
    case at::kDouble:
      return ::ccl::datatype::float64;
    default:
      TORCH_CHECK_TYPE(false, "oneCCL has no type for ", tensor.scalar_type(),
                       "; it has bool, (u)int8, (u)int16, (u)int32, (u)int64, float16, bfloat16, float32 and "
                       "float64. Convert the tensor, or send its bytes: tensor.view(torch.uint8)");
  }
}

// The way in which oneCCL reduces tensors of one type, and what remains to do afterwards.
struct Reduction {
  ::ccl::reduction operation;
  bool divide;  // AVG of floating-point tensors: divide by the number of ranks
};

// For booleans, SUM and MAX are "or", PRODUCT and MIN are "and". Throws if oneCCL cannot do it.
Reduction reduction_of(const c10d::ReduceOp& operation, const at::Tensor& tensor) {
  const bool logical = tensor.scalar_type() == at::kBool;
  switch (operation.op_) {
    case c10d::ReduceOp::SUM:
      return {logical ? ::ccl::reduction::max : ::ccl::reduction::sum, false};
    case c10d::ReduceOp::PRODUCT:
      return {logical ? ::ccl::reduction::min : ::ccl::reduction::prod, false};
    case c10d::ReduceOp::MIN:
      return {::ccl::reduction::min, false};
    case c10d::ReduceOp::MAX:
      return {::ccl::reduction::max, false};
    case c10d::ReduceOp::AVG:
      TORCH_CHECK_TYPE(tensor.is_floating_point(), "ccl averages floating-point tensors, not ",
                       tensor.scalar_type(), "; sum it and divide");
      return {::ccl::reduction::sum, true};
    default:
      TORCH_CHECK_VALUE(false, "oneCCL reduces with SUM, AVG, PRODUCT, MIN and MAX, not with operation ",
                        static_cast<int>(operation.op_),
                        " of torch's ReduceOp; gather the tensors and reduce "
                        "them yourself, or take gloo");
  }
}

}  // namespace

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

// Gather and scatter are exchanges in which only one rank receives, or sends, anything. `own`: this
// rank's tensor; `all`: on the root, those of all ranks.
WorkPtr CclBackend::by_root(OpType operation, const at::Tensor& own, const std::vector<Tensors>& all,
                            int64_t root, std::chrono::milliseconds timeout) {
  const bool gathers = operation == OpType::GATHER, is_root = rank_ == root;
  TORCH_CHECK_VALUE(!is_root || (all.size() == 1 && all[0].size() == static_cast<size_t>(size_)),
                    "ccl: ", gathers ? "gather" : "scatter", " takes a tensor for each of the ", size_,
                    " ranks on its root");
  Tensors one(static_cast<size_t>(size_), at::empty({0}, own.options())), others = one;
  one[static_cast<size_t>(root)] = own;
  if (is_root) others = all[0];
  auto task = begin(operation, timeout, !gathers ? Tensors{own} : is_root ? others : Tensors{});
  add_exchange(*task, gathers ? others : one, gathers ? one : others);
  return submit(std::move(task));
}

WorkPtr CclBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::GatherOptions& options) {
  return by_root(OpType::GATHER, only(inputs, "gather"), outputs, options.rootRank, options.timeout);
}

WorkPtr CclBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ScatterOptions& options) {
  return by_root(OpType::SCATTER, only(outputs, "scatter"), inputs, options.rootRank, options.timeout);
}

// Messages between two ranks arrive in the order of sending, because oneCCL has no tags.
WorkPtr CclBackend::point_to_point(OpType operation, const Tensors& tensors, int peer, int tag) {
  const bool sends = operation == OpType::SEND;
  const char* name = sends ? "send" : "receive";
  const at::Tensor& tensor = only(tensors, name);
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_ && peer != rank_, "ccl: rank ", rank_, " of ", size_,
                    " cannot ", name, sends ? " to" : " from", " rank ", peer);
  TORCH_CHECK_VALUE(
      tag == 0, "ccl: ", name, " with tag ", tag,
      "; oneCCL has no tags, messages between two ranks arrive in the order of sending. Leave the "
      "tag out, or take gloo");
  auto task = begin(operation, c10d::kUnsetTimeout, sends ? Tensors{} : tensors);
  const auto type = datatype_of(tensor);
  const size_t count = static_cast<size_t>(tensor.numel());
  if (count == 0) return submit(std::move(task));  // neither side has anything to move
  void* memory = sends ? task->read(tensor) : task->write(tensor);
  task->starts.push_back([=](const ::ccl::communicator& communicator) {
    return sends ? ::ccl::send(memory, count, type, peer, communicator)
                 : ::ccl::recv(memory, count, type, peer, communicator);
  });
  return submit(std::move(task));
}

WorkPtr CclBackend::send(Tensors& tensors, int to, int tag) {
  return point_to_point(OpType::SEND, tensors, to, tag);
}

WorkPtr CclBackend::recv(Tensors& tensors, int from, int tag) {
  return point_to_point(OpType::RECV, tensors, from, tag);
}

}  // namespace pyg_batchgnn
