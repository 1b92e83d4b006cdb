// Kernels on inputs that libFuzzer chooses by the branches they reach, under the address and
// behaviour sanitizers: `make fuzz KERNELS=sampling SECONDS=60`.
//
// The random numbers from which the programs of tests/sanitizers make valid arguments are the bytes
// of an input. equivalents.cpp among them compares results with those of short obvious code.
#include <fuzzer/FuzzedDataProvider.h>

#include <map>
#include <random>

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
#include "equivalents.cpp"
#include "history.cpp"
#include "multilevel.cpp"
#include "partition.cpp"
#include "sampling.cpp"
#undef main

namespace {

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

// Many edges go through buckets, on several threads. `sampling` has all rules, over parts, and
// spoilt messages; `plain` one relation, with the distinct nodes of what is sampled.
const std::map<std::string, void (*)()> kKernels{
    {"aggregation", [] { round_of(1 + below(40), 40 + below(40), below(9), 1 + below(150)); }},
    {"buckets", [] { convert<int64_t, int32_t, int32_t>(1 + below(99'999), 262'144 + below(199'999)); }},
    {"choices", choices},
    {"conversion", [] { conversion(1 + below(70), below(300)); }},
    {"disk", disks},
    {"history", [] { histories(below(40), 1 + below(20), 1 + below(60)); }},
    {"messages", messages},
    {"multilevel", [] { multilevels(1 + below(100), below(300), 1 + below(9)); }},
    {"parts", [] { cuts(1 + below(40), 1 + below(40), below(100), below(2)); }},
    {"plain", [] { round_of<int32_t>(1 + below(100), below(400)); }},
    {"rows", [] { rows(1 + below(50), 1 + below(300)); }},
    {"sampling",
     [] { below(2) ? TypedRound<int64_t>(generator, 1).run() : TypedRound<int32_t>(generator, 1).run(); }},
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
