#include "ccl/backend.h"

#include "ccl/engine.h"

namespace pyg_batchgnn {

CclBackend::CclBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size), group_(Group::meet(store, rank, size, timeout)), timeout_(timeout) {}

CclBackend::~CclBackend() { shutdown(); }

void CclBackend::shutdown() {
  std::shared_ptr<Group> group;
  const std::lock_guard<std::mutex> lock(mutex_);
  group.swap(group_);  // released here, or with the last collective under way
}

void CclBackend::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!group_) return;
  const Engine::Locked locked(Clock::now() + std::chrono::seconds(1));
  group_->abandon("the group was aborted");
}

std::unique_ptr<Task> CclBackend::begin(c10d::OpType operation, std::chrono::milliseconds timeout,
                                        Tensors outputs) {
  auto task = std::make_unique<Task>();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, group_, "ccl: the process group was destroyed");
    task->group = group_;
  }
  const auto own = timeout_.load();
  task->submitted = Clock::now();
  task->deadline = task->submitted + (timeout.count() > 0 ? timeout : own);
  const uint64_t number = ++sequence_;
  task->name = c10::str(c10d::opTypeToString(operation), " (number ", number, " of its group)");
  task->work = c10::make_intrusive<CclWork>(rank_, operation, number, std::move(outputs));
  return task;
}

WorkPtr CclBackend::submit(std::unique_ptr<Task> task) {
  const WorkPtr work = task->work;
  Engine::get().submit(std::move(task));
  return work;
}

void check_dense(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "ccl: ", operation, " of a tensor on ", tensor.device(),
                    "; move it to the CPU, or give the group a backend for that device, such as "
                    "\"cpu:ccl,cuda:nccl\"");
  TORCH_CHECK_TYPE(tensor.layout() == at::kStrided, "ccl: ", operation, " of a ", tensor.layout(),
                   " tensor; make it dense, or take gloo");
}

void check_type(const at::Tensor& tensor, const at::Tensor& other, const char* operation) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == other.scalar_type(), "ccl: ", operation, " from ",
                   tensor.scalar_type(), " into ", other.scalar_type(), "; the types must be equal");
}

const at::Tensor& only(const Tensors& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "ccl: ", operation, " takes one tensor a rank, not ",
                    tensors.size());
  check_dense(tensors[0], operation);
  return tensors[0];
}

}  // namespace pyg_batchgnn
