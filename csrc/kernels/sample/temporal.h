// The part of an adjacency list that a seed's time allows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace pyg_batchgnn {

// Places begin .. end - 1 of the order of a relation's edges.
struct Places {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// Returns the places of a list whose times are at most `latest` and, with a window of w >= 0, at
// least latest - w. `time` ascends within the list.
inline Places allowed_by_time(const int64_t* time, Places list, int64_t latest, int64_t window) {
  const int64_t* end = std::upper_bound(time + list.begin, time + list.end, latest);
  const int64_t* begin = time + list.begin;
  if (window >= 0) {
    const int64_t lowest = std::numeric_limits<int64_t>::min();
    begin = std::lower_bound(begin, end, latest < lowest + window ? lowest : latest - window);
  }
  return {begin - time, end - time};
}

}  // namespace pyg_batchgnn
