#include "kernels/disk/residents.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/prefetch.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kNone = -1;

// Calls body(at, place) for each node that is resident or needed, ascending. `at` is its position
// among the residents and `place` its position in the unit, or kNone.
template <class Body>
void for_each_node(const Residents& residents, const UnitNodes& unit, const Body& body) {
  int64_t at = 0, place = 0;
  while (at < residents.count && place < unit.count) {
    const int64_t held = residents.node[at], needed = unit.node[place];
    if (held < needed) {
      body(at++, kNone);
    } else if (needed < held) {
      body(kNone, place++);
    } else {
      body(at++, place++);
    }
  }
  for (; at < residents.count; ++at) body(at, kNone);
  for (; place < unit.count; ++place) body(kNone, place);
}

// Which residents leave: those of next uses after `last`, and those of `last` behind the first
// `staying` ones.
struct Leaving {
  int64_t last = INT64_MAX;
  int64_t staying = 0;

  // Returns whether a resident leaves that may; to be asked in ascending order of nodes.
  bool takes(int32_t next) { return next > last || (next == last && staying-- <= 0); }
};

// The residents that may leave, counted by next use.
class Evictable {
 public:
  explicit Evictable(int32_t last_use) : rows_(static_cast<size_t>(last_use) + 2, 0) {}

  void add(int32_t next) {
    ++rows_[index(next)];
    ++count_;
  }
  int64_t count() const { return count_; }

  // Returns which ones leave so that `wanted` do, at most count().
  Leaving choose(int64_t wanted) const {
    size_t use = rows_.size();
    while (wanted > 0) wanted -= rows_[--use];
    if (use == rows_.size()) return {};
    return {use + 1 == rows_.size() ? int64_t{kNever} : static_cast<int64_t>(use), -wanted};
  }

 private:
  size_t index(int32_t next) const { return next == kNever ? rows_.size() - 1 : static_cast<size_t>(next); }

  std::vector<int64_t> rows_;  // the last entry is of rows that are never needed again
  int64_t count_ = 0;
};

int32_t last_use(const Residents& residents) {
  int32_t last = 0;
  for (int64_t i = 0; i < residents.count; ++i) {
    if (residents.next[i] != kNever) last = std::max(last, residents.next[i]);
  }
  return last;
}

// Writes an admission's arrays.
class Writer {
 public:
  Writer(Admission& out, int64_t residents, int64_t needed) : out_(out) {
    out.node.reserve(residents + 1);
    out.next.reserve(residents + 1);
    out.used.reserve(residents + 1);
    out.slot.reserve(residents + 1);
    out.unit_slot.reserve(needed + 1);
    out.missing.reserve(needed + 1);
  }

  void add(int64_t node, int32_t next, int32_t used, int32_t slot) {
    out_.node.data()[out_.count] = node;
    out_.next.data()[out_.count] = next;
    out_.used.data()[out_.count] = used;
    out_.slot.data()[out_.count++] = slot;
  }
  void miss(int64_t place) {
    out_.unit_slot.data()[place] = kNoSlot;
    out_.missing.data()[out_.misses++] = place;
  }
  void hit(int64_t place, int32_t slot) { out_.unit_slot.data()[place] = slot; }

 private:
  Admission& out_;
};

// Leaves everything where it is.
void refuse(const Residents& residents, const UnitNodes& unit, Admission& out) {
  out.fits = false;
  Writer writer(out, residents.count, unit.count);
  for_each_node(residents, unit, [&](int64_t at, int64_t place) {
    if (at == kNone) return writer.miss(place);
    const int32_t slot = residents.slot[at];
    const int32_t next = place == kNone ? residents.next[at] : unit.next[place];
    writer.add(residents.node[at], next, residents.used[at], slot);
    if (place != kNone) writer.hit(place, slot);
  });
}

// Gives the rows that are missing the slots of those that leave, then slots that nobody has had.
void give_slots(Admission& out, const std::vector<int32_t>& left, int64_t residents) {
  size_t reused = 0;
  auto fresh = static_cast<int32_t>(residents);
  for (int64_t i = 0, miss = 0; i < out.count; ++i) {
    if (out.slot.data()[i] != kNoSlot) continue;
    const int32_t slot = reused < left.size() ? left[reused++] : fresh++;
    out.slot.data()[i] = out.unit_slot.data()[out.missing.data()[miss++]] = slot;
  }
}

}  // namespace

Admission admit(const Residents& residents, const UnitNodes& unit, int32_t number, int32_t in_use_from,
                int64_t capacity) {
  Evictable evictable(last_use(residents));
  int64_t missing = 0;
  for_each_node(residents, unit, [&](int64_t at, int64_t place) {
    if (at == kNone) {
      ++missing;
    } else if (place == kNone && residents.used[at] < in_use_from) {
      evictable.add(residents.next[at]);
    }
  });
  const int64_t leaving = std::max<int64_t>(0, residents.count + missing - capacity);
  Admission out;
  if (leaving > evictable.count()) {
    refuse(residents, unit, out);
    return out;
  }
  Leaving choice = evictable.choose(leaving);
  std::vector<int32_t> left;
  left.reserve(static_cast<size_t>(leaving));
  Writer writer(out, residents.count + missing - leaving, unit.count);
  for_each_node(residents, unit, [&](int64_t at, int64_t place) {
    if (place != kNone) {
      const int32_t slot = at == kNone ? kNoSlot : residents.slot[at];
      writer.add(unit.node[place], unit.next[place], number, slot);
      return at == kNone ? writer.miss(place) : writer.hit(place, slot);
    }
    const int32_t next = residents.next[at];
    if (residents.used[at] < in_use_from && choice.takes(next)) {
      left.push_back(residents.slot[at]);
    } else {
      writer.add(residents.node[at], next, residents.used[at], residents.slot[at]);
    }
  });
  give_slots(out, left, residents.count);
  return out;
}

void move_rows(const char* from, const int64_t* from_row, char* to, const int64_t* to_row, int64_t count,
               int64_t row_bytes, int64_t threads) {
  constexpr int64_t kAhead = 16, kGrainBytes = 1 << 20;
  run_ranges(count, kGrainBytes / std::max<int64_t>(row_bytes, 64), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        prefetch_line(from + from_row[i + kAhead] * row_bytes);
        prefetch_line(to + to_row[i + kAhead] * row_bytes);
      }
      std::memcpy(to + to_row[i] * row_bytes, from + from_row[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

}  // namespace pyg_batchgnn
