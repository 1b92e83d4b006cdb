#include "kernels/disk/sweep.h"

#include <algorithm>
#include <utility>

#include "kernels/prefetch.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kAhead = 32;  // rows between prefetch and use; each has a cache line of its own

// Prefetches the states of a unit's row that is used soon.
void prefetch(const RowStates& states, const UnitRows& unit, int64_t i) {
  if (i + kAhead >= unit.count) return;
  const int64_t row = unit.row[i + kAhead];
  prefetch_line(states.slot + row);
  prefetch_line(states.next + row);
}

constexpr int32_t kHidden = -2;  // slots are hidden as kHidden - slot

// Hides the rows of units from a pass over all rows that are in memory, while it lives.
class Hidden {
 public:
  Hidden(const RowStates& states, const std::vector<UnitRows>& units) : states_(states), units_(units) {
    for_each([](int32_t slot) { return slot >= 0 ? kHidden - slot : slot; });
  }
  ~Hidden() {
    for_each([](int32_t slot) { return slot <= kHidden ? kHidden - slot : slot; });
  }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

 private:
  template <class Change>
  void for_each(const Change& change) {
    for (const UnitRows& unit : units_) {
      for (int64_t i = 0; i < unit.count; ++i) {
        int32_t& slot = states_.slot[unit.row[i]];
        slot = change(slot);
      }
    }
  }

  const RowStates& states_;
  const std::vector<UnitRows>& units_;
};

// Keeps the `count` rows that are needed soonest, in ascending order.
void keep_soonest(const RowStates& states, std::vector<int64_t>& rows, size_t count) {
  if (count >= rows.size()) return;
  const auto sooner = [&](int64_t a, int64_t b) {
    return states.next[a] != states.next[b] ? states.next[a] < states.next[b] : a < b;
  };
  std::nth_element(rows.begin(), rows.begin() + static_cast<int64_t>(count), rows.end(), sooner);
  rows.resize(count);
  std::sort(rows.begin(), rows.end());
}

// Writes the slots of a unit's rows, and notes their next use. Returns the places without a slot.
std::vector<int64_t> use_rows(const RowStates& states, const UnitRows& unit, int64_t* slot) {
  std::vector<int64_t> without;
  for (int64_t i = 0; i < unit.count; ++i) {
    prefetch(states, unit, i);
    const int64_t row = unit.row[i];
    slot[i] = states.slot[row];
    states.next[row] = unit.following[i];
    if (slot[i] == kNoSlot) without.push_back(i);
  }
  return without;
}

// Takes the last of some rows, and prefetches the states of those before it.
int32_t pop(const RowStates& states, std::vector<int32_t>& rows) {
  if (rows.size() > kAhead) {
    const int32_t soon = rows[rows.size() - 1 - kAhead];
    prefetch_line(states.slot + soon);
    prefetch_line(states.next + soon);
  }
  const int32_t row = rows.back();
  rows.pop_back();
  return row;
}

void give(const RowStates& states, const std::vector<int64_t>& rows, const std::vector<int32_t>& slots) {
  for (size_t i = 0; i < rows.size(); ++i) states.slot[rows[i]] = slots[i];
}

// Adds the rows from `first` to `last` that are not in memory and are needed before unit `until`.
void find_wanted(const RowStates& states, int64_t first, int64_t last, int32_t until,
                 std::vector<int64_t>& found) {
  for (int64_t row = first; row < last; ++row) {
    if (states.next[row] < until && states.slot[row] == kNoSlot) found.push_back(row);
  }
}

void list_rows(const RowStates& states, const std::vector<int64_t>& rows, Reading& out) {
  out.count = static_cast<int64_t>(rows.size());
  out.slots.reserve(out.count + 1);
  std::copy(rows.begin(), rows.end(), out.rows.reserve(out.count + 1));
  for (int64_t i = 0; i < out.count; ++i) out.slots.data()[i] = states.slot[out.rows.data()[i]];
}

}  // namespace

template <class Row>
void note_use(int32_t* next, const Row* row, int64_t count, int32_t number, int32_t* following) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) prefetch_line(next + row[i + kAhead]);
    following[i] = std::exchange(next[row[i]], number);
  }
}

template void note_use(int32_t*, const int32_t*, int64_t, int32_t, int32_t*);
template void note_use(int32_t*, const int64_t*, int64_t, int32_t, int32_t*);

void Sweep::begin(const RowStates& states, int32_t number, int32_t period,
                  const std::vector<UnitRows>& in_use) {
  start_ = number;
  period_ = period;
  width_ = std::max<int64_t>(1, (states.rows + period - 1) / period);
  note_all(states, number - 1, in_use);
}

void Sweep::extend(const RowStates& states, const int32_t* first, int32_t last,
                   const std::vector<UnitRows>& in_use) {
  for (int64_t row = 0; row < states.rows; ++row) {
    if (states.next[row] == kNever) states.next[row] = first[row];
  }
  note_all(states, last, in_use);
}

// Notes all rows anew that may leave, but for those of units in use.
void Sweep::note_all(const RowStates& states, int32_t last, const std::vector<UnitRows>& in_use) {
  done_.clear();
  leaving_.clear();
  soonest_ = last;
  const Moment moment = after(last);
  const Hidden hidden(states, in_use);
  for (int64_t row = 0; row < states.rows; ++row) {
    if (states.slot[row] >= 0) note(row, states.next[row], moment);
  }
}

void Sweep::retire(const UnitRows& unit, int32_t last) {
  const Moment moment = after(last);
  for (int64_t i = 0; i < unit.count; ++i) {
    if (unit.following[i] > last) note(unit.row[i], unit.following[i], moment);
  }
}

Reading Sweep::prepare(const RowStates& states, const UnitRows& unit, int32_t number) {
  Reading out;
  std::vector<int64_t> rows = wanted(states, number);
  const std::vector<int32_t> slots = take(states, static_cast<int64_t>(rows.size()), number, out.evicts);
  keep_soonest(states, rows, slots.size());
  give(states, rows, slots);
  int64_t* const slot = out.unit.reserve(unit.count + 1);
  const std::vector<int64_t> late = use_rows(states, unit, slot);
  const std::vector<int32_t> more = take(states, static_cast<int64_t>(late.size()), number, out.evicts);
  out.fits = more.size() == late.size();
  if (out.fits) {
    const auto middle = static_cast<int64_t>(rows.size());
    for (size_t i = 0; i < late.size(); ++i) {
      const int64_t at = late[i];
      rows.push_back(unit.row[at]);
      states.slot[unit.row[at]] = more[i];
      slot[at] = more[i];
    }
    std::inplace_merge(rows.begin(), rows.begin() + middle, rows.end());
  } else {
    free_.insert(free_.end(), more.begin(), more.end());
  }
  list_rows(states, rows, out);
  return out;
}

Sweep::Moment Sweep::after(int32_t number) const { return {number, (number - start_) % period_}; }

int32_t Sweep::comes_back(int64_t range, const Moment& last) const {
  const auto away = static_cast<int32_t>(range) - last.range;
  return last.number + (away > 0 ? away : away + period_);
}

// Notes a row that is in memory and needed only after its range is read again.
void Sweep::note(int64_t row, int32_t next, const Moment& last) {
  if (next == kNever) {
    done_.push_back(static_cast<int32_t>(row));
  } else if (next >= comes_back(range_of(row), last)) {
    const auto at = static_cast<size_t>(next - soonest_);
    if (at >= leaving_.size()) leaving_.resize(at + 1);
    leaving_[at].push_back(static_cast<int32_t>(row));
  }
}

// Returns the rows that are read before a unit: those of a range (of all before the first unit)
// that are not here and are needed before the range is read again.
std::vector<int64_t> Sweep::wanted(const RowStates& states, int32_t number) const {
  std::vector<int64_t> found;
  const bool is_first = number == start_;
  const int64_t first = is_first ? 0 : (number - start_) % period_;
  const int64_t end = is_first ? period_ : first + 1;
  for (int64_t range = first; range < end; ++range) {
    const int64_t last = std::min(states.rows, (range + 1) * width_);
    find_wanted(states, range * width_, last, comes_back(range, after(number)), found);
  }
  return found;
}

std::vector<int32_t> Sweep::take(const RowStates& states, int64_t count, int32_t number, bool& evicts) {
  const Moment moment = after(number);
  std::vector<int32_t> found;
  found.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(found.size()) < count) {
    if (!free_.empty()) {
      found.push_back(free_.back());
      free_.pop_back();
    } else if (fresh_ < capacity_) {
      found.push_back(static_cast<int32_t>(fresh_++));
    } else {
      const int32_t slot = evict(states, moment);
      if (slot == kNoSlot) break;
      evicts = true;
      found.push_back(slot);
    }
  }
  return found;
}

// Takes the slot of a row that is needed last, of several the one that was noted last.
int32_t Sweep::evict(const RowStates& states, const Moment& last) {
  while (!done_.empty()) {
    const int32_t row = pop(states, done_);
    if (states.slot[row] >= 0 && states.next[row] == kNever) return std::exchange(states.slot[row], kNoSlot);
  }
  while (!leaving_.empty()) {
    if (leaving_.back().empty()) {
      leaving_.pop_back();
      continue;
    }
    const int32_t use = soonest_ + static_cast<int32_t>(leaving_.size()) - 1;
    const int32_t row = pop(states, leaving_.back());
    if (states.slot[row] < 0 || states.next[row] != use || use < comes_back(range_of(row), last)) continue;
    return std::exchange(states.slot[row], kNoSlot);
  }
  return kNoSlot;
}

}  // namespace pyg_batchgnn
