// Threads that exchange messages by turns, with two places for each message; test_sanitizers.py
// compiles it with sanitizers. The thread sanitizer sees whether turns order writes and reads.
#include <array>
#include <thread>
#include <vector>

#include "inputs.h"
#include "kernels/turns.h"

using namespace pyg_batchgnn;

namespace {

constexpr int64_t kRanks = 4, kNumbers = 9;
constexpr uint32_t kTurns = 3000, kFirst = ~uint32_t{0} - kTurns / 2;  // numbers start again midway

// What one rank writes and the others read.
struct Block {
  alignas(64) uint32_t word = kFirst;
  std::array<std::array<std::array<int64_t, kNumbers>, kRanks>, 2> messages{};
};

int64_t content(int64_t from, int64_t to, uint32_t turn, int64_t at) {
  return (((int64_t{turn} * kRanks + from) * kRanks) + to) * kNumbers + at;
}

void run(std::vector<Block>& blocks, int64_t rank, bool& right) {
  for (uint32_t step = 1; step <= kTurns; ++step) {
    const uint32_t turn = kFirst + step;
    auto& own = blocks[size(rank)].messages[turn % 2];
    for (int64_t to = 0; to < kRanks; ++to) {
      for (int64_t at = 0; at < kNumbers; ++at) own[size(to)][size(at)] = content(rank, to, turn, at);
    }
    announce_turn(&blocks[size(rank)].word, turn);
    for (int64_t from = 0; from < kRanks; ++from) {
      while (!wait_for_turn(&blocks[size(from)].word, turn, from == 0 ? 1e-5 : 10.0)) {
      }
      const auto& message = blocks[size(from)].messages[turn % 2][size(rank)];
      for (int64_t at = 0; at < kNumbers; ++at) right &= message[size(at)] == content(from, rank, turn, at);
    }
  }
}

}  // namespace

int main() {
  std::vector<Block> blocks(kRanks);
  std::array<bool, kRanks> right;
  right.fill(true);
  {
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] { run(blocks, rank, right[size(rank)]); });
    }
  }
  for (const bool one : right) {
    if (!one) return 1;
  }
  return done();
}
