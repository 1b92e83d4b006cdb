// What a collective gives back: something to wait for, with a future on request.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace pyg_batchgnn {

class CclWork : public c10d::Work {
 public:
  // `outputs` is what `result` and the future give: the tensors that the collective fills.
  // `deadline` is the engine's to keep; a wait ends soon after it even if the engine is stuck.
  CclWork(int rank, c10d::OpType operation, uint64_t sequence, std::vector<at::Tensor> outputs,
          std::chrono::steady_clock::time_point deadline);

  // Makes progress itself while it waits (engine.h). Throws the collective's error, or one that says
  // "timed out" where `timeout` ends first; the collective then goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  // The engine's: the collective has ended. Callbacks of the future run on a thread of their own, so that one
  // that waits for another collective stops nobody.
  void end(std::exception_ptr error);

 private:
  const uint64_t sequence_;
  const std::chrono::steady_clock::time_point deadline_;
  const std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by the base's mutex_
};

}  // namespace pyg_batchgnn
