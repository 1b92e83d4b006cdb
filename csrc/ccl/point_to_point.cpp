#include "ccl/backend.h"
#include "ccl/dtypes.h"

namespace pyg_batchgnn {

using c10d::OpType;

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
