#include "kernels/history.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/counting_sort.h"
#include "kernels/parallel.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kSearchGrain = 4096;  // nodes, about a tenth of a millisecond of cache misses
constexpr int64_t kAhead = 16;          // nodes between a prefetch and the use

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

namespace {

constexpr int64_t kGrain = 4096;  // targets, some ten edges each
constexpr int64_t kMissing = -1;

// Returns the row of a source, or kMissing.
int64_t row_of(const HaloLayer& layer, int32_t source) {
  if (source < layer.own_nodes) return source;
  const int32_t place = layer.cached[source - layer.own_nodes];
  return place < 0 ? kMissing : layer.own_rows + place;
}

bool is_input(const HaloLayer& layer, int32_t source) {
  if (source < 0) return false;
  return source < layer.own_nodes ? source < layer.own_rows : source - layer.own_nodes < layer.halo;
}

}  // namespace

bool count_rows_of_halo(const HaloLayer& layer, int64_t* indptr, int64_t threads) {
  std::atomic<bool> fits{true};
  run_ranges(layer.targets, kGrain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t target = begin; target < end; ++target) {
      int64_t kept = 0;
      for (int64_t e = layer.indptr[target]; e < layer.indptr[target + 1]; ++e) {
        if (!is_input(layer, layer.source[e])) {
          fits = false;
          return;
        }
        kept += row_of(layer, layer.source[e]) != kMissing ? 1 : 0;
      }
      indptr[target] = kept;
    }
  });
  if (!fits) return false;
  indptr[layer.targets] = 0;
  scan(indptr, layer.targets + 1);
  return true;
}

void fill_rows_of_halo(const HaloLayer& layer, const int64_t* indptr, int32_t* source, int64_t* place,
                       int64_t threads) {
  run_ranges(layer.targets, kGrain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t target = begin; target < end; ++target) {
      int64_t next = indptr[target];
      for (int64_t e = layer.indptr[target]; e < layer.indptr[target + 1]; ++e) {
        const int64_t row = row_of(layer, layer.source[e]);
        if (row == kMissing) continue;
        source[next] = static_cast<int32_t>(row);
        place[next++] = e;
      }
    }
  });
}

namespace {

constexpr int64_t kChunk = 4096;  // nodes of a task

// A node that a peer has in its halo.
struct Candidate {
  int64_t place;
  int64_t name;
  double arrival;
};

bool arrives_before(const Candidate& one, const Candidate& other) {
  return std::pair(one.arrival, one.name) < std::pair(other.arrival, other.name);
}

// The nodes that arrive first, each at an exponential time of the rate `degree`, are a draw without
// replacement in proportion to degree (Efraimidis and Spirakis 2006).
double arrival_of(const PushRules& rules, int32_t peer, int64_t name, int32_t degree) {
  WordStream words(fold(fold(rules.key, static_cast<uint64_t>(peer)), static_cast<uint64_t>(name)));
  const double uniform = (static_cast<double>(words.next() >> 11) + 0.5) * 0x1p-53;
  return -std::log(uniform) / static_cast<double>(degree);
}

class Choice {
 public:
  Choice(const HaloPeers& halo, const int64_t* row, const int64_t* name, int64_t count,
         const PushRules& rules)
      : halo_(halo),
        row_(row),
        name_(name),
        count_(count),
        rules_(rules),
        chunks_((count + kChunk - 1) / kChunk),
        begins_(static_cast<size_t>(chunks_ * rules.peers)),
        first_(static_cast<size_t>(rules.peers) + 1) {}

  Pushed run(int64_t threads) {
    run_tasks(chunks_, threads, [&](int64_t chunk, int64_t) { count_candidates(chunk); });
    scan_blocks(begins_.data(), chunks_, rules_.peers, first_.data());
    candidates_.reserve(first_.back() + 1);
    run_tasks(chunks_, threads, [&](int64_t chunk, int64_t) { fill_candidates(chunk); });
    run_tasks(rules_.peers, threads, [&](int64_t peer, int64_t) { choose(peer); });
    return take();
  }

 private:
  template <class Body>
  void each(int64_t chunk, const Body& body) const {
    const int64_t begin = chunk * kChunk, end = std::min(count_, begin + kChunk);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end && row_[i + kAhead] >= 0) __builtin_prefetch(&halo_.ptr[row_[i + kAhead]]);
      if (row_[i] < 0) continue;
      for (int64_t e = halo_.ptr[row_[i]]; e < halo_.ptr[row_[i] + 1]; ++e) body(i, e);
    }
  }

  int64_t* begins(int64_t chunk) { return begins_.data() + chunk * rules_.peers; }

  void count_candidates(int64_t chunk) {
    int64_t* counts = begins(chunk);
    each(chunk, [&](int64_t, int64_t e) { ++counts[halo_.peer[e]]; });
  }

  bool has_choice(int64_t peer) const {
    const auto at = static_cast<size_t>(peer);
    return rules_.most != kPushAll && first_[at + 1] - first_[at] > rules_.most;
  }

  void fill_candidates(int64_t chunk) {
    int64_t* next = begins(chunk);
    each(chunk, [&](int64_t i, int64_t e) {
      const int32_t peer = halo_.peer[e];
      const double arrival = has_choice(peer) ? arrival_of(rules_, peer, name_[i], halo_.degree[e]) : 0.0;
      candidates_.data()[next[peer]++] = {i, name_[i], arrival};
    });
  }

  void choose(int64_t peer) {
    if (!has_choice(peer)) return;
    Candidate* begin = candidates_.data() + first_[static_cast<size_t>(peer)];
    Candidate* end = candidates_.data() + first_[static_cast<size_t>(peer) + 1];
    std::nth_element(begin, begin + rules_.most, end, arrives_before);
    std::sort(begin, begin + rules_.most,
              [](const Candidate& one, const Candidate& other) { return one.place < other.place; });
  }

  Pushed take() {
    Pushed out;
    int64_t total = 0;
    for (int64_t peer = 0; peer < rules_.peers; ++peer) {
      const auto at = static_cast<size_t>(peer);
      out.candidates.push_back(first_[at + 1] - first_[at]);
      out.counts.push_back(has_choice(peer) ? rules_.most : out.candidates.back());
      total += out.counts.back();
    }
    int64_t* place = out.place.reserve(total + 1);
    for (int64_t peer = 0; peer < rules_.peers; ++peer) {
      const auto at = static_cast<size_t>(peer);
      const Candidate* own = candidates_.data() + first_[at];
      for (int64_t i = 0; i < out.counts[at]; ++i) *place++ = own[i].place;
    }
    return out;
  }

  const HaloPeers& halo_;
  const int64_t* row_;
  const int64_t* name_;
  const int64_t count_;
  const PushRules& rules_;
  const int64_t chunks_;
  std::vector<int64_t> begins_;  // by chunk and peer, where the next candidate is written
  std::vector<int64_t> first_;   // by peer, where its candidates begin; then their number
  Buffer<Candidate> candidates_;
};

}  // namespace

Pushed choose_pushed(const HaloPeers& halo, const int64_t* row, const int64_t* name, int64_t count,
                     const PushRules& rules, int64_t threads) {
  return Choice(halo, row, name, count, rules).run(threads);
}

}  // namespace pyg_batchgnn
