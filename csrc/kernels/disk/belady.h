// A cache of rows whose next uses are known: the rows that are needed soonest stay (Belady, 1966).
//
// A unit is a fetch group. Units are numbered through the epoch. The next use of a row is the
// number of the next unit that needs it, or kNever.
#pragma once

#include <cstdint>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

constexpr int32_t kNever = INT32_MAX;
constexpr int32_t kNoSlot = -1;

// The rows that a cache holds, by ascending node.
struct CachedNodes {
  const int64_t* node;  // [count] ascending
  const int32_t* next;  // [count] the next use of each
  const int32_t* slot;  // [count] the row of the cache's table where each lies
  int64_t count;
};

// The rows that a unit has in its block, by ascending node.
struct UnitNodes {
  const int64_t* node;  // [count] ascending
  const int32_t* next;  // [count] the use of each after this unit
  int64_t count;
};

// Writes the slot of each of `count` ascending nodes, or kNoSlot for those that the cache lacks.
void find_slots(const CachedNodes& cached, const int64_t* node, int64_t count, int32_t* slot);

// What a cache holds after a unit.
struct Kept {
  Buffer<int64_t> node;  // [count] ascending
  Buffer<int32_t> next;  // [count]
  Buffer<int32_t> slot;  // [count]
  int64_t count = 0;
  Buffer<int64_t> from;  // [copies] positions in the unit of the rows that the cache lacked
  Buffer<int32_t> to;    // [copies] their slots
  int64_t copies = 0;
};

// Chooses `capacity` rows among those of the cache and of the unit: those whose next use comes
// first. Ties are broken by node. Rows that are never needed again stay where there is room, those
// of the cache before those of the unit. Slots are below `capacity`; a row that stays keeps its slot.
Kept keep_soonest(const CachedNodes& cached, const UnitNodes& unit, int64_t capacity);

// to[to_row[i]] = from[from_row[i]] for rows of `row_bytes`. No row of `to` comes twice.
void move_rows(const char* from, const int64_t* from_row, char* to, const int64_t* to_row, int64_t count,
               int64_t row_bytes, int64_t threads);

}  // namespace pyg_batchgnn
