#include "kernels/partition/stream.h"

#include <algorithm>
#include <cmath>

#include "kernels/allocation.h"
#include "kernels/random.h"

namespace pyg_batchgnn {
namespace {

// The fullness of a part without and with the node: the largest over the loads that it adds to.
struct Fill {
  double now;
  double then;
};

Fill fill_of(const StreamRules& rules, const double* load, int64_t part, const int32_t* weight) {
  Fill fill{0, 0};
  for (int64_t k = 0; k < rules.loads; ++k) {
    if (weight[k] == 0) continue;
    const double has = load[k * rules.parts + part];
    fill.now = std::max(fill.now, has / rules.limit[k]);
    fill.then = std::max(fill.then, (has + weight[k]) / rules.limit[k]);
  }
  return fill;
}

double score_of(const StreamRules& rules, double neighbours, double fill) {
  if (rules.score == Score::kLdg) return neighbours * (1 - fill);
  return neighbours - rules.alpha * std::sqrt(fill);
}

// The parts that a node can be given to.
struct Choice {
  int64_t best;      // the best part with room; -1 if none has room
  int64_t emptiest;  // the least full part
};

// Among equals it takes the emptier one, then the first one from a start that depends on the node.
Choice choose_part(const StreamRules& rules, const double* load, const double* neighbours,
                   const int32_t* weight, int64_t start) {
  int64_t best = -1, emptiest = -1;
  double best_score = 0, best_fill = 0, least = 0;
  for (int64_t i = 0; i < rules.parts; ++i) {
    const int64_t part = start + i < rules.parts ? start + i : start + i - rules.parts;
    const Fill fill = fill_of(rules, load, part, weight);
    if (emptiest < 0 || fill.then < least) {
      emptiest = part;
      least = fill.then;
    }
    if (fill.then > 1) continue;
    const double score = score_of(rules, neighbours[part], fill.now);
    if (best < 0 || score > best_score || (score == best_score && fill.now < best_fill)) {
      best = part;
      best_score = score;
      best_fill = fill.now;
    }
  }
  return {best, emptiest};
}

void add(const StreamRules& rules, const int32_t* weight, int64_t part, double step, double* load) {
  for (int64_t k = 0; k < rules.loads; ++k) load[k * rules.parts + part] += step * weight[k];
}

}  // namespace

template <class Index>
void assign_nodes(const StreamSlice<Index>& slice, int64_t begin, int64_t end, const int32_t* found,
                  const StreamRules& rules, double* load) {
  Buffer<double> buffer;
  double* const neighbours = buffer.reserve(rules.parts);
  for (int64_t row = begin; row < end; ++row) {
    std::fill(neighbours, neighbours + rules.parts, 0.0);
    for (int64_t e = slice.indptr[row]; e < slice.indptr[row + 1]; ++e) {
      const int64_t at = static_cast<int64_t>(slice.indices[e]) - slice.first;
      const bool here = at >= 0 && at < slice.nodes;
      const int32_t owner = here ? slice.owner[at] : *found++;
      if (owner != kUnassigned && at != row) neighbours[owner] += 1;
    }
    const int32_t* const weight = slice.weight + row * rules.loads;
    const int32_t before = slice.owner[row];
    const bool mends = rules.pass == StreamPass::kMend;
    if (mends && fill_of(rules, load, before, weight).now <= 1) continue;
    const uint64_t word = fold(rules.key, static_cast<uint64_t>(slice.first + row));
    const auto start = static_cast<int64_t>(multiply_high(word, static_cast<uint64_t>(rules.parts)));
    const Choice choice = choose_part(rules, load, neighbours, weight, start);
    if (mends && choice.best < 0) continue;
    const int64_t part = choice.best < 0 ? choice.emptiest : choice.best;
    slice.owner[row] = static_cast<int32_t>(part);
    add(rules, weight, part, rules.step, load);
    if (mends) add(rules, weight, before, -rules.step, load);
  }
}

template void assign_nodes(const StreamSlice<int32_t>&, int64_t, int64_t, const int32_t*, const StreamRules&,
                           double*);
template void assign_nodes(const StreamSlice<int64_t>&, int64_t, int64_t, const int32_t*, const StreamRules&,
                           double*);

}  // namespace pyg_batchgnn
