// The steps by which a rule measures lists and chooses from them. A step of all lists of a group
// comes before the next step of any, so that their cache misses overlap.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/prefetch.h"
#include "kernels/sample/nodes.h"

namespace pyg_batchgnn {

// Measures the lists of `count` targets by a rule, which then chooses from them, and calls
// body(i, picks) for each. target(i) returns the i-th target, up to `known` of them.
template <class Rule, class TargetOf, class Body>
void measure_lists(Rule& rule, const int64_t* indptr, int64_t count, int64_t known, const TargetOf& target,
                   const Body& body) {
  const auto prefetch_pointers = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < std::min(last, known); ++i) prefetch_line(&indptr[target(i).node]);
  };
  rule.begin(count);
  prefetch_pointers(0, kTargets);
  for (int64_t first = 0; first < count; first += kTargets) {
    const int64_t last = std::min(first + kTargets, count);
    prefetch_pointers(first + kTargets, first + 2 * kTargets);
    rule.look_up(first, last, target);
    for (int64_t i = first; i < last; ++i) body(i, rule.measure(i, target(i)));
  }
}

// Chooses from the lists `first` to `last` - 1 of those that were measured, and writes the
// positions of all picks in order. key(i) and picks(i) return the key of a list and its number of
// picks.
template <class Rule, class KeyOf, class PicksOf>
void choose_lists(Rule& rule, int64_t first, int64_t last, const KeyOf& key, const PicksOf& picks,
                  int64_t* position) {
  const auto each = [&](const auto& step) {
    int64_t* next = position;
    for (int64_t i = first; i < last; ++i) {
      const int64_t own = picks(i);
      step(i, own, next);
      next += own;
    }
    return next - position;
  };
  // Lists lie on different pages, and a prefetch waits for the translation of its page. So all
  // lists are touched first, and their picks are then prefetched without waiting.
  each([&](int64_t i, int64_t own, int64_t*) { rule.touch(i, own); });
  if (rule.guesses()) {
    each([&](int64_t i, int64_t own, int64_t* at) { rule.guess(i, key(i), own, at); });
    each([&](int64_t i, int64_t own, int64_t* at) { rule.improve(i, key(i), own, at); });
  }
  rule.settle(position, each([&](int64_t i, int64_t own, int64_t* at) { rule.choose(i, key(i), own, at); }));
}

}  // namespace pyg_batchgnn
