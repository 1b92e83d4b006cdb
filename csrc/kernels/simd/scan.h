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

constexpr int64_t kWordGroup = 16;
constexpr int64_t kFewWords = 64;

// Writes the random words of sources (random.h) that are at most `limit`, and their places in the
// list. Returns how many there are. Both need room for kWordGroup more.
int64_t words_below(const int32_t* sources, int64_t count, uint64_t key, uint64_t limit, uint64_t* word,
                    int64_t* place);
int64_t words_below(const int64_t* sources, int64_t count, uint64_t key, uint64_t limit, uint64_t* word,
                    int64_t* place);

// Writes the places of the `picks` smallest of at most kFewWords words in their order. Returns
// false if equal words do not fit, so that `out` is of no use. `word` has room for kWordGroup more.
bool least_words(uint64_t* word, int64_t count, int64_t picks, const int64_t* place, int64_t* out);

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
