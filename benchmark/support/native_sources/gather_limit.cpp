// How many random 8-byte loads a second this machine does: the limit for any neighbour sampler.
//
// usage: gather_limit THREADS [MEBIBYTES] Prints one JSON line with the best rate over several
// prefetch distances.
//
// Each thread reads a table of MEBIBYTES (1 GiB unless told), on huge pages where the kernel gives
// them. The indices are drawn before the clock starts, few enough to stay in cache; every pass over
// them flips other bits of all, so that it reads other words at no cost. The loads are independent
// of each other; the best distance, 0 (no prefetch at all) included, is what the memory system
// gives at most.

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kIndices = 1 << 17;  // 512 KiB per thread
constexpr std::size_t kPasses = 256;       // 33.5 million loads, about 0.2 s
constexpr int kRepeats = 3;

// SplitMix64: one multiplication-based step, cheap beside a load that misses every cache.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

std::vector<std::uint32_t> draw_indices(std::uint64_t seed, std::uint32_t mask) {
  std::vector<std::uint32_t> indices(kIndices);
  for (auto& index : indices) index = static_cast<std::uint32_t>(next_random(seed)) & mask;
  return indices;
}

// Sum of table[index ^ flip] over all indices, prefetching `ahead` of them.
std::uint64_t gather(const std::uint64_t* table, const std::vector<std::uint32_t>& indices,
                     std::uint32_t flip, std::size_t distance) {
  std::uint64_t sum = 0;
  const std::size_t prefetched = distance == 0 ? 0 : kIndices - distance;
  for (std::size_t i = 0; i < prefetched; ++i) {
    __builtin_prefetch(&table[indices[i + distance] ^ flip]);
    sum += table[indices[i] ^ flip];
  }
  for (std::size_t i = prefetched; i < kIndices; ++i) sum += table[indices[i] ^ flip];
  return sum;
}

std::uint64_t all_passes(const std::uint64_t* table, const std::vector<std::uint32_t>& indices,
                         std::uint32_t mask, std::size_t distance) {
  std::uint64_t state = 7;
  std::uint64_t sum = 0;
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    sum += gather(table, indices, static_cast<std::uint32_t>(next_random(state)) & mask, distance);
  }
  return sum;
}

// Loads a second of all threads together, wall time.
double loads_per_second(const std::uint64_t* table, const std::vector<std::vector<std::uint32_t>>& indices,
                        std::uint32_t mask, std::size_t distance) {
  std::vector<std::uint64_t> sums(indices.size());
  std::vector<std::thread> workers;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t t = 0; t < indices.size(); ++t) {
    workers.emplace_back([&, t] { sums[t] = all_passes(table, indices[t], mask, distance); });
  }
  for (auto& worker : workers) worker.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  volatile std::uint64_t kept = 0;  // the sums must not be optimised away
  for (const auto sum : sums) kept = kept + sum;
  return static_cast<double>(indices.size() * kPasses * kIndices) / seconds.count();
}

// Bytes of this process on huge pages, as the kernel counts them.
std::size_t huge_page_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    if (word == "AnonHugePages:" && rollup >> word) return std::stoull(word) * 1024;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned threads = argc > 1 ? static_cast<unsigned>(std::max(1, std::atoi(argv[1]))) : 1;
  const std::size_t mebibytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024;
  unsigned bits = 17;  // 1 MiB of 8-byte words
  while (bits < 32 && (std::size_t{8} << (bits + 1)) <= mebibytes << 20) ++bits;
  const std::size_t words = std::size_t{1} << bits;

  void* memory = mmap(nullptr, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "cannot map %zu bytes\n", words * 8);
    return 1;
  }
  madvise(memory, words * 8, MADV_HUGEPAGE);
  auto* table = static_cast<std::uint64_t*>(memory);
  for (std::size_t i = 0; i < words; ++i) table[i] = i;
  const std::uint32_t mask = static_cast<std::uint32_t>(words - 1);
  std::vector<std::vector<std::uint32_t>> indices;
  for (unsigned t = 0; t < threads; ++t) indices.push_back(draw_indices(1000 + t, mask));

  double best = 0;
  std::size_t best_distance = 0;
  for (const std::size_t distance : {0, 8, 16, 32, 64, 128}) {
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const double rate = loads_per_second(table, indices, mask, distance);
      if (rate > best) best = rate, best_distance = distance;
    }
  }
  std::printf(
      "{\"threads\": %u, \"loads_per_second\": %.0f, \"prefetch_distance\": %zu, \"bytes\": %zu, "
      "\"huge_page_bytes\": %zu}\n",
      threads, best, best_distance, words * 8, huge_page_bytes());
  munmap(memory, words * 8);
  return 0;
}
