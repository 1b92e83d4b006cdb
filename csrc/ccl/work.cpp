#include "ccl/work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>

#include "ccl/engine.h"

namespace pyg_batchgnn {
namespace {

constexpr std::chrono::seconds kGrace(5);

using Future = c10::ivalue::Future;

void settle(const c10::intrusive_ptr<Future>& future, const std::vector<at::Tensor>& outputs,
            const std::exception_ptr& error) {
  if (error) {
    future->setError(error);
  } else {
    future->markCompleted(c10::IValue(outputs));
  }
}

}  // namespace

CclWork::CclWork(int rank, c10d::OpType operation, uint64_t sequence, std::vector<at::Tensor> outputs,
                 std::chrono::steady_clock::time_point deadline)
    : c10d::Work(rank, operation), sequence_(sequence), deadline_(deadline), outputs_(std::move(outputs)) {}

bool CclWork::wait(std::chrono::milliseconds timeout) {
  const auto last = deadline_ + kGrace;
  const auto until =
      timeout == kNoTimeout ? last : std::min(last, std::chrono::steady_clock::now() + timeout);
  Engine::get().drive([this] { return isCompleted(); }, until);
  if (!isCompleted()) {
    C10_THROW_ERROR(DistBackendError, c10::str("ccl: waiting for ", c10d::opTypeToString(opType_),
                                               " timed out; it is still under way"));
  }
  return c10d::Work::wait();  // ends at once: throws what went wrong
}

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
  finish(error);
  c10::intrusive_ptr<Future> future;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    future = future_;
  }
  if (future && !future->completed()) {
    std::thread([future, outputs = outputs_, error] { settle(future, outputs, error); }).detach();
  }
}

}  // namespace pyg_batchgnn
