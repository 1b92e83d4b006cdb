// Rows of files.

#include <algorithm>
#include <limits>

#include "bindings/operators.h"
#include "kernels/disk/file.h"
#include "kernels/disk/read.h"
#include "kernels/disk/runs.h"

namespace pyg_batchgnn {
namespace {

// The ways to read (pyg_batchgnn.ops.Requests).
enum class Requests : int64_t { kAny, kQueue, kThreads };

FileRows rows_of(int64_t offset, int64_t row_bytes, const Tensor& row) {
  return {offset, row_bytes, data<int64_t>(row), row.numel()};
}

// Returns the number of operations, but at most `most`, and their bytes.
std::tuple<int64_t, int64_t> operations_of(const FileRows& rows, const RunRules& rules, int64_t most) {
  RunCutter cutter(rows, rules);
  FileOperation operation;
  int64_t found = 0, bytes = 0;
  for (; found < most && cutter.next(operation); ++found) bytes += operation.end - operation.begin;
  return {found, bytes};
}

}  // namespace

namespace operators {

std::tuple<int64_t, int64_t, int64_t, int64_t> disk_read_rows_(int64_t file, int64_t offset,
                                                               int64_t row_bytes, const Tensor& row,
                                                               const Tensor& out, const OptionalTensor& place,
                                                               int64_t block, int64_t gap, int64_t largest,
                                                               int64_t depth, int64_t requests) {
  const FileRows rows = rows_of(offset, row_bytes, row);
  const RunRules rules{block, gap, largest};
  const RowPlaces places{mutable_data<char>(out), data_or_null<int64_t>(place)};
  const auto way = static_cast<Requests>(requests);
  const int64_t slots = std::max<int64_t>(1, std::get<0>(operations_of(rows, rules, depth)));
  std::unique_ptr<ReadQueue> queue;
  // One operation is not worth a queue.
  if (way == Requests::kQueue || (way == Requests::kAny && slots > 1)) {
    queue = read_queue(static_cast<int>(file), slots);
    if (queue == nullptr && way == Requests::kQueue) throw std::runtime_error("this system has no io_uring");
  }
  const ReadResult result = queue != nullptr
                                ? read_rows(*queue, slots, rows, rules, places)
                                : read_rows(*plain_file(static_cast<int>(file)), slots, rows, rules, places);
  return {result.bytes, result.operations, result.error, result.error_at};
}

std::tuple<int64_t, int64_t> disk_count_operations(int64_t offset, int64_t row_bytes, const Tensor& row,
                                                   int64_t block, int64_t gap, int64_t largest) {
  return operations_of(rows_of(offset, row_bytes, row), {block, gap, largest},
                       std::numeric_limits<int64_t>::max());
}

int64_t disk_block(int64_t file) { return direct_block(static_cast<int>(file)); }

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(disk_read_rows_,
             "(int file, int offset, int row_bytes, Tensor row, Tensor(a!) out, Tensor? place, int block, "
             "int gap, int largest, int depth, int requests) -> (int bytes, int operations, int error, int "
             "error_at)"),
    OPERATOR(
        disk_count_operations,
        "(int offset, int row_bytes, Tensor row, int block, int gap, int largest) -> (int operations, int "
        "bytes)"),
    OPERATOR(disk_block, "(int file) -> int"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
