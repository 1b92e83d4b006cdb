// Answers questions about the kernels that no graph can ask, one line each;
// tests/sample/test_kernels.py asks them.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "bindings/process_pool.h"
#include "kernels/random.h"
#include "kernels/sample/choose.h"
#include "kernels/sample/nodes.h"
#include "kernels/sample/temporal.h"
#include "kernels/simd/level.h"

using namespace pyg_batchgnn;

namespace {

template <class T>
T read() {
  T value;
  std::cin >> value;
  return value;
}

// key n count -> count bounded words
void bounded() {
  WordStream words(read<uint64_t>());
  const auto n = read<uint64_t>();
  for (auto count = read<int>(); count > 0; --count) std::cout << words.bounded(n) << ' ';
}

// n seed epoch position -> the value there
void permute() {
  const auto n = read<uint64_t>();
  const auto seed = read<uint64_t>();
  const KeyedPermutation permutation(n, seed, read<uint64_t>());
  std::cout << permutation(read<uint64_t>());
}

// key degree fanout with_replacement -> the picks
void choose() {
  static NodeMap<uint64_t> picked;
  const auto key = read<uint64_t>();
  const auto degree = read<int64_t>(), fanout = read<int64_t>();
  const auto replacement = read<int>() != 0 ? Replacement::kWith : Replacement::kWithout;
  std::vector<int64_t> out(static_cast<size_t>(picks_of(degree, fanout, replacement)) + 1);
  Chooser(fanout, replacement, &picked)(key, 0, degree, out.data());
  out.pop_back();
  for (const int64_t pick : out) std::cout << pick << ' ';
}

// count times latest window -> the begin and the end of the places that are allowed
void allowed() {
  std::vector<int64_t> time(read<size_t>());
  for (int64_t& one : time) one = read<int64_t>();
  const auto latest = read<int64_t>(), window = read<int64_t>();
  const Places list{0, static_cast<int64_t>(time.size())};
  TimeRange range(time.data(), list, latest, window);
  const Places found = range.places();
  range.prefetch_ends();
  for (const auto step : {&TimeRange::guess, &TimeRange::improve}) {
    (range.*step)();
    const Places again = range.places();
    if (again.begin != found.begin || again.end != found.end) std::cout << "changed ";
  }
  std::cout << found.begin << ' ' << found.end << ' ';
}

// ids minibatches jump -> whether a map that gives out 2^31 local ids and more stays right. Every
// minibatch maps `ids` ids in an order of its own; the last gets local id `jump`, so that the map
// counts on by that much.
void wrap() {
  NodeMap<uint32_t> map;
  const auto ids = read<uint32_t>();
  const auto minibatches = read<uint32_t>(), jump = read<uint32_t>();
  bool right = true;
  for (uint32_t minibatch = 0; minibatch < minibatches; ++minibatch) {
    map.begin();
    map.reserve(ids, static_cast<const int64_t*>(nullptr), 0);
    const auto id = [&](uint32_t i) { return (i * 7 + minibatch * 3) % (2 * ids); };
    const auto local = [&](uint32_t i) { return i + 1 == ids ? jump : i; };
    for (uint32_t i = 0; i < ids; ++i) right &= map.find_or_insert(id(i), local(i)) == local(i);
    for (uint32_t i = 0; i < ids; ++i) right &= map.find_or_insert(id(i), jump + 1) == local(i);
  }
  std::cout << right;
}

// forks -> how many children that were forked while a thread uses a pool of scratch memory wait
// forever for it.
void fork_pool() {
  const auto forks = read<int>();
  struct Object {
    int value = 0;
  };
  const auto use = [] { ++(*process_pool<Object>().borrow()).value; };
  use();
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) use();
  });
  int stuck = 0;
  for (int made = 0; made < forks && stuck < 3; ++made) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      use();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    stuck += status != 0;
  }
  stop = true;
  busy.join();
  std::cout << stuck;
}

// most intel unit -> the level of bfloat16 products that such a processor begins with
void level() {
  const auto most = static_cast<Bfloat16Level>(read<int>());
  const bool intel = read<int>() != 0;
  std::cout << static_cast<int>(default_bfloat16_level(most, intel, read<int>() != 0));
}

}  // namespace

int main() {
  for (std::string question; std::cin >> question; std::cout << '\n') {
    if (question == "bounded") bounded();
    if (question == "permute") permute();
    if (question == "choose") choose();
    if (question == "allowed") allowed();
    if (question == "wrap") wrap();
    if (question == "fork") fork_pool();
    if (question == "level") level();
  }
}
