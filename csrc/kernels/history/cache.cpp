#include "kernels/history/cache.h"

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kSearchGrain = 4096;   // nodes, about a tenth of a millisecond of cache misses
constexpr int64_t kCopyGrain = 1 << 20;  // bytes; fewer do not pay for a thread
constexpr int64_t kAhead = 16;           // nodes between the prefetch of a slot and its use

int64_t home(const CacheLines& cache, int64_t node) {
  return static_cast<int64_t>(mix(static_cast<uint64_t>(node)) & static_cast<uint64_t>(cache.slots - 1));
}

int64_t after(const CacheLines& cache, int64_t slot) { return (slot + 1) & (cache.slots - 1); }

// Returns the slot of a node, or the empty one where it belongs.
int64_t find(const CacheLines& cache, int64_t node) {
  int64_t at = home(cache, node);
  while (cache.slot[at] != 0 && cache.node[cache.slot[at] - 1] != node) at = after(cache, at);
  return at;
}

// Empties a slot. Those behind it move up, so that a search never meets a gap.
void erase(CacheLines& cache, int64_t slot) {
  const int64_t mask = cache.slots - 1;
  int64_t gap = slot;
  for (int64_t at = after(cache, slot); cache.slot[at] != 0; at = after(cache, at)) {
    const int64_t from = home(cache, cache.node[cache.slot[at] - 1]);
    if (((at - from) & mask) < ((at - gap) & mask)) continue;
    cache.slot[gap] = cache.slot[at];
    gap = at;
  }
  cache.slot[gap] = 0;
}

void unlink(CacheLines& cache, int32_t line) {
  const int32_t older = cache.older[line], newer = cache.newer[line];
  if (older != kNoLine) {
    cache.newer[older] = newer;
  } else {
    cache.ends[0] = newer;
  }
  if (newer != kNoLine) {
    cache.older[newer] = older;
  } else {
    cache.ends[1] = older;
  }
}

void append(CacheLines& cache, int32_t line) {
  const auto newest = static_cast<int32_t>(cache.ends[1]);
  cache.older[line] = newest;
  cache.newer[line] = kNoLine;
  if (newest != kNoLine) {
    cache.newer[newest] = line;
  } else {
    cache.ends[0] = line;
  }
  cache.ends[1] = line;
}

// Returns the line for a node that has none: an unused one, or the oldest.
int32_t free_line(CacheLines& cache) {
  if (cache.ends[2] < cache.lines) return static_cast<int32_t>(cache.ends[2]++);
  const auto oldest = static_cast<int32_t>(cache.ends[0]);
  unlink(cache, oldest);
  erase(cache, find(cache, cache.node[oldest]));
  return oldest;
}

int32_t store(CacheLines& cache, int64_t node) {
  const int64_t slot = find(cache, node);
  int32_t line = cache.slot[slot] - 1;
  if (line != kNoLine) {
    unlink(cache, line);
  } else {
    line = free_line(cache);
    cache.node[line] = node;
    cache.slot[find(cache, node)] = line + 1;  // the slots may have moved
  }
  append(cache, line);
  return line;
}

}  // namespace

void search_lines(const CacheLines& cache, const int64_t* node, int64_t count, int64_t since, int32_t* line,
                  int64_t threads) {
  run_ranges(count, kSearchGrain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) __builtin_prefetch(&cache.slot[home(cache, node[i + kAhead])]);
      const int32_t found = cache.slot[find(cache, node[i])] - 1;
      line[i] = found != kNoLine && cache.stored[found] >= since ? found : kNoLine;
    }
  });
}

void store_lines(CacheLines& cache, const int64_t* node, const int64_t* step, int64_t count, int32_t* line) {
  if (cache.lines == 0) {
    std::fill(line, line + count, kNoLine);
    return;
  }
  // Until all are stored, a line's step is the number of the node that it was stored for last.
  for (int64_t i = 0; i < count; ++i) {
    line[i] = store(cache, node[i]);
    cache.stored[line[i]] = i;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (cache.stored[line[i]] != i) line[i] = kNoLine;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (line[i] != kNoLine) cache.stored[line[i]] = step[i];
  }
}

void list_lines(const CacheLines& cache, int32_t* line) {
  for (auto at = static_cast<int32_t>(cache.ends[0]); at != kNoLine; at = cache.newer[at]) *line++ = at;
}

void put_lines(const char* rows, int64_t row_bytes, const int32_t* line, int64_t count, char* table,
               int64_t threads) {
  const int64_t grain = kCopyGrain / std::max<int64_t>(row_bytes, 8);
  run_ranges(count, grain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (line[i] == kNoLine) continue;
      std::memcpy(table + line[i] * row_bytes, rows + i * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

}  // namespace pyg_batchgnn
