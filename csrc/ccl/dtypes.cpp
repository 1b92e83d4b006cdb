#include "ccl/dtypes.h"

#include <c10/core/ScalarType.h>

namespace pyg_batchgnn {

::ccl::datatype datatype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
    case at::kByte:
      return ::ccl::datatype::uint8;
    case at::kChar:
      return ::ccl::datatype::int8;
    case at::kShort:
      return ::ccl::datatype::int16;
    case at::kUInt16:
      return ::ccl::datatype::uint16;
    case at::kInt:
      return ::ccl::datatype::int32;
    case at::kUInt32:
      return ::ccl::datatype::uint32;
    case at::kLong:
      return ::ccl::datatype::int64;
    case at::kUInt64:
      return ::ccl::datatype::uint64;
    case at::kHalf:
      return ::ccl::datatype::float16;
    case at::kBFloat16:
      return ::ccl::datatype::bfloat16;
    case at::kFloat:
      return ::ccl::datatype::float32;
    case at::kDouble:
      return ::ccl::datatype::float64;
    default:
      TORCH_CHECK_TYPE(false, "oneCCL has no type for ", tensor.scalar_type(),
                       "; it has bool, (u)int8, (u)int16, (u)int32, (u)int64, float16, bfloat16, float32 and "
                       "float64. Convert the tensor, or send its bytes: tensor.view(torch.uint8)");
  }
}

Reduction reduction_of(const c10d::ReduceOp& operation, const at::Tensor& tensor) {
  const bool logical = tensor.scalar_type() == at::kBool;
  switch (operation.op_) {
    case c10d::ReduceOp::SUM:
      return {logical ? ::ccl::reduction::max : ::ccl::reduction::sum, false};
    case c10d::ReduceOp::PRODUCT:
      return {logical ? ::ccl::reduction::min : ::ccl::reduction::prod, false};
    case c10d::ReduceOp::MIN:
      return {::ccl::reduction::min, false};
    case c10d::ReduceOp::MAX:
      return {::ccl::reduction::max, false};
    case c10d::ReduceOp::AVG:
      TORCH_CHECK_TYPE(tensor.is_floating_point(), "ccl averages floating-point tensors, not ",
                       tensor.scalar_type(), "; sum it and divide");
      return {::ccl::reduction::sum, true};
    default:
      TORCH_CHECK_VALUE(false, "oneCCL reduces with SUM, AVG, PRODUCT, MIN and MAX, not with operation ",
                        static_cast<int>(operation.op_),
                        " of torch's ReduceOp; gather the tensors and reduce "
                        "them yourself, or take gloo");
  }
}

}  // namespace pyg_batchgnn
