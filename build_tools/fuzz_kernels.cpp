// Kernels on inputs that libFuzzer chooses by the branches they reach, under the address and
// behaviour sanitizers: `make fuzz KERNELS=sampling SECONDS=60`.
//
// The random numbers from which the programs of tests/sanitizers make valid arguments are the bytes
// of an input. Kernels with a short obvious equivalent are compared with it here.
#include <fuzzer/FuzzedDataProvider.h>

#include <map>
#include <random>
#include <set>

#define PYG_BATCHGNN_FUZZ
namespace pyg_batchgnn {

// The numbers that an input says, most of them small; then a sequence that follows from its length.
struct Random : std::mt19937_64 {
  explicit Random(uint64_t seed, FuzzedDataProvider* from = nullptr) : std::mt19937_64(seed), input(from) {}

  uint64_t operator()() {
    if (input == nullptr || input->remaining_bytes() == 0) return std::mt19937_64::operator()();
    const uint64_t first = input->ConsumeIntegral<uint8_t>();
    if (first < 192) return first;
    return first < 240 ? input->ConsumeIntegral<uint16_t>() : input->ConsumeIntegral<uint64_t>();
  }

  FuzzedDataProvider* input;
};

}  // namespace pyg_batchgnn

// The programs of tests/sanitizers, without their ends.
#define JOINED(name, number) name##number
#define NUMBERED(number) JOINED(unused, number)
#define main NUMBERED(__COUNTER__)
#define Graph WeighedGraph
#include "aggregation.cpp"
#undef Graph
#include "disk.cpp"
#include "embedding.cpp"
#include "history.cpp"
#include "multilevel.cpp"
#include "partition.cpp"
#include "sampling.cpp"
#undef main

namespace {

int64_t any_number() {
  const int64_t odd[] = {
      0, 1, -1, INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, int64_t{1} << 31, int64_t{1} << 52};
  return below(2) ? odd[below(9)] : static_cast<int64_t>(generator());
}

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

// Any words as questions to the owner of nodes.
template <class Index>
void ask(const QuestionShape& shape) {
  const Graph<Index> edges = random_graph<Index>(1 + below(20), below(60));
  const std::vector<int64_t> times(edges.indices.size());
  const Integers ids{edges.edge_ids.data(), false};
  TypedGraph<Index> graph{{edges.nodes}, {{{edges.indptr.data(), edges.indices.data(), ids, edges.nodes}}}};
  if (shape.timed) graph.relations[0].time = {times.data(), {}};
  const Parts<Index> parts(graph, 2, generator);
  std::vector<Index> words(size(below(40)));
  for (Index& word : words) word = static_cast<Index>(below(6) ? below(9) : any_number());
  std::vector<ReadBlock<Index>> blocks;
  const auto count = static_cast<int64_t>(words.size());
  if (read_blocks(words.data(), count, shape, &blocks) && count > 0) {
    int64_t total = 1;
    for (const ReadBlock<Index>& block : blocks)
      total += head_words<Index>(shape) + body_words<Index>(shape, block.size);
    expect(total == count);
  }
  Plan plan{{1 + below(4)}, static_cast<Replacement>(below(2)), true, 1, 2};
  const int64_t hop = below(2);  // behind the last one that of an induced subgraph
  if (hop == 1) plan.subgraph = Subgraph::kInduced;
  ObjectPool<Scratch<Index>> scratches;
  const Answers out =
      answer<Index>(parts.part(size(below(2))), plan, hop, {words.data(), {count}, shape}, 1, scratches);
  expect(out.fault || out.words_to.size() == 1);
}

void disks() {
  std::vector<char> content(50'001);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(mix(i));
  sweeps();
  if (below(2)) reads(content, static_cast<Mishap>(below(3)));
  if (below(8) == 0) a_cut_file(content);
}

void histories(int64_t lines, int64_t own, int64_t nodes) {
  caches(lines, int64_t{1} << (7 + below(2)), nodes);
  layers(below(50), own, below(20), below(2) == 0);
  pushes(nodes, below(200), 1 + below(5), below(2) ? kPushAll : below(30));
}

void messages(bool disjoint, bool timed, bool excludes) {
  ask<int32_t>({1, disjoint, disjoint && timed, excludes});
  ask<int64_t>({1, disjoint, disjoint && timed, excludes});
}

void multilevels(int64_t nodes, int64_t edges, int64_t parts) {
  solves(nodes, edges, parts, 1 + below(3), below(2) == 0);
  share<int32_t, int64_t>(nodes, nodes, 3 * nodes, edges, parts);
  share<int64_t, int32_t>(0, nodes, 2 * nodes, edges, parts);
}

void cuts(int64_t parts, int64_t nodes, int64_t edges, bool spoilt) {
  groups<int32_t>(below(300), parts);
  groups<int64_t>(below(300), parts);
  lists<int32_t, int32_t, int32_t>(below(1000), nodes, edges, spoilt);
  lists<int64_t, int64_t, int64_t>(below(2) << 40, nodes, edges, spoilt);
  stream<int32_t>(3 * nodes, edges, parts, static_cast<Score>(below(2)));
}

void rows(int64_t rows, int64_t columns) {
  gather(rows, columns, below(200));
  decode(rows, columns, below(200), below(2) ? Element::kFloat32 : Element::kBFloat16);
  below(2) ? all<float>(rows, columns) : all<double>(rows, columns);
}

void typed(bool wide) {
  wide ? TypedRound<int64_t>(generator, 1).run() : TypedRound<int32_t>(generator, 1).run();
}

// Many edges go through buckets, on several threads. `sampling` has all rules, over parts, and
// spoilt messages; `plain` one relation, with the distinct nodes of what is sampled.
const std::map<std::string, void (*)()> kKernels{
    {"aggregation", [] { round_of(1 + below(40), 40 + below(40), below(9), 1 + below(150)); }},
    {"buckets", [] { convert<int64_t, int32_t, int32_t>(1 + below(99'999), 262'144 + below(199'999)); }},
    {"choices", choices},
    {"conversion", [] { conversion(1 + below(70), below(300)); }},
    {"disk", disks},
    {"history", [] { histories(below(40), 1 + below(20), 1 + below(60)); }},
    {"messages", [] { messages(below(2), below(2), below(2)); }},
    {"multilevel", [] { multilevels(1 + below(100), below(300), 1 + below(9)); }},
    {"parts", [] { cuts(1 + below(40), 1 + below(40), below(100), below(2)); }},
    {"plain", [] { round_of<int32_t>(1 + below(100), below(400)); }},
    {"rows", [] { rows(1 + below(50), 1 + below(300)); }},
    {"sampling", [] { typed(below(2)); }},
    {"times", times},
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // One thread takes all slots in turn: inputs do the same each time, and no thread is started.
  offer_thread_pool([](int64_t slots, void (*work)(void*, int64_t), void* context) {
    for (int64_t slot = 0; slot < slots; ++slot) work(context, slot);
    return true;
  });
  const char* const name = std::getenv("KERNELS");
  if (name != nullptr && kKernels.contains(name)) return 0;
  for (const auto& [one, _] : kKernels) std::cerr << one << ' ';
  std::cerr << "\nset KERNELS to one of these" << std::endl;
  std::exit(1);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static void (*const target)() = kKernels.at(std::getenv("KERNELS"));
  FuzzedDataProvider input(data, size);
  generator = Random(size, &input);
  target();
  return 0;
}
