// A collective on its way through oneCCL: what is started, what is kept, what is done at its end.
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
  std::vector<Start> starts;                  // all are started when it is submitted, in this order
  std::vector<std::function<void()>> at_end;  // after the last one
  std::vector<at::Tensor> kept;               // memory that oneCCL reads and writes
  std::vector<::ccl::event> events;
  size_t ended = 0;  // of the events, from the first

  // The tensor's memory for oneCCL to read: contiguous, kept to the end. Never null.
  void* read(const at::Tensor& tensor);

  // Memory for oneCCL to write, which is in the tensor at the end.
  // `filled`: whether it is also read (reductions and broadcasts in place).
  void* write(const at::Tensor& tensor, bool filled = false);

  // Memory that nobody sees afterwards, as large as the tensor.
  void* scratch(const at::Tensor& tensor);

 private:
  void* keep(const at::Tensor& contiguous);
};

}  // namespace pyg_batchgnn
