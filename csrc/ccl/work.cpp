#include "ccl/work.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <thread>

namespace pyg_batchgnn {
namespace {

using Future = c10::ivalue::Future;

std::atomic<int> threads_that_settle{0};

void settle(const c10::intrusive_ptr<Future>& future, const std::vector<at::Tensor>& outputs,
            const std::exception_ptr& error) {
  if (error) {
    future->setError(error);
  } else {
    future->markCompleted(c10::IValue(outputs));
  }
}

}  // namespace

CclWork::CclWork(int rank, c10d::OpType operation, uint64_t sequence, std::vector<at::Tensor> outputs)
    : c10d::Work(rank, operation), sequence_(sequence), outputs_(std::move(outputs)) {}

std::vector<at::Tensor> CclWork::result() { return outputs_; }

uint64_t CclWork::getSequencenumber() const { return sequence_; }

c10::intrusive_ptr<Future> CclWork::getFuture() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
    if (completed_) {
      auto future = future_;
      auto error = exception_;
      lock.unlock();
      settle(future, outputs_, error);
      return future;
    }
  }
  return future_;
}

void CclWork::end(std::exception_ptr error) {
  if (ended_.exchange(true)) return;
  finish(error);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    future = future_;
  }
  if (future && !future->completed()) {
    ++threads_that_settle;
    std::thread([future, outputs = outputs_, error]() mutable {
      settle(future, outputs, error);
      future.reset();
      outputs.clear();
      --threads_that_settle;
    }).detach();
  }
}

int CclWork::settling() { return threads_that_settle; }

namespace {

// oneCCL needs an address even for empty tensors.
int64_t nowhere[8];

}  // namespace

void* Task::keep(const at::Tensor& contiguous) {
  kept.push_back(contiguous);
  return contiguous.numel() ? contiguous.mutable_data_ptr() : static_cast<void*>(nowhere);
}

void* Task::read(const at::Tensor& tensor) { return keep(tensor.contiguous()); }

void* Task::write(const at::Tensor& tensor, bool filled) {
  if (tensor.is_contiguous()) return keep(tensor);
  const at::Tensor packed = filled ? tensor.contiguous() : at::empty(tensor.sizes(), tensor.options());
  at_end.push_back([tensor, packed] {
    at::NoGradGuard no_grad;
    tensor.copy_(packed);
  });
  return keep(packed);
}

void* Task::scratch(const at::Tensor& tensor) { return keep(at::empty(tensor.sizes(), tensor.options())); }

}  // namespace pyg_batchgnn
