// Passes over whole arrays.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// The smallest and the largest entry; {0, -1} without entries.
struct Extent {
  int64_t low, high;
};

Extent scan_extent(const int32_t* values, int64_t count);
Extent scan_extent(const int64_t* values, int64_t count);

constexpr int64_t kWordGroup = 8;
constexpr int64_t kFewWords = 128;  // up to here comparing all with all is fast

// The bits of a random word (random.h) that make room for the place of its source in a list.
constexpr uint64_t kPlaceOfWord = (uint64_t{1} << 33) - 1;

// Writes the upper bits of the words of sources that are at most `limit`, with their places, in the
// order of the list. Returns how many there are. `limit` ends with ones and does not begin with as
// many. `word` has room for kWordGroup more.
int64_t words_below(const int32_t* sources, int64_t count, uint64_t key, uint64_t limit, uint64_t* word);
int64_t words_below(const int64_t* sources, int64_t count, uint64_t key, uint64_t limit, uint64_t* word);

// Writes the places of the `picks` words with the smallest upper bits in their order. Returns false
// if equal ones do not fit, so that `place` is of no use. Both have room for kWordGroup more.
bool least_words(uint64_t* word, int64_t count, int64_t picks, int64_t* place);

// Returns whether no entry is smaller than the one before it.
bool scan_ascending(const int32_t* values, int64_t count);
bool scan_ascending(const int64_t* values, int64_t count);

int64_t scan_set_bits(const uint64_t* words, int64_t count);

// Writes the numbers of the set bits to `out`, ascending, and to `before` how many there are before
// each word. `out` needs room for two more.
void list_set_bits(const uint64_t* words, int64_t count, int64_t* before, int32_t* out);
void list_set_bits(const uint64_t* words, int64_t count, int64_t* before, int64_t* out);

// Writes how many bits are set before each of some bits.
void rank_bits(const uint64_t* words, const int64_t* before, const int64_t* bit, int64_t count,
               int64_t* rank);

}  // namespace pyg_batchgnn
