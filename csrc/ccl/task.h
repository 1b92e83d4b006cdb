// A collective on its way through oneCCL: what it starts, what it keeps, and what ends it.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ccl/library.h"
#include "ccl/work.h"

namespace pyg_batchgnn {

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

  // Returns the tensor's memory for oneCCL to read. It is contiguous, kept to the end and never
  // null.
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
