#include "kernels/disk/runs.h"

#include <algorithm>
#include <vector>

namespace pyg_batchgnn {

void RunCutter::open_run() {
  at_ = rules_.block_begin(rows_.begin(next_row_));
  needed_ = rows_.end(next_row_);
  end_ = rules_.block_end(needed_);
  for (++next_row_; next_row_ < rows_.count; ++next_row_) {
    if (rules_.block_begin(rows_.begin(next_row_)) - end_ > rules_.gap) break;
    needed_ = rows_.end(next_row_);
    end_ = rules_.block_end(needed_);
  }
}

bool RunCutter::next(FileOperation& operation) {
  if (at_ == end_) {
    if (next_row_ == rows_.count) return false;
    first_ = next_row_;
    open_run();
  }
  const int64_t end = std::min(end_, at_ + rules_.largest);
  operation = {at_, end, std::min(end, needed_), first_};
  at_ = end;
  while (first_ < next_row_ && rows_.end(first_) <= end) ++first_;
  return true;
}

void count_operations(const FileRows& rows, const RunRules& rules, const int64_t* gaps, int64_t gap_count,
                      int64_t* counts) {
  if (rows.count == 0) return;
  const int64_t sizes = rules.largest / rules.block + 1;
  std::vector<int64_t> begins(static_cast<size_t>(gap_count), rules.block_begin(rows.begin(0)));
  int64_t end = rules.block_end(rows.end(0));
  const auto close = [&](int64_t gap) {
    int64_t length = end - begins[static_cast<size_t>(gap)];
    int64_t* found = counts + gap * sizes;
    if (length > rules.largest) {
      found[sizes - 1] += length / rules.largest;
      length %= rules.largest;
      if (length == 0) return;
    }
    ++found[length / rules.block];
  };
  for (int64_t i = 1; i < rows.count; ++i) {
    const int64_t begin = rules.block_begin(rows.begin(i));
    const int64_t between = begin - end;
    for (int64_t gap = 0; gap < gap_count && gaps[gap] < between; ++gap) {
      close(gap);
      begins[static_cast<size_t>(gap)] = begin;
    }
    end = rules.block_end(rows.end(i));
  }
  for (int64_t gap = 0; gap < gap_count; ++gap) close(gap);
}

}  // namespace pyg_batchgnn
