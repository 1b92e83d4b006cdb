#include "kernels/disk/read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

// Memory for the operations under way, aligned to blocks.
class Slots {
 public:
  Slots(int64_t count, const RunRules& rules) : bytes_(rules.largest) {
    char* data = memory_.reserve(count * bytes_ + rules.block);
    first_ = reinterpret_cast<char*>(rules.block_end(reinterpret_cast<int64_t>(data)));
  }

  char* at(int64_t slot) const { return first_ + slot * bytes_; }

  // Keeps the memory for ever: the kernel may still write to it.
  void abandon() { memory_.take(); }

 private:
  Buffer<char> memory_;
  char* first_;
  const int64_t bytes_;
};

// An operation under way.
struct Transfer {
  FileOperation operation;
  int64_t done = 0;   // bytes from its begin
  int64_t tried = 0;  // bytes from its begin that the last request began at

  bool is_whole() const { return operation.begin + done >= operation.needed; }
  int64_t offset() const { return operation.begin + tried; }
  int64_t bytes() const { return operation.end - offset(); }

  // Takes the end of a request. Returns 0 to go on, or an error as ReadResult has it.
  //
  // A request that gives fewer bytes is asked again for the rest, from a block's begin. The file
  // ends where that gives no more.
  int64_t take(int64_t result, const RunRules& rules) {
    if (result == -EINTR || result == -EAGAIN) return 0;
    if (result < 0) return -result;
    const int64_t now = tried + result;
    if (now <= done && !is_whole()) return kFileEnds;
    done = std::max(done, now);
    tried = rules.block_begin(operation.begin + done) - operation.begin;
    return 0;
  }
};

// Copies what an operation has read of its rows.
void scatter(const FileRows& rows, const FileOperation& operation, const char* memory,
             const RowPlaces& places) {
  for (int64_t i = operation.first; i < rows.count && rows.begin(i) < operation.needed; ++i) {
    const int64_t row = rows.begin(i);
    const int64_t begin = std::max(row, operation.begin), end = std::min(rows.end(i), operation.needed);
    char* to = places.out + (places.place == nullptr ? i : places.place[i]) * rows.row_bytes;
    std::memcpy(to + (begin - row), memory + (begin - operation.begin), static_cast<size_t>(end - begin));
  }
}

void count(const FileOperation& operation, ReadResult& result) {
  result.bytes += operation.end - operation.begin;
  ++result.operations;
}

// Of several errors the one at the lowest byte stays.
void note_error(int64_t error, int64_t at, ReadResult& result) {
  if (result.error != 0 && result.error_at <= at) return;
  result.error = error;
  result.error_at = at;
}

}  // namespace

ReadResult read_rows(ReadQueue& file, int64_t depth, const FileRows& rows, const RunRules& rules,
                     const RowPlaces& places) {
  ReadResult result;
  RunCutter cutter(rows, rules);
  Slots memory(depth, rules);
  std::vector<Transfer> transfers(static_cast<size_t>(depth));
  int64_t under_way = 0;

  const auto start = [&](int64_t slot) {
    const Transfer& one = transfers[static_cast<size_t>(slot)];
    file.start(slot, memory.at(slot) + one.tried, one.bytes(), one.offset());
    ++under_way;
  };
  const auto start_next = [&](int64_t slot) {
    FileOperation operation;
    if (result.error != 0 || !cutter.next(operation)) return;
    count(operation, result);
    transfers[static_cast<size_t>(slot)] = {operation};
    start(slot);
  };

  try {
    for (int64_t slot = 0; slot < depth; ++slot) start_next(slot);
    while (under_way > 0) {
      const ReadEnd end = file.wait();
      --under_way;
      Transfer& one = transfers[static_cast<size_t>(end.slot)];
      if (const int64_t error = one.take(end.result, rules)) {
        note_error(error, one.operation.begin + one.done, result);
      } else if (one.is_whole()) {
        scatter(rows, one.operation, memory.at(end.slot), places);
        start_next(end.slot);
      } else {
        start(end.slot);
      }
    }
  } catch (const std::system_error&) {
    memory.abandon();
    throw;
  }
  return result;
}

ReadResult read_rows(PlainFile& file, int64_t depth, const FileRows& rows, const RunRules& rules,
                     const RowPlaces& places) {
  ReadResult result;
  RunCutter cutter(rows, rules);
  Slots memory(depth, rules);
  std::mutex lock;  // of the cutter and the result

  const auto next = [&](Transfer& one) {
    const std::lock_guard<std::mutex> guard(lock);
    one = {};
    if (result.error != 0 || !cutter.next(one.operation)) return false;
    count(one.operation, result);
    return true;
  };
  const auto work = [&](int64_t, int64_t slot) {
    Transfer one;
    while (next(one)) {
      int64_t error = 0;
      while (error == 0 && !one.is_whole()) {
        error = one.take(file.read(memory.at(slot) + one.tried, one.bytes(), one.offset()), rules);
      }
      if (error == 0) {
        scatter(rows, one.operation, memory.at(slot), places);
      } else {
        const std::lock_guard<std::mutex> guard(lock);
        note_error(error, one.operation.begin + one.done, result);
      }
    }
  };
  run_tasks(depth, depth, work);
  return result;
}

}  // namespace pyg_batchgnn
