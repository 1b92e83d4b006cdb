// How fast this machine reads rows of a table in random order: the limit for aggregation over
// neighbours.
//
// usage: row_gather_limit THREADS ROWS:BYTES... Prints one JSON line: for every table the best
// rate, in bytes per second, over several prefetch distances.
//
// Tables lie on huge pages where the kernel gives them. A row is added into one row of sums that
// stays in cache, which is what an aggregation does with it; nothing is written. Indices are drawn
// before the clock starts.

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBytesRead = std::size_t{256} << 20;  // a thread and pass, about 20 ms
constexpr std::size_t kLine = 64;
constexpr int kRepeats = 3;

struct Table {
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  float* data = nullptr;

  std::size_t columns() const { return row_bytes / sizeof(float); }
  std::size_t bytes() const { return rows * row_bytes; }
};

// SplitMix64.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

std::vector<std::uint32_t> draw_indices(const Table& table, std::uint64_t seed) {
  std::vector<std::uint32_t> indices(std::max<std::size_t>(kBytesRead / table.row_bytes, 1));
  for (auto& index : indices) index = static_cast<std::uint32_t>(next_random(seed) % table.rows);
  return indices;
}

void prefetch_row(const Table& table, std::size_t row) {
  const char* begin = reinterpret_cast<const char*>(table.data) + row * table.row_bytes;
  for (std::size_t byte = 0; byte < table.row_bytes; byte += kLine) __builtin_prefetch(begin + byte);
  __builtin_prefetch(begin + table.row_bytes - 1);
}

// Sums of the rows `indices`, prefetching `ahead` of them.
void gather(const Table& table, const std::vector<std::uint32_t>& indices, std::size_t distance,
            std::vector<float>& sums) {
  const std::size_t columns = table.columns();
  float* __restrict sum = sums.data();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (distance > 0 && i + distance < indices.size()) prefetch_row(table, indices[i + distance]);
    const float* __restrict row = table.data + indices[i] * columns;
    for (std::size_t c = 0; c < columns; ++c) sum[c] += row[c];
  }
}

// Bytes per second of all threads together, wall time.
double bytes_per_second(const Table& table, const std::vector<std::vector<std::uint32_t>>& indices,
                        std::size_t distance) {
  std::vector<std::vector<float>> sums(indices.size(), std::vector<float>(table.columns(), 0.0f));
  std::vector<std::thread> workers;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t t = 0; t < indices.size(); ++t) {
    workers.emplace_back([&, t] { gather(table, indices[t], distance, sums[t]); });
  }
  for (auto& worker : workers) worker.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  volatile float kept = 0;  // the sums must not be optimised away
  for (const auto& sum : sums) kept = kept + sum[0];
  return static_cast<double>(indices.size() * indices[0].size() * table.row_bytes) / seconds.count();
}

void measure(Table table, unsigned threads, bool last) {
  const std::size_t mapped = (table.bytes() + (std::size_t{2} << 20) - 1) & ~((std::size_t{2} << 20) - 1);
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "cannot map %zu bytes\n", mapped);
    std::exit(1);
  }
  madvise(memory, mapped, MADV_HUGEPAGE);
  table.data = static_cast<float*>(memory);
  std::fill(table.data, table.data + table.bytes() / sizeof(float), 1.0f);
  std::vector<std::vector<std::uint32_t>> indices;
  for (unsigned t = 0; t < threads; ++t) indices.push_back(draw_indices(table, 1000 + t));

  double best = 0;
  std::size_t best_distance = 0;
  for (const std::size_t distance : {0, 2, 4, 8, 16, 32}) {
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const double rate = bytes_per_second(table, indices, distance);
      if (rate > best) best = rate, best_distance = distance;
    }
  }
  std::printf("{\"rows\": %zu, \"row_bytes\": %zu, \"bytes_per_second\": %.0f, \"prefetch_distance\": %zu}%s",
              table.rows, table.row_bytes, best, best_distance, last ? "" : ", ");
  munmap(memory, mapped);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: row_gather_limit THREADS ROWS:BYTES...\n");
    return 2;
  }
  const unsigned threads = static_cast<unsigned>(std::max(1, std::atoi(argv[1])));
  std::printf("[");
  for (int i = 2; i < argc; ++i) {
    Table table;
    if (std::sscanf(argv[i], "%zu:%zu", &table.rows, &table.row_bytes) != 2 || table.rows == 0 ||
        table.row_bytes == 0 || table.row_bytes % sizeof(float) != 0) {
      std::fprintf(stderr, "%s is not ROWS:BYTES with BYTES a multiple of 4\n", argv[i]);
      return 2;
    }
    measure(table, threads, i + 1 == argc);
  }
  std::printf("]\n");
  return 0;
}
