// The lines of a historical embedding cache (DistGNN-MB, section 3.2): which line has which node.
//
// A hash table finds the line of a node. A list through all lines in use has them in the order in
// which they were stored. The oldest line makes room where all lines are in use.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

constexpr int32_t kNoLine = -1;

// The arrays belong to the caller. Before the first call slots are 0, and ends are kNoLine, kNoLine
// and 0.
struct CacheLines {
  int32_t* slot;  // [slots] a line + 1, or 0; slots are a power of two, at least twice the lines
  int64_t slots;
  int64_t* node;    // [lines] the node of each line in use
  int64_t* stored;  // [lines] the step in which each line in use was stored
  int32_t* older;   // [lines] the line that was stored before, or kNoLine
  int32_t* newer;   // [lines] the line that was stored next, or kNoLine
  int64_t* ends;    // [3] the oldest line, the newest line, the number of lines in use
  int64_t lines;
};

// Writes the line of each node, or kNoLine for a node without one or with one that was stored
// before the step `since`.
void search_lines(const CacheLines& cache, const int64_t* node, int64_t count, int64_t since, int32_t* line,
                  int64_t threads);

// Stores nodes one after the other and writes the line of each. A node that is stored again later
// in the call, or that makes room for a later one, gets kNoLine. `step` ascends.
void store_lines(CacheLines& cache, const int64_t* node, const int64_t* step, int64_t count, int32_t* line);

// Writes the lines in use, the oldest first.
void list_lines(const CacheLines& cache, int32_t* line);

// table[line[i]] = rows[i] for rows of `row_bytes`; rows without a line are left out. No line comes
// twice.
void put_lines(const char* rows, int64_t row_bytes, const int32_t* line, int64_t count, char* table,
               int64_t threads);

}  // namespace pyg_batchgnn
