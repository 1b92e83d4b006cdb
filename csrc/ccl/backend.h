// The backend "ccl" of torch.distributed for tensors on the CPU, over oneCCL.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "ccl/group.h"
#include "ccl/work.h"

namespace pyg_batchgnn {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class CclBackend : public c10d::Backend {
 public:
  // Collective. `store` must be the group's own.
  CclBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
             std::chrono::milliseconds timeout);
  ~CclBackend() override;

  const std::string getBackendName() const override { return "ccl"; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override;     // abandons what is under way
  void shutdown() override;  // does not wait for peers

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;

 private:
  // Returns a collective of this group, to be filled and submitted. Its future returns `outputs`.
  std::unique_ptr<Task> begin(c10d::OpType operation, std::chrono::milliseconds timeout, Tensors outputs);
  static WorkPtr submit(std::unique_ptr<Task> task);

  void add_all_reduce(Task& task, const at::Tensor& tensor, const c10d::ReduceOp& operation) const;
  void add_reduce_scatter(Task& task, const at::Tensor& output, const at::Tensor& input,
                          const c10d::ReduceOp& operation) const;
  void add_average(Task& task, const at::Tensor& tensor) const;
  void add_all_gather(Task& task, const Tensors& outputs, const at::Tensor& input) const;
  void add_all_gather(Task& task, const at::Tensor& output, const at::Tensor& input) const;
  void add_exchange(Task& task, const at::Tensor& output, const ::ccl::vector_class<size_t>& received,
                    const at::Tensor& input, const ::ccl::vector_class<size_t>& sent) const;
  void add_exchange(Task& task, const Tensors& outputs, const Tensors& inputs) const;
  WorkPtr by_root(c10d::OpType operation, const at::Tensor& own, const std::vector<Tensors>& all,
                  int64_t root, std::chrono::milliseconds timeout);
  WorkPtr point_to_point(c10d::OpType operation, const Tensors& tensors, int peer, int tag);

  std::mutex mutex_;
  std::shared_ptr<Group> group_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> sequence_{0};
};

// Checks that tensors are dense and on the CPU. The errors name the operation.
void check_dense(const at::Tensor& tensor, const char* operation);
void check_type(const at::Tensor& tensor, const at::Tensor& other, const char* operation);
const at::Tensor& only(const Tensors& tensors, const char* operation);

}  // namespace pyg_batchgnn
