// The ranks of one process group as oneCCL sees them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ccl/work.h"

namespace pyg_batchgnn {

class Group {
 public:
  // Meets the other ranks over the store. Collective. It runs on a thread of its own, which is
  // abandoned if the ranks have not met in time. Throws what went wrong.
  static std::shared_ptr<Group> meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                     std::chrono::milliseconds timeout);

  Group(int rank, int size, ::ccl::communicator&& communicator);
  ~Group();  // releases the communicator unless it was abandoned

  // Needs the engine's lock.
  const ::ccl::communicator& communicator() const { return *communicator_; }

  // Returns why the group cannot be used any more, or "". Needs the engine's lock.
  const std::string& broken() const { return broken_; }

  // From now on nothing of the group is waited for or destroyed: oneCCL would wait for its peers.
  void abandon(const std::string& why);

  const int rank, size;

 private:
  std::unique_ptr<::ccl::communicator> communicator_;
  std::string broken_;
};

}  // namespace pyg_batchgnn
