// What the partitioner asks for, on random edges; test_sanitizers.py compiles it with sanitizers.
// Arrays are exactly as long as they must be, and what does not fit is among what is asked.
#include <algorithm>
#include <vector>

#include "inputs.h"
#include "kernels/parallel.h"
#include "kernels/partition/lists.h"
#include "kernels/partition/stream.h"

using namespace pyg_batchgnn;

namespace {

template <class Value>
void groups(int64_t count, int64_t parts) {
  std::vector<int64_t> bounds(size(parts + 1)), counts(size(parts));
  for (int64_t& bound : bounds) bound = below(1000);
  std::sort(bounds.begin(), bounds.end());
  std::vector<Value> values(size(count));
  for (Value& value : values) value = static_cast<Value>(below(1200) - 100);
  std::vector<int32_t> group(size(count)), order(size(count));
  find_groups(values.data(), count, bounds.data(), parts, group.data());
  std::vector<Value> owner(group.begin(), group.end());
  if (group_rows(owner.data(), count, parts, order.data(), counts.data())) return;
  result(order);
  for (int64_t i = 1; i < count; ++i) {
    const int32_t before = order[size(i - 1)], row = order[size(i)];
    const int32_t a = group[size(before)], b = group[size(row)];
    expect(a < b || (a == b && before < row));
  }
}

// Edges to the nodes [first, first + nodes), in rows of destination, source and id; `spoilt` ones
// go elsewhere.
template <class Word, class Index, class EdgeId>
void lists(int64_t first, int64_t nodes, int64_t edges, bool spoilt) {
  std::vector<Word> rows(size(3 * edges));
  std::vector<Word> destinations(size(edges));
  for (int64_t e = 0; e < edges; ++e) {
    destinations[size(e)] = static_cast<Word>(first + below(nodes));
    if (spoilt && below(50) == 0)
      destinations[size(e)] = static_cast<Word>(below(2) ? first + nodes : first - 1);
    rows[size(3 * e)] = destinations[size(e)];
    rows[size(3 * e + 1)] = static_cast<Word>(below(1 << 20));
    rows[size(3 * e + 2)] = static_cast<Word>(e);
  }
  std::vector<int64_t> counts(size(nodes)), cursor(size(nodes));
  const bool counted = count_values(destinations.data(), edges, first, nodes, counts.data());
  for (int64_t v = 1; v < nodes; ++v) cursor[size(v)] = cursor[size(v - 1)] + counts[size(v - 1)];
  const int64_t places = spoilt ? std::max<int64_t>(edges - 3, 0) : edges;
  std::vector<Index> indices(size(places));
  std::vector<EdgeId> ids(size(places));
  const GrowingLists<Index, EdgeId> growing{first, nodes, places, cursor.data(), indices.data(), ids.data()};
  const bool placed = append_edges(rows.data(), edges, 3, growing);
  expect(spoilt || (counted && placed));
}

// Slices of one graph, whose nodes are assigned by ranks that do not see each other's, on a thread
// each.
template <class Index>
void stream(int64_t nodes, int64_t edges, int64_t parts, Score score) {
  constexpr int64_t kRanks = 3;
  const int64_t each = nodes / kRanks;
  std::vector<std::vector<int64_t>> indptr(kRanks);
  std::vector<std::vector<Index>> indices(kRanks);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    indptr[size(rank)].push_back(0);
    for (int64_t v = 0; v < each; ++v) {
      for (int64_t e = below(2 * edges / nodes + 1); e > 0; --e) {
        indices[size(rank)].push_back(static_cast<Index>(below(nodes)));
      }
      indptr[size(rank)].push_back(static_cast<int64_t>(indices[size(rank)].size()));
    }
  }
  run_tasks(kRanks, kRanks, [&](int64_t rank, int64_t) {
    const std::vector<Index>& sources = indices[size(rank)];
    const int64_t first = rank * each;
    const auto outside = std::count_if(sources.begin(), sources.end(), [&](Index source) {
      return source < first || source >= first + each;
    });
    std::vector<int32_t> owner(size(each), kUnassigned), found(size(outside), kUnassigned);
    for (size_t i = 0; i < found.size(); i += 2)
      found[i] = static_cast<int32_t>(i) % static_cast<int32_t>(parts);
    constexpr int64_t kLoads = 2;
    std::vector<int32_t> weight(size(each * kLoads), 1);
    for (size_t v = 0; v < weight.size(); v += 3) weight[v] = 0;
    std::vector<double> load(size(kLoads * parts));
    const auto share = static_cast<double>(each) / static_cast<double>(parts);
    const std::vector<double> limit{share, share / 2};
    StreamRules rules{score, StreamPass::kAssign, parts, kLoads, limit.data(), 0.5, kRanks, 11};
    const StreamSlice<Index> slice{first,          each,          indptr[size(rank)].data(),
                                   sources.data(), weight.data(), owner.data()};
    assign_nodes(slice, 0, each, found.data(), rules, load.data());
    rules.pass = StreamPass::kMend;
    assign_nodes(slice, 0, each, found.data(), rules, load.data());
    result(owner);
    for (const int32_t part : owner) expect(part >= 0 && part < parts);
  });
}

}  // namespace

int main() {
  for (const int64_t count : {0, 1, 1000}) {
    for (const int64_t parts : {1, 3, 16, 40}) {
      groups<int32_t>(count, parts);
      groups<int64_t>(count, parts);
    }
  }
  for (const bool spoilt : {false, true}) {
    for (const int64_t edges : {0, 1, 15, 33, 2000}) {
      lists<int32_t, int32_t, int32_t>(100, 30, edges, spoilt);
      lists<int64_t, int32_t, int64_t>(0, 30, edges, spoilt);
      lists<int64_t, int64_t, int32_t>(int64_t{1} << 40, 7, edges, spoilt);
      lists<int64_t, int64_t, int64_t>(5, 1, edges, spoilt);
    }
  }
  for (const int64_t parts : {1, 2, 7, 33}) {
    for (const Score score : {Score::kLdg, Score::kFennel}) {
      stream<int32_t>(300, 3000, parts, score);
      stream<int64_t>(30, 0, parts, score);
    }
  }
  return done();
}
