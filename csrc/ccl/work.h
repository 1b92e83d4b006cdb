// The result of a collective: an object to wait for, with a future on request.
#pragma once

#include <atomic>
#include <torch/csrc/distributed/c10d/Work.hpp>

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

}  // namespace pyg_batchgnn
