// Prefix sums, and stable sorting by small numbers.
//
// Items are numbers [first, last), and group(item) is in [0, groups). A thread may sort a block of
// them, if it knows where the items of each group begin: those of the blocks before lie in front.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pyg_batchgnn {

// Replaces each count by the sum of `begin` and the counts before it. Returns the sum of all.
template <class T>
T scan(T* counts, int64_t size, T begin = 0) {
  for (int64_t i = 0; i < size; ++i) {
    const T count = counts[i];
    counts[i] = begin;
    begin += count;
  }
  return begin;
}

// Replaces counts, [blocks, groups], by the begin of each block's items in each group. Sets
// first, [groups + 1], to the begin of each group, then to the number of items.
inline void scan_blocks(int64_t* counts, int64_t blocks, int64_t groups, int64_t* first) {
  int64_t total = 0;
  for (int64_t group = 0; group < groups; ++group) {
    first[group] = total;
    for (int64_t block = 0; block < blocks; ++block) {
      int64_t& own = counts[block * groups + group];
      const int64_t count = own;
      own = total;
      total += count;
    }
  }
  first[groups] = total;
}

template <class Group>
void count_groups(int64_t first, int64_t last, const Group& group, int64_t* counts) {
  for (int64_t item = first; item < last; ++item) ++counts[group(item)];
}

// Calls place(item, slot) for each item in order. Its slot is next[group], which moves on.
template <class Group, class Place>
void place_groups(int64_t first, int64_t last, const Group& group, int64_t* next, const Place& place) {
  for (int64_t item = first; item < last; ++item) place(item, next[group(item)]++);
}

// Prefetches a line that will be written. See prefetch_line for the empty assembly.
inline void prefetch_to_write(const void* address) {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

// The same for many groups. Before that, touch(slot) prefetches what lies there.
template <class Group, class Touch, class Place>
void place_groups(int64_t first, int64_t last, const Group& group, int64_t* next, const Touch& touch,
                  const Place& place) {
  constexpr int64_t kAhead = 32;
  int64_t item = first;
  for (; item < last - 2 * kAhead; ++item) {
    __builtin_prefetch(&next[group(item + 2 * kAhead)], 1);
    touch(next[group(item + kAhead)]);
    place(item, next[group(item)]++);
  }
  place_groups(item, last, group, next, place);
}

// Sorts items. Sets ends, [groups], to the end of each group; the first one begins at `begin`.
template <class Group, class Touch, class Place>
void counting_sort(int64_t first, int64_t last, const Group& group, int64_t groups, int64_t begin,
                   int64_t* ends, const Touch& touch, const Place& place) {
  std::fill_n(ends, groups, 0);
  count_groups(first, last, group, ends);
  scan(ends, groups, begin);  // the begins, which move on to the ends
  place_groups(first, last, group, ends, touch, place);
}

}  // namespace pyg_batchgnn
