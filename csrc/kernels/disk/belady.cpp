#include "kernels/disk/belady.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/prefetch.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kNone = -1;

// Calls body(node, at, place) for each node of either list, ascending. `at` is its position in the
// cache and `place` its position in the unit, or kNone.
template <class Body>
void for_each_node(const CachedNodes& cached, const UnitNodes& unit, const Body& body) {
  int64_t at = 0, place = 0;
  while (at < cached.count && place < unit.count) {
    const int64_t held = cached.node[at], needed = unit.node[place];
    if (held < needed) {
      body(held, at++, kNone);
    } else if (needed < held) {
      body(needed, kNone, place++);
    } else {
      body(held, at++, place++);
    }
  }
  for (; at < cached.count; ++at) body(cached.node[at], at, kNone);
  for (; place < unit.count; ++place) body(unit.node[place], kNone, place);
}

// The rank of a row among those that want to stay: the less, the sooner it is needed.
class Ranks {
 public:
  Ranks(const CachedNodes& cached, const UnitNodes& unit) : cached_(cached), unit_(unit) {
    int32_t last = 0;
    for (int64_t i = 0; i < cached.count; ++i) last = std::max(last, soon(cached.next[i]));
    for (int64_t i = 0; i < unit.count; ++i) last = std::max(last, soon(unit.next[i]));
    never_ = int64_t{last} + 1;
  }

  int64_t count() const { return never_ + 2; }

  int32_t next(int64_t at, int64_t place) const { return place == kNone ? cached_.next[at] : unit_.next[place]; }

  int64_t operator()(int64_t at, int64_t place) const {
    const int32_t use = next(at, place);
    if (use != kNever) return use;
    return at == kNone ? never_ + 1 : never_;
  }

 private:
  static int32_t soon(int32_t next) { return next == kNever ? 0 : next; }

  const CachedNodes& cached_;
  const UnitNodes& unit_;
  int64_t never_;
};

// Hands out the slots below `capacity` that no row has, ascending.
class FreeSlots {
 public:
  explicit FreeSlots(int64_t capacity) : taken_(static_cast<size_t>(capacity), false) {}

  void take(int32_t slot) { taken_[static_cast<size_t>(slot)] = true; }

  int32_t next() {
    while (taken_[static_cast<size_t>(at_)]) ++at_;
    return static_cast<int32_t>(at_++);
  }

 private:
  std::vector<bool> taken_;
  int64_t at_ = 0;
};

// Which ranks stay: all below `last`, and the first `quota` rows of `last`.
struct Limit {
  int64_t last, quota;

  Limit(const std::vector<int64_t>& rows_of_rank, int64_t capacity) : last(0), quota(capacity) {
    const auto ranks = static_cast<int64_t>(rows_of_rank.size());
    while (last < ranks && rows_of_rank[static_cast<size_t>(last)] <= quota) {
      quota -= rows_of_rank[static_cast<size_t>(last++)];
    }
  }

  bool admits(int64_t rank) { return rank < last || (rank == last && quota-- > 0); }
};

}  // namespace

void find_slots(const CachedNodes& cached, const int64_t* node, int64_t count, int32_t* slot) {
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    while (at < cached.count && cached.node[at] < node[i]) ++at;
    slot[i] = at < cached.count && cached.node[at] == node[i] ? cached.slot[at] : kNoSlot;
  }
}

Kept keep_soonest(const CachedNodes& cached, const UnitNodes& unit, int64_t capacity) {
  const Ranks rank(cached, unit);
  std::vector<int64_t> rows(static_cast<size_t>(rank.count()), 0);
  int64_t distinct = 0;
  for_each_node(cached, unit, [&](int64_t, int64_t at, int64_t place) {
    ++rows[static_cast<size_t>(rank(at, place))];
    ++distinct;
  });
  Limit limit(rows, capacity);
  FreeSlots slots(capacity);
  Kept kept;
  const int64_t most = std::min(capacity, distinct);
  int64_t* node = kept.node.reserve(most);
  int32_t* next = kept.next.reserve(most);
  int32_t* slot = kept.slot.reserve(most);
  int64_t* from = kept.from.reserve(std::min(most, unit.count));
  int32_t* to = kept.to.reserve(std::min(most, unit.count));
  for_each_node(cached, unit, [&](int64_t one, int64_t at, int64_t place) {
    if (!limit.admits(rank(at, place))) return;
    node[kept.count] = one;
    next[kept.count] = rank.next(at, place);
    slot[kept.count] = at == kNone ? kNoSlot : cached.slot[at];
    if (at == kNone) {
      from[kept.copies++] = place;
    } else {
      slots.take(cached.slot[at]);
    }
    ++kept.count;
  });
  for (int64_t i = 0, copy = 0; i < kept.count; ++i) {
    if (slot[i] == kNoSlot) to[copy++] = slot[i] = slots.next();
  }
  return kept;
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
