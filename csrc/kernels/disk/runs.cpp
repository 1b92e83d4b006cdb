#include "kernels/disk/runs.h"

#include <algorithm>

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

}  // namespace pyg_batchgnn
