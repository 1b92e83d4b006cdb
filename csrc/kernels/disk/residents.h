// Rows of a file that are in memory, where all later uses are known: the rows that are needed last
// make room (Belady, 1966).
//
// A unit is a fetch group. Units are numbered through the epoch. The next use of a row is the
// number of the next unit that needs it, or kNever. All rows of a unit are in memory together, and
// stay for as long as minibatches of it may be in use.
#pragma once

#include <cstdint>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

constexpr int32_t kNever = INT32_MAX;
constexpr int32_t kNoSlot = -1;

// The rows in memory, by ascending node. They have the slots 0 to count - 1.
struct Residents {
  const int64_t* node;  // [count] ascending
  const int32_t* next;  // [count] the next use of each
  const int32_t* used;  // [count] the last unit that needed each
  const int32_t* slot;  // [count] the row of the table in memory where each lies
  int64_t count;
};

// The rows that a unit needs, by ascending node.
struct UnitNodes {
  const int64_t* node;  // [count] ascending
  const int32_t* next;  // [count] the use of each after this unit
  int64_t count;
};

struct Admission {
  // Whether the unit's rows have slots. If they cannot have them without those of units in use,
  // nothing moves, but for the next uses of rows that are here.
  bool fits = true;
  // The rows in memory afterwards, as in Residents.
  Buffer<int64_t> node;
  Buffer<int32_t> next, used, slot;
  int64_t count = 0;
  Buffer<int32_t> unit_slot;  // [unit.count] the slot of each of the unit's rows, or kNoSlot
  Buffer<int64_t> missing;    // [misses] positions in the unit of the rows that were not here
  int64_t misses = 0;
};

// Admits the rows of unit `number` to a table of `capacity` rows. Rows that units from
// `in_use_from` on have needed stay. Of the others, those whose next use is last make room; of equal
// ones those with the larger node.
Admission admit(const Residents& residents, const UnitNodes& unit, int32_t number, int32_t in_use_from,
                int64_t capacity);

// to[to_row[i]] = from[from_row[i]] for rows of `row_bytes`. No row of `to` comes twice.
void move_rows(const char* from, const int64_t* from_row, char* to, const int64_t* to_row, int64_t count,
               int64_t row_bytes, int64_t threads);

}  // namespace pyg_batchgnn
