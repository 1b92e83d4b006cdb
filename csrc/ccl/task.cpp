#include "ccl/task.h"

#include <ATen/core/grad_mode.h>

namespace pyg_batchgnn {
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
