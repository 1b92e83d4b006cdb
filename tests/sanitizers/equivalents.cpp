// Kernels beside a short obvious equivalent, on random numbers; test_sanitizers.py compiles it with
// sanitizers. They are graphs by destination and by source, the times that a seed allows, and the
// choice from one list.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "inputs.h"
#include "kernels/csc.h"
#include "kernels/sample/sample.h"

using namespace pyg_batchgnn;

namespace {

template <class T>
std::vector<T> some_below(int64_t count, int64_t n) {
  std::vector<T> values(size(count));
  for (T& value : values) value = static_cast<T>(below(n));
  return values;
}

// Returns the numbers begin to begin + count - 1, by a key of each, equal ones in their order.
template <class Key>
std::vector<int64_t> sorted(int64_t begin, int64_t count, const Key& key) {
  std::vector<int64_t> order(size(count));
  std::iota(order.begin(), order.end(), begin);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  return order;
}

// Checks the lists of nodes that edges lie in, by the node of each edge. Returns their order.
template <class Node>
std::vector<int64_t> expect_lists(const std::vector<int64_t>& ptr, const Node& node) {
  const std::vector<int64_t> order = sorted(0, ptr.back(), node);
  expect(ptr[0] == 0 && std::is_sorted(ptr.begin(), ptr.end()));
  for (int64_t at = 0; at < ptr.back(); ++at) {
    const size_t of = static_cast<size_t>(node(order[size(at)]));
    expect(ptr[of] <= at && at < ptr[of + 1]);
  }
  return order;
}

// An edge list to a graph by destination and by source.
template <class In, class Index, class Id>
void convert(int64_t nodes, int64_t edges) {
  const std::vector<In> from = some_below<In>(edges, nodes);
  std::vector<In> to = some_below<In>(edges, 1 + below(nodes));
  const bool is_sorted = below(3) == 0;
  if (is_sorted) std::sort(to.begin(), to.end());
  expect(scan_ascending(to.data(), edges) == std::is_sorted(to.begin(), to.end()));
  expect(extent(from.data(), edges, 2).high == (edges ? *std::max_element(from.begin(), from.end()) : -1));
  std::vector<int64_t> indptr(size(nodes + 1)), ptr(size(nodes + 1));
  std::vector<Index> indices(size(edges));
  std::vector<Id> ids(size(edges)), edge(size(edges));
  std::vector<int32_t> target(size(edges));
  count_destinations(to.data(), edges, nodes, indptr.data());
  fill_csc(from.data(), to.data(), edges, nodes, indptr.data(), indices.data(),
           is_sorted ? nullptr : ids.data());
  const auto end = [&](int64_t e) { return to[size(e)]; };
  const auto source = [&](int64_t e) { return indices[size(e)]; };
  expect(indptr.back() == edges);
  const std::vector<int64_t> into = expect_lists(indptr, end);
  for (size_t at = 0; at < into.size(); ++at) {
    expect(indices[at] == static_cast<Index>(from[size(into[at])]) && (is_sorted || ids[at] == into[at]));
  }
  transpose(indptr.data(), {indices.data(), sizeof(Index) == 8}, nodes, nodes, ptr.data(), target.data(),
            edge.data(), 1 + below(4));
  expect(ptr.back() == edges);
  const std::vector<int64_t> out_of = expect_lists(ptr, source);
  for (size_t at = 0; at < out_of.size(); ++at) {
    expect(edge[at] == out_of[at] && target[at] == end(into[size(out_of[at])]));
  }
}

void conversion(int64_t nodes, int64_t edges) {
  convert<int32_t, int32_t, int32_t>(nodes, edges);
  convert<int64_t, int32_t, int64_t>(nodes, edges);
  convert<int64_t, int64_t, int32_t>(nodes, edges);
}

// The choice from one list: times, uniform draws, shared words, weights.
void times() {
  const int64_t count = below(200), spread = 1 + below(200), latest = any_number();
  std::vector<int64_t> time(size(count));
  for (int64_t& one : time) one = below(4) ? std::max(latest, INT64_MIN + 200) - below(spread) : any_number();
  std::sort(time.begin(), time.end());
  const int64_t begin = below(count + 1), end = begin + below(count - begin + 1);
  const int64_t window = below(2) ? -1 : below(2) ? below(spread) : INT64_MAX;
  TimeRange range(time.data(), {begin, end}, latest, window);
  range.prefetch_ends();
  range.guess();
  range.improve();
  const Places found = range.places();
  for (int64_t at = begin; at < end; ++at) {
    const __int128 ago = static_cast<__int128>(latest) - time[size(at)];
    expect((found.begin <= at && at < found.end) == (ago >= 0 && (window < 0 || ago <= window)));
  }
}

void different(const std::vector<int64_t>& picked, int64_t begin, int64_t end, bool may_repeat) {
  for (const int64_t place : picked) expect(begin <= place && place < end);
  expect(may_repeat || std::set<int64_t>(picked.begin(), picked.end()).size() == picked.size());
}

template <class Index>
void shared_words(int64_t begin, int64_t count, int64_t picks, uint64_t key) {
  const std::vector<Index> sources = some_below<Index>(begin + count, 1 + below(3000));
  LaborScratch scratch;
  Relation<Index> relation;
  relation.edges.indices = sources.data();
  std::vector<int64_t> got(size(picks));
  LaborChooser<Index>(relation, key, scratch)(begin, count, picks, got.data());
  std::vector<int64_t> expected = sorted(
      begin, count, [&](int64_t at) { return source_word(key, static_cast<int64_t>(sources[size(at)])); });
  std::sort(expected.begin(), expected.begin() + picks);
  expect(std::equal(got.begin(), got.end(), expected.begin()));
}

void weights(int64_t list, int64_t count, uint64_t key) {
  const int64_t ptr[] = {0, list, list + count};
  std::vector<double> weight(size(list + count)), sum(weight.size());
  std::vector<int64_t> positive{0};
  const double some[] = {0.0, 1.0, 5e-324, 1e-300, 1e300, 0.1, 3.0, 1e-16};
  for (double& one : weight) {
    one = some[below(8)];
    positive.push_back(positive.back() + (one > 0 ? 1 : 0));
  }
  sum_lists(ptr, 2, weight.data(), sum.data());
  WeightedScratch scratch;
  WeightedChooser choose({sum.data(), weight.data(), positive.data()}, scratch);
  const Places places{list + below(count), list + count};
  const int64_t positives = choose.positives(1, places);
  const bool with = below(2);
  const int64_t picks = with ? below(100) : below(std::max<int64_t>(positives, 1));
  if (picks == 0 || positives == 0) return;
  std::vector<double> x(size(picks));
  std::vector<int64_t> out(size(picks));
  choose.touch(list, places);
  choose.guess(key, list, places, picks, x.data(), out.data());
  choose.improve(list, places, picks, x.data(), out.data());
  if (with) choose.with_replacement(key, list, places, picks, x.data(), out.data());
  if (!with) choose.without_replacement(key, list, places, picks, x.data(), out.data());
  different(out, places.begin, places.end, with);
  for (const int64_t place : out) expect(weight[size(place)] > 0);
}

void choices() {
  const uint64_t key = generator();
  const int64_t begin = below(200), count = 1 + below(700), picks = 1 + below(count);
  shared_words<int32_t>(begin, count, picks, key);
  shared_words<int64_t>(begin, count, picks, key);
  weights(begin, count, key);
  NodeMap<uint64_t> taken;
  for (const Replacement replacement : {Replacement::kWith, Replacement::kWithout}) {
    std::vector<int64_t> out(size(picks_of(count, picks, replacement)));
    Chooser(picks, replacement, &taken)(key, begin, count, out.data());
    different(out, begin, begin + count, replacement == Replacement::kWith);
  }
}

}  // namespace

int main() {
  for (int64_t round = 0; round < 300; ++round) {
    conversion(1 + below(70), below(300));
    times();
    choices();
  }
  convert<int64_t, int32_t, int32_t>(50'000, 300'000);  // by buckets
  return done();
}
