// The rules by which the picks of one relation and hop are made.
//
// A rule says for each node of the frontier how many picks it gets (measure) and later makes them
// (choose). Which rule holds is decided once for a relation and hop: PlainRule has no branches for
// what it does not do.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "kernels/prefetch.h"
#include "kernels/sample/allowed_edges.h"
#include "kernels/sample/choose.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/pick.h"
#include "kernels/sample/plan.h"
#include "kernels/sample/temporal.h"
#include "kernels/sample/weighted.h"

namespace pyg_batchgnn {

// A fixed fanout, uniform among all in-neighbours, by the words of sources or by draws of its own.
template <class Index>
class PlainRule {
 public:
  PlainRule(const Relation<Index>& relation, const Plan& plan, Fanout fanout, uint64_t key,
            Scratch<Index>& scratch)
      : edges_(relation.edges),
        fanout_(fanout.count),
        replacement_(plan.replacement),
        by_source_(plan.labor != Labor::kNone),
        choose_(fanout.count, plan.replacement, &scratch.picked),
        labor_(relation, key, scratch.labor),
        first_(scratch.first) {}

  void begin(int64_t count) { lists_ = first_.reserve(2 * count); }

  // Looks up what measuring the targets `first` to `last` - 1 reads behind their indptr.
  template <class TargetOf>
  void look_up(int64_t, int64_t, const TargetOf&) const {}

  // Returns the number of picks of the i-th node of the frontier.
  int64_t measure(int64_t i, Target target) {
    const int64_t start = edges_.indptr[target.node];
    const int64_t degree = edges_.indptr[target.node + 1] - start;
    lists_[2 * i] = start;
    lists_[2 * i + 1] = degree;
    return picks_of(degree, fanout_, replacement_);
  }

  // Touches what the i-th list of a group lies on, for `picks` picks.
  void touch(int64_t i, int64_t picks) const {
    if (by_source_ && picks > 0) return labor_.touch(lists_[2 * i], lists_[2 * i + 1]);
    prefetch_line(&edges_.indices[lists_[2 * i]]);
  }

  // Guesses where picks fall and improves the guesses, after all lists of the group were touched.
  static constexpr bool guesses() { return false; }
  void guess(int64_t, uint64_t, int64_t, double*, int64_t*) const {}
  void improve(int64_t, int64_t, const double*, int64_t*) const {}

  // Writes the places of the picks and prefetches what turning them into positions reads. Where the
  // rule guesses, draws fall where `guess` wrote.
  void choose(int64_t i, uint64_t node_key, int64_t picks, double*, int64_t* position) {
    if (picks == 0) return;
    const int64_t begin = lists_[2 * i], degree = lists_[2 * i + 1];
    if (by_source_ && picks < degree) {
      labor_(begin, degree, picks, position);
    } else {
      choose_(node_key, begin, degree, position);
    }
    prefetch_picks(edges_.indices, position, picks);
  }

  // Turns the places of a group into positions in `indices` and prefetches their entries.
  void settle(int64_t*, int64_t) const {}

 private:
  const Csc<Index> edges_;
  const int64_t fanout_;
  const Replacement replacement_;
  const bool by_source_;
  const Chooser choose_;
  LaborChooser<Index> labor_;
  Buffer<int64_t>& first_;
  int64_t* lists_ = nullptr;
};

// Any rule. What a node's list needs is decided for the node, never for an edge.
template <class Index>
class FullRule {
 public:
  FullRule(const Relation<Index>& relation, const Plan& plan, Fanout fanout, const int64_t* latest,
           ExcludedPairs excluded, uint64_t key, Scratch<Index>& scratch)
      : relation_(relation),
        fanout_(fanout),
        replacement_(plan.replacement),
        last_(plan.temporal == Temporal::kLast && relation.time.time != nullptr),
        by_source_(plan.labor != Labor::kNone),
        allowed_(relation, plan.window, latest, excluded, scratch.listed),
        weighted_(relation.weights, scratch.weighted),
        labor_(relation, key, scratch.labor),
        picked_(&scratch.picked),
        lists_(scratch.lists),
        searches_(scratch.searches) {}

  void begin(int64_t count) {
    allowed_.clear();
    // It is never made shorter: a vector that grows again writes zeros first.
    if (lists_.size() < static_cast<size_t>(count)) lists_.resize(static_cast<size_t>(count));
  }

  // See PlainRule. Each step reads what the step before has prefetched for all targets.
  template <class TargetOf>
  void look_up(int64_t first, int64_t last, const TargetOf& target) {
    if (!timed()) return;
    for (int64_t i = first; i < last; ++i) {
      search(i) = allowed_.search(target(i));
      search(i).prefetch_ends();
    }
    for (int64_t i = first; i < last; ++i) search(i).guess();
    for (int64_t i = first; i < last; ++i) search(i).improve();
  }

  int64_t measure(int64_t i, Target target) {
    RuledList& list = lists_[static_cast<size_t>(i)];
    list.allowed = timed() ? allowed_.of(target, search(i).places()) : allowed_.of(target);
    Places& places = list.allowed.places;
    const int64_t fanout = fanout_.of(places.count());
    list.all = fanout == kAllNeighbours;
    if (list.all) return places.count();
    if (last_ && places.count() > fanout) places.begin = places.end - fanout;
    if (!weighted()) return picks_of(places.count(), fanout, replacement_);
    list.positives = list.allowed.listed
                         ? weighted_.positives(allowed_.listed() + places.begin, places.count())
                         : weighted_.positives(target.node, places);
    return picks_of(list.positives, fanout, replacement_);
  }

  // See PlainRule.
  void touch(int64_t i, int64_t picks) const {
    const RuledList& list = lists_[static_cast<size_t>(i)];
    if (list.allowed.listed || picks == 0) return;
    const Places places = list.allowed.places;
    if (draws(list, picks)) weighted_.touch(list.allowed.list, places);
    if (by_source_) return labor_.touch(places.begin, places.count());
    if (relation_.time.position) relation_.time.prefetch(places.begin);
    prefetch_line(&relation_.edges.indices[places.begin]);
  }

  bool guesses() const { return weighted() && !by_source_; }
  void guess(int64_t i, uint64_t node_key, int64_t picks, double* drawn, int64_t* place) const {
    const RuledList& list = lists_[static_cast<size_t>(i)];
    if (list.allowed.listed || picks == 0 || !draws(list, picks)) return;
    weighted_.guess(node_key, list.allowed.list, list.allowed.places, picks, drawn, place);
  }
  void improve(int64_t i, int64_t picks, const double* drawn, int64_t* place) const {
    const RuledList& list = lists_[static_cast<size_t>(i)];
    if (list.allowed.listed || picks == 0 || !draws(list, picks)) return;
    weighted_.improve(list.allowed.list, list.allowed.places, picks, drawn, place);
  }

  // See PlainRule.
  void choose(int64_t i, uint64_t node_key, int64_t picks, double* drawn, int64_t* place) {
    if (picks == 0) return;
    const RuledList& list = lists_[static_cast<size_t>(i)];
    if (by_source_ && picks < list.allowed.places.count()) {
      choose_by_source(list, picks, place);
    } else if (!list.all && weighted()) {
      choose_weighted(list, node_key, picks, drawn, place);
    } else {
      choose_uniform(list, node_key, picks, place);
    }
    if (!relation_.time.position) return prefetch_picks(relation_.edges.indices, place, picks);
    for (int64_t p = 0; picks <= kBlock && p < picks; ++p) relation_.time.prefetch(place[p]);
  }

  void settle(int64_t* place, int64_t count) const {
    if (!relation_.time.position) return;
    with_integers(relation_.time.position, [&](const auto* position) {
      settle_places(position, relation_.edges.indices, place, count);
    });
  }

 private:
  bool timed() const { return relation_.time.time != nullptr; }
  bool weighted() const { return relation_.weights.sum != nullptr; }
  TimeRange& search(int64_t i) { return searches_[static_cast<size_t>(i % kTargets)]; }

  // Returns whether picks are drawn by weight: not where everything is picked that may be.
  bool draws(const RuledList& list, int64_t picks) const {
    if (by_source_) return false;
    return weighted() && !list.all && (replacement_ == Replacement::kWith || picks < list.positives);
  }

  void choose_uniform(const RuledList& list, uint64_t node_key, int64_t picks, int64_t* out) const {
    const Places places = list.allowed.places;
    const Chooser choose(list.all ? kAllNeighbours : picks, replacement_, picked_);
    choose(node_key, places.begin, places.count(), out);
    if (!list.allowed.listed) return;
    const int64_t* listed = allowed_.listed();
    for (int64_t p = 0; p < picks; ++p) out[p] = listed[out[p]];
  }

  void choose_by_source(const RuledList& list, int64_t picks, int64_t* out) {
    const Places places = list.allowed.places;
    if (!list.allowed.listed && !weighted()) return labor_(places.begin, places.count(), picks, out);
    const int64_t* listed = list.allowed.listed ? allowed_.listed() + places.begin : nullptr;
    labor_.listed(listed, places.begin, places.count(), picks, out);
  }

  void choose_weighted(const RuledList& list, uint64_t node_key, int64_t picks, double* drawn, int64_t* out) {
    const Places places = list.allowed.places;
    const bool with = replacement_ == Replacement::kWith, all = !draws(list, picks);
    if (list.allowed.listed) {
      const int64_t *place = allowed_.listed() + places.begin, count = places.count();
      if (all) {
        weighted_.all_positive(place, count, out);
      } else if (with) {
        weighted_.with_replacement(node_key, place, count, picks, out);
      } else {
        weighted_.without_replacement(node_key, place, count, picks, out);
      }
    } else if (all) {
      weighted_.all_positive(places, picks, out);
    } else if (with) {
      weighted_.with_replacement(node_key, list.allowed.list, places, picks, drawn, out);
    } else {
      weighted_.without_replacement(node_key, list.allowed.list, places, picks, drawn, out);
    }
  }

  const Relation<Index>& relation_;
  const Fanout fanout_;
  const Replacement replacement_;
  const bool last_;
  const bool by_source_;
  AllowedEdges<Index> allowed_;
  WeightedChooser weighted_;
  LaborChooser<Index> labor_;
  NodeMap<uint64_t>* picked_;
  std::vector<RuledList>& lists_;
  std::array<TimeRange, kTargets>& searches_;
};

// Calls body with the rule of a relation in a hop. `latest` holds the time of each example's seed;
// it is read only where edges have times. `key` is that of the relation in the hop.
template <class Index, class Body>
auto with_rule(const Relation<Index>& relation, const Plan& plan, Fanout fanout, const int64_t* latest,
               ExcludedPairs excluded, uint64_t key, Scratch<Index>& scratch, const Body& body) {
  const bool full = fanout.share != 0.0 || relation.time.time != nullptr || relation.weights.sum != nullptr ||
                    !excluded.empty();
  if (full) {
    FullRule<Index> rule(relation, plan, fanout, latest, excluded, key, scratch);
    return body(rule);
  }
  PlainRule<Index> rule(relation, plan, fanout, key, scratch);
  return body(rule);
}

// The steps by which a rule measures lists and chooses from them. A step of all lists of a group
// comes before the next step of any, so that their cache misses overlap.

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

// The steps of choosing from a group, in order. key(i) and picks(i): of the i-th list.
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
