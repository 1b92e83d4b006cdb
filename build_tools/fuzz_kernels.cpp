// Kernels on inputs that libFuzzer chooses by the branches they reach, under the address and
// behaviour sanitizers: `make fuzz KERNELS=sampling SECONDS=60`.
//
// The random numbers from which the programs of tests/sanitizers make valid arguments are the bytes
// of an input. Kernels with a short obvious equivalent are compared with it here.
#include <cerrno>
#include <cstdio>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "kernels/random.h"

#define PYG_BATCHGNN_FUZZ
namespace pyg_batchgnn {

// The numbers that an input says, most of them small; then a sequence that follows from its length.
class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint64_t seed) : behind_(seed) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }

  Random(const uint8_t* data, size_t size) : next_(data), left_(size), behind_(size) {}
  uint64_t operator()() {
    if (left_ == 0) return mix(behind_ += kGamma);
    const uint64_t first = bytes(1);
    return first < 192 ? first : bytes(first < 240 ? 2 : 8);
  }

 private:
  uint64_t bytes(size_t count) {
    uint64_t value = 0;
    for (; count > 0 && left_ > 0; --count, --left_) value = value << 8 | *next_++;
    return value;
  }

  const uint8_t* next_ = nullptr;
  size_t left_ = 0;
  uint64_t behind_;
};

}  // namespace pyg_batchgnn

#include "typed.h"

// The programs of tests/sanitizers, each in a namespace of its own. Their headers come before.
#include "kernels/disk/read.h"
#include "kernels/disk/sweep.h"
#include "kernels/embedding.h"
#include "kernels/gather.h"
#include "kernels/history.h"
#include "kernels/nn/aggregate.h"
#include "kernels/node_set.h"
#include "kernels/partition/lists.h"
#include "kernels/partition/multilevel/coarsen.h"
#include "kernels/partition/multilevel/refine.h"
#include "kernels/partition/multilevel/solve.h"
#include "kernels/partition/stream.h"
#define main unused
namespace aggregation {
#include "aggregation.cpp"
}
namespace disk {
#include "disk.cpp"
}
namespace embedding {
#include "embedding.cpp"
}
namespace history {
#include "history.cpp"
}
namespace multilevel {
#include "multilevel.cpp"
}
namespace partition {
#include "partition.cpp"
}
namespace tables {
#include "sampling.cpp"
}
#undef main

using namespace pyg_batchgnn;

namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(),
                  kHighest = std::numeric_limits<int64_t>::max();

int64_t any_number() {
  const int64_t odd[] = {
      0, 1, -1, kLowest, kLowest + 1, kHighest, kHighest - 1, int64_t{1} << 31, int64_t{1} << 52};
  return below(2) ? odd[below(9)] : static_cast<int64_t>(generator());
}

template <class T>
std::vector<T> some_below(int64_t count, int64_t n) {
  std::vector<T> values(size(count));
  for (T& value : values) value = static_cast<T>(below(n));
  return values;
}

// An edge list to a graph by destination and by source.
template <class In, class Index, class Id>
void convert(int64_t nodes, int64_t edges) {
  const std::vector<In> from = some_below<In>(edges, nodes);
  std::vector<In> to = some_below<In>(edges, 1 + below(nodes));
  std::vector<std::vector<int64_t>> into(size(nodes)), out_of(size(nodes));
  const bool sorted = below(3) == 0;
  if (sorted) std::sort(to.begin(), to.end());
  expect(scan_ascending(to.data(), edges) == std::is_sorted(to.begin(), to.end()));
  const Extent found = extent(from.data(), edges, 2);
  expect(edges == 0 ? found.high == -1 : found.high == *std::max_element(from.begin(), from.end()));
  for (int64_t e = 0; e < edges; ++e) into[size(to[size(e)])].push_back(e);
  std::vector<int64_t> indptr(size(nodes + 1)), ptr(size(nodes + 1));
  std::vector<Index> indices(size(edges));
  std::vector<Id> ids(size(edges)), edge(size(edges));
  std::vector<int32_t> target(size(edges));
  count_destinations(to.data(), edges, nodes, indptr.data());
  fill_csc(from.data(), to.data(), edges, nodes, indptr.data(), indices.data(),
           sorted ? nullptr : ids.data());
  int64_t at = 0;
  for (int64_t v = 0; v < nodes; ++v) {
    expect(indptr[size(v)] == at);
    for (const int64_t e : into[size(v)]) {
      expect(indices[size(at)] == static_cast<Index>(from[size(e)]) && (sorted || ids[size(at)] == e));
      out_of[size(from[size(e)])].push_back(at++);
    }
  }
  transpose(indptr.data(), {indices.data(), sizeof(Index) == 8}, nodes, nodes, ptr.data(), target.data(),
            edge.data(), 1 + below(4));
  at = 0;
  for (int64_t v = 0; v < nodes; ++v) {
    expect(ptr[size(v)] == at);
    for (const int64_t e : out_of[size(v)]) {
      const int64_t of = target[size(at)];
      expect(edge[size(at++)] == e && indptr[size(of)] <= e && e < indptr[size(of + 1)]);
    }
  }
}

// Many edges go through buckets, on several threads.
void conversion() {
  const int64_t nodes = 1 + below(70), edges = below(300);
  convert<int32_t, int32_t, int32_t>(nodes, edges);
  convert<int64_t, int32_t, int64_t>(nodes, edges);
  convert<int64_t, int64_t, int32_t>(nodes, edges);
}
void buckets() { convert<int64_t, int32_t, int32_t>(1 + below(100'000), 262'144 + below(200'000)); }

// The choice from one list: times, uniform draws, shared words, weights.
void times() {
  const int64_t count = below(200), spread = 1 + below(200), latest = any_number();
  std::vector<int64_t> time(size(count));
  for (int64_t& one : time) one = below(4) ? std::max(latest, kLowest + 200) - below(spread) : any_number();
  std::sort(time.begin(), time.end());
  const int64_t begin = below(count + 1), end = begin + below(count - begin + 1);
  const int64_t window = below(2) ? -1 : below(2) ? below(spread) : kHighest;
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
  std::vector<int64_t> expected(size(count)), got(size(picks));
  std::iota(expected.begin(), expected.end(), begin);
  const auto word = [&](int64_t at) { return source_word(key, static_cast<int64_t>(sources[size(at)])); };
  std::stable_sort(expected.begin(), expected.end(), [&](int64_t a, int64_t b) { return word(a) < word(b); });
  std::sort(expected.begin(), expected.begin() + picks);
  LaborChooser<Index>(relation, key, scratch)(begin, count, picks, got.data());
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
  for (const bool with : {true, false}) {
    const int64_t picks = with ? below(100) : below(std::max<int64_t>(positives, 1));
    if (picks == 0 || positives == 0) continue;
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
  const tables::Graph<Index> edges = tables::random_graph<Index>(1 + below(20), below(60));
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

void messages() {
  const bool disjoint = below(2);
  const QuestionShape shape{1, disjoint, disjoint && below(2), below(2) == 0};
  ask<int32_t>(shape);
  ask<int64_t>(shape);
}

void parts() {
  const int64_t parts = 1 + below(40), nodes = 1 + below(40), edges = below(100);
  partition::groups<int32_t>(below(300), parts);
  partition::groups<int64_t>(below(300), parts);
  const bool spoilt = below(2) == 0;
  partition::lists<int32_t, int32_t, int32_t>(below(1000), nodes, edges, spoilt);
  partition::lists<int64_t, int64_t, int64_t>(below(2) << 40, nodes, edges, spoilt);
  partition::stream<int32_t>(3 * nodes, edges, parts, static_cast<Score>(below(2)));
}

void multilevels() {
  const int64_t nodes = 1 + below(100), edges = below(300), parts = 1 + below(9);
  multilevel::solves(nodes, edges, parts, 1 + below(3), below(2) == 0);
  multilevel::share<int32_t, int64_t>(nodes, nodes, 3 * nodes, edges, parts);
  multilevel::share<int64_t, int32_t>(0, nodes, 2 * nodes, edges, parts);
}

void histories() {
  const int64_t lines = below(40), own = 1 + below(20), nodes = 1 + below(60);
  history::caches(lines, int64_t{1} << (7 + below(2)), nodes);
  history::layers(below(50), own, below(20), below(2) == 0);
  history::pushes(nodes, below(200), 1 + below(5), below(2) ? kPushAll : below(30));
}

void disks() {
  static const std::vector<char> content = [] {
    std::vector<char> bytes(50'001);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(mix(i));
    return bytes;
  }();
  disk::sweeps();
  if (below(2)) disk::reads(content, static_cast<disk::Mishap>(below(3)));
  if (below(8) == 0) disk::a_cut_file(content);
}

void rows() {
  const int64_t rows = 1 + below(50), columns = 1 + below(300);
  tables::gather(rows, columns, below(200));
  tables::decode(rows, columns, below(200), below(2) ? Element::kFloat32 : Element::kBFloat16);
  below(2) ? embedding::all<float>(rows, columns) : embedding::all<double>(rows, columns);
}

void sums() {
  const int64_t targets = 1 + below(40);
  aggregation::round_of(targets, targets + below(40), below(9), 1 + below(150));
}

// All rules of sampling, over parts, and with spoilt messages.
void sampling() {
  below(2) ? TypedRound<int32_t>(generator, 1).run() : TypedRound<int64_t>(generator, 1).run();
}

// Sampling of one relation, with the distinct nodes of what is sampled.
void plain() { tables::round_of<int32_t>(1 + below(100), below(400)); }

const std::map<std::string, void (*)()> kKernels{
    {"aggregation", sums}, {"buckets", buckets},   {"choices", choices},   {"conversion", conversion},
    {"disk", disks},       {"history", histories}, {"messages", messages}, {"multilevel", multilevels},
    {"parts", parts},      {"plain", plain},       {"rows", rows},         {"sampling", sampling},
    {"times", times},
};

void (*target)() = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("KERNELS");
  if (name == nullptr || !kKernels.contains(name)) {
    for (const auto& [one, _] : kKernels) std::cerr << one << ' ';
    std::cerr << "\nset KERNELS to one of these" << std::endl;
    std::exit(1);
  }
  target = kKernels.at(name);
  // One thread takes all slots in turn: inputs do the same each time, and no thread is started.
  offer_thread_pool([](int64_t slots, void (*work)(void*, int64_t), void* context) {
    for (int64_t slot = 0; slot < slots; ++slot) work(context, slot);
    return true;
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  generator = Random(data, size);
  target();
  return 0;
}
