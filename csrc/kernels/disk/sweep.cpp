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

std::vector<int64_t> without_slot(const RowStates& states, const UnitRows& unit) {
  std::vector<int64_t> found;
  for (int64_t i = 0; i < unit.count; ++i) {
    prefetch(states, unit, i);
    if (states.slot[unit.row[i]] == kNoSlot) found.push_back(unit.row[i]);
  }
  return found;
}

void give(const RowStates& states, const std::vector<int64_t>& rows, const std::vector<int32_t>& slots) {
  for (size_t i = 0; i < rows.size(); ++i) states.slot[rows[i]] = slots[i];
}

}  // namespace

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
  const Hidden hidden(states, in_use);
  for (int64_t row = 0; row < states.rows; ++row) note(states, row, last);
}

void Sweep::retire(const RowStates& states, const UnitRows& unit, int32_t last) {
  for (int64_t i = 0; i < unit.count; ++i) {
    prefetch(states, unit, i);
    if (unit.following[i] > last) note(states, unit.row[i], last);
  }
}

Reading Sweep::prepare(const RowStates& states, const UnitRows& unit, int32_t number) {
  Reading out;
  std::vector<int64_t> rows = wanted(states, number);
  const std::vector<int32_t> slots = take(states, static_cast<int64_t>(rows.size()), number, out.evicts);
  keep_soonest(states, rows, slots.size());
  give(states, rows, slots);
  const std::vector<int64_t> late = without_slot(states, unit);
  const std::vector<int32_t> more = take(states, static_cast<int64_t>(late.size()), number, out.evicts);
  out.fits = more.size() == late.size();
  if (out.fits) {
    give(states, late, more);
    const auto middle = static_cast<int64_t>(rows.size());
    rows.insert(rows.end(), late.begin(), late.end());
    std::inplace_merge(rows.begin(), rows.begin() + middle, rows.end());
  } else {
    free_.insert(free_.end(), more.begin(), more.end());
  }
  out.count = static_cast<int64_t>(rows.size());
  out.rows.reserve(out.count + 1);
  out.slots.reserve(out.count + 1);
  for (int64_t i = 0; i < out.count; ++i) {
    out.rows.data()[i] = rows[static_cast<size_t>(i)];
    out.slots.data()[i] = states.slot[out.rows.data()[i]];
  }
  out.unit.reserve(unit.count + 1);
  for (int64_t i = 0; i < unit.count; ++i) {
    prefetch(states, unit, i);
    out.unit.data()[i] = states.slot[unit.row[i]];
    states.next[unit.row[i]] = unit.following[i];
  }
  return out;
}

int32_t Sweep::comes_back(int64_t range, int32_t number) const {
  const int64_t away = (range - (number - start_)) % period_;
  return number + static_cast<int32_t>(away > 0 ? away : away + period_);
}

// Notes a row that is in memory and needed only after its range is read again.
void Sweep::note(const RowStates& states, int64_t row, int32_t last) {
  if (states.slot[row] < 0) return;
  const int32_t next = states.next[row];
  if (next == kNever) {
    done_.push_back(static_cast<int32_t>(row));
  } else if (next >= comes_back(row / width_, last)) {
    leaving_[next].push_back(static_cast<int32_t>(row));
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
    const int32_t until = comes_back(range, number);
    const int64_t last = std::min(states.rows, (range + 1) * width_);
    for (int64_t row = range * width_; row < last; ++row) {
      if (states.next[row] < until && states.slot[row] == kNoSlot) found.push_back(row);
    }
  }
  return found;
}

std::vector<int32_t> Sweep::take(const RowStates& states, int64_t count, int32_t number, bool& evicts) {
  std::vector<int32_t> found;
  found.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(found.size()) < count) {
    if (!free_.empty()) {
      found.push_back(free_.back());
      free_.pop_back();
    } else if (fresh_ < capacity_) {
      found.push_back(static_cast<int32_t>(fresh_++));
    } else {
      const int32_t slot = evict(states, number);
      if (slot == kNoSlot) break;
      evicts = true;
      found.push_back(slot);
    }
  }
  return found;
}

// Takes the slot of a row that is needed last, of several the one that was noted last.
int32_t Sweep::evict(const RowStates& states, int32_t number) {
  while (!done_.empty()) {
    const int32_t row = done_.back();
    done_.pop_back();
    if (states.slot[row] >= 0 && states.next[row] == kNever) return std::exchange(states.slot[row], kNoSlot);
  }
  while (!leaving_.empty()) {
    const auto last = std::prev(leaving_.end());
    const int32_t use = last->first;
    if (last->second.empty()) {
      leaving_.erase(last);
      continue;
    }
    const int32_t row = last->second.back();
    last->second.pop_back();
    const int32_t slot = states.slot[row];
    if (slot < 0 || states.next[row] != use || use < comes_back(row / width_, number)) continue;
    states.slot[row] = kNoSlot;
    return slot;
  }
  return kNoSlot;
}

}  // namespace pyg_batchgnn
