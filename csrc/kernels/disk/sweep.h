// Sweeps over a file whose rows' uses are known: which rows are in memory, what is read before each
// unit, and what makes room for it (Belady, 1966). pyg_batchgnn/fetch/sweep.py describes them.
//
// A unit is a fetch group. Units are numbered in the order in which they are prepared. The file is
// cut into as many ranges as a sweep takes units, its period. One range is read before each unit.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

constexpr int32_t kNever = INT32_MAX;  // the next use of a row that is not needed again
constexpr int32_t kNoSlot = -1;        // the slot of a row that is not in memory

// For each row of the file, when it is needed next and where it lies. The arrays are the caller's.
struct RowStates {
  int32_t* next;  // [rows] the next unit that needs each row, or kNever
  int32_t* slot;  // [rows] the slot of each row, or kNoSlot
  int64_t rows;
};

// The rows that a unit needs.
struct UnitRows {
  const int64_t* row;        // [count] ascending
  const int32_t* following;  // [count] the next use of each after the unit, or kNever
  int64_t count;
};

// Sets the next use of rows to `number`. Writes what it was to `following`.
template <class Row>
void note_use(int32_t* next, const Row* row, int64_t count, int32_t number, int32_t* following);

// What is to be read before a unit.
struct Reading {
  Buffer<int64_t> rows;   // [count] ascending
  Buffer<int64_t> slots;  // [count] where they go
  int64_t count = 0;
  Buffer<int64_t> unit;  // [unit.count] the slot of each of the unit's rows, if it fits
  bool fits = false;     // false if there are too few slots for the unit
  bool evicts = false;   // true if some of the slots were those of other rows
};

class Sweep {
 public:
  // `capacity`: the number of slots.
  explicit Sweep(int64_t capacity) : capacity_(capacity) {}

  // Begins a sequence of units with the unit `number`. `states.next` has the first use of each row
  // in it. `in_use`: units whose rows may be in use; their rows stay.
  void begin(const RowStates& states, int32_t number, int32_t period, const std::vector<UnitRows>& in_use);

  // Appends a sequence of units to those that are known. `first`: [rows] the first use of each row
  // in it, or kNever. `last`: the latest unit that was prepared.
  void extend(const RowStates& states, const int32_t* first, int32_t last,
              const std::vector<UnitRows>& in_use);

  // Lets go of the rows of a unit that is not in use any more. `last`: the latest unit that was
  // prepared. Rows that units after it have used stay.
  void retire(const UnitRows& unit, int32_t last);

  // Finds what is to be read before a unit, and notes its uses.
  Reading prepare(const RowStates& states, const UnitRows& unit, int32_t number);

 private:
  // The time after the reading before unit `number`, which was of `range`.
  struct Moment {
    int32_t number, range;
  };
  Moment after(int32_t number) const;
  // Returns before which unit a range is read next.
  int32_t comes_back(int64_t range, const Moment& last) const;
  void note_all(const RowStates& states, int32_t last, const std::vector<UnitRows>& in_use);
  void note(int64_t row, int32_t next, const Moment& last);
  // Rows and ranges have 32 bits, whose quotients take a third of the time.
  int64_t range_of(int64_t row) const { return static_cast<uint32_t>(row) / static_cast<uint32_t>(width_); }
  std::vector<int64_t> wanted(const RowStates& states, int32_t number) const;
  std::vector<int32_t> take(const RowStates& states, int64_t count, int32_t number, bool& evicts);
  int32_t evict(const RowStates& states, const Moment& last);

  int64_t capacity_;
  int64_t width_ = 1;  // the rows of a range
  int32_t start_ = 0, period_ = 1;
  int64_t fresh_ = 0;          // slots from here on were never used
  std::vector<int32_t> free_;  // slots that were given back
  std::vector<int32_t> done_;  // rows that are not needed again; some may have left since
  // By next use, less `soonest_`, other rows that may leave. Some may be needed since, or gone.
  std::vector<std::vector<int32_t>> leaving_;
  int32_t soonest_ = 0;
};

}  // namespace pyg_batchgnn
