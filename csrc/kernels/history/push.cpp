#include "kernels/history/push.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/parallel.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kChunk = 4096;  // nodes of a task
constexpr int64_t kAhead = 16;    // nodes between a prefetch and the use

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
        begins_(static_cast<size_t>(chunks_ * rules.peers)) {}

  Pushed run(int64_t threads) {
    run_tasks(chunks_, threads, [&](int64_t chunk, int64_t) { count_candidates(chunk); });
    scan();
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

  // The candidates of peer 0 lie first, those of a peer in the order of their places.
  void scan() {
    int64_t total = 0;
    for (int64_t peer = 0; peer < rules_.peers; ++peer) {
      first_.push_back(total);
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
        total += std::exchange(begins(chunk)[peer], total);
      }
    }
    first_.push_back(total);
    candidates_.reserve(total + 1);
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
