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

// Some lists of those that were measured, handled together, and the memory of their picks.
struct ListGroup {
  int64_t first, last;  // the lists first to last - 1
  int64_t picks;        // of all lists
  int64_t* position;    // [picks] in `indices`
  double* drawn;        // [picks] where draws by weight fall among the sums
};

// The steps of choosing from a group, in order. key(i) and picks(i) return the key of a list and
// its number of picks.
//
// Lists lie on different pages, and a prefetch waits for the translation of its page. So all lists
// are touched first, and their picks are then prefetched without waiting.
template <class Rule, class PicksOf>
void touch_lists(const Rule& rule, const ListGroup& group, const PicksOf& picks) {
  for (int64_t i = group.first; i < group.last; ++i) rule.touch(i, picks(i));
}

template <class Rule, class KeyOf, class PicksOf>
void guess_picks(const Rule& rule, const ListGroup& group, const KeyOf& key, const PicksOf& picks) {
  if (!rule.guesses()) return;
  for (int64_t i = group.first, at = 0; i < group.last; at += picks(i++)) {
    rule.guess(i, key(i), picks(i), group.drawn + at, group.position + at);
  }
}

template <class Rule, class PicksOf>
void improve_guesses(const Rule& rule, const ListGroup& group, const PicksOf& picks) {
  if (!rule.guesses()) return;
  for (int64_t i = group.first, at = 0; i < group.last; at += picks(i++)) {
    rule.improve(i, picks(i), group.drawn + at, group.position + at);
  }
}

template <class Rule, class KeyOf, class PicksOf>
void make_picks(Rule& rule, const ListGroup& group, const KeyOf& key, const PicksOf& picks) {
  for (int64_t i = group.first, at = 0; i < group.last; at += picks(i++)) {
    rule.choose(i, key(i), picks(i), group.drawn + at, group.position + at);
  }
  rule.settle(group.position, group.picks);
}

// Takes all steps, one after the other.
template <class Rule, class KeyOf, class PicksOf>
void choose_lists(Rule& rule, const ListGroup& group, const KeyOf& key, const PicksOf& picks) {
  touch_lists(rule, group, picks);
  guess_picks(rule, group, key, picks);
  improve_guesses(rule, group, picks);
  make_picks(rule, group, key, picks);
}

}  // namespace pyg_batchgnn
