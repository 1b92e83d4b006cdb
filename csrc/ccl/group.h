// The ranks of one process group as oneCCL sees them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ccl/library.h"

namespace pyg_batchgnn {

class Group {
 public:
  // Collective: meets the other ranks over the store, on a thread of its own, which is left alone where the
  // meeting has not ended in time. Throws what went wrong.
  static std::shared_ptr<Group> meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                     std::chrono::milliseconds timeout);

  Group(int rank, int size, ::ccl::communicator&& communicator);
  ~Group();  // releases the communicator, or leaves it for ever where it was abandoned

  // Used under the engine's lock.
  const ::ccl::communicator& communicator() const { return *communicator_; }

  // Why it cannot be used any more; "" while it can. Under the engine's lock.
  const std::string& broken() const { return broken_; }

  // Nothing of it is waited for or destroyed from now on, for oneCCL would wait for peers that do not come.
  void abandon(const std::string& why);

  const int rank, size;

 private:
  std::unique_ptr<::ccl::communicator> communicator_;
  std::string broken_;
};

}  // namespace pyg_batchgnn
