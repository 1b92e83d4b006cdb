// The result of a collective: an object to wait for, with a future on request.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

// oneCCL's headers, without their warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <oneapi/ccl.hpp>
#pragma GCC diagnostic pop

namespace pyg_batchgnn {

class CclWork : public c10d::Work {
 public:
  // `outputs`: the tensors that the collective fills. `result` and the future return them.
  CclWork(int rank, c10d::OpType operation, uint64_t sequence, std::vector<at::Tensor> outputs);

  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  // The engine or its watchdog, whichever is first, says that the collective has ended. The
  // future's callbacks run on a thread of their own, so that a callback may wait for another
  // collective.
  void end(std::exception_ptr error);

  // Returns how many threads run callbacks of futures now.
  static int settling();

 private:
  const uint64_t sequence_;
  std::atomic<bool> ended_{false};
  const std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by the base's mutex_
};

// A collective on its way through oneCCL: what it starts, what it keeps, and what ends it.

class Group;

using Clock = std::chrono::steady_clock;
using Start = std::function<::ccl::event(const ::ccl::communicator&)>;

struct Task {
  c10::intrusive_ptr<CclWork> work;
  std::shared_ptr<Group> group;
  std::string name;  // for messages
  Clock::time_point submitted, deadline;
  std::vector<Start> starts;                  // all are started on submission, in this order
  std::vector<std::function<void()>> at_end;  // after the last one
  std::vector<at::Tensor> kept;               // memory that oneCCL reads and writes
  std::vector<::ccl::event> events;
  size_t ended = 0;  // of the events, from the first

  // Returns the tensor's memory for oneCCL to read: contiguous, kept to the end and never null.
  void* read(const at::Tensor& tensor);

  // Returns memory for oneCCL to write. At the end it is copied to the tensor.
  // `filled`: whether oneCCL also reads it (reductions and broadcasts in place).
  void* write(const at::Tensor& tensor, bool filled = false);

  // Returns memory as large as the tensor, whose content is dropped.
  void* scratch(const at::Tensor& tensor);

 private:
  void* keep(const at::Tensor& contiguous);
};

}  // namespace pyg_batchgnn
