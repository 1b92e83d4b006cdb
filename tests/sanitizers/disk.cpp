// Reads random rows of files that are memory, some of which fail, and follows sweeps over files;
// test_sanitizers.py compiles it with sanitizers. Reads of a true file go through the system's
// queue and through threads.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <vector>

#include "inputs.h"
#include "kernels/disk/file.h"
#include "kernels/disk/read.h"
#include "kernels/disk/runs.h"
#include "kernels/disk/sweep.h"
#include "kernels/gather.h"

using namespace pyg_batchgnn;

namespace {

// What happens to requests, besides being answered.
enum class Mishap { kNone, kShort, kBroken };

// The bytes of a file, and the byte whose block cannot be read.
struct Memory {
  const std::vector<char>& content;
  Mishap fault = Mishap::kNone;
  int64_t broken = 0;

  // `luck` draws what happens.
  int64_t read(char* to, int64_t bytes, int64_t offset, uint64_t luck) const {
    if (fault != Mishap::kNone && luck % 5 == 0) return luck % 2 ? -EINTR : -EAGAIN;
    if (fault == Mishap::kBroken && offset <= broken && broken < offset + bytes) return -EIO;
    const int64_t there = static_cast<int64_t>(content.size()) - offset;
    int64_t found = std::clamp<int64_t>(there, 0, bytes);
    if (fault == Mishap::kShort) {  // but never less than the largest block
      found = std::min(found, std::max<int64_t>(1024, found - static_cast<int64_t>(luck % 1000)));
    }
    if (found > 0) std::copy_n(content.data() + offset, found, to);
    return found;
  }
};

class MemoryFile final : public PlainFile {
 public:
  explicit MemoryFile(const Memory& memory) : memory_(memory) {}
  int64_t read(char* to, int64_t bytes, int64_t offset) override {
    return memory_.read(to, bytes, offset, luck_.fetch_add(0x9E3779B9) >> 7);
  }

 private:
  const Memory memory_;
  std::atomic<uint64_t> luck_{1};
};

// Ends requests in a random order.
class MemoryQueue final : public ReadQueue {
 public:
  explicit MemoryQueue(const Memory& memory) : memory_(memory) {}
  void start(int64_t slot, char* to, int64_t bytes, int64_t offset) override {
    requests_.push_back({slot, to, bytes, offset});
  }
  ReadEnd wait() override {
    expect(!requests_.empty());
    std::swap(requests_.front(), requests_[size(below(static_cast<int64_t>(requests_.size())))]);
    const Request one = requests_.front();
    requests_.pop_front();
    return {one.slot, memory_.read(one.to, one.bytes, one.offset, generator() >> 9)};
  }

 private:
  struct Request {
    int64_t slot;
    char* to;
    int64_t bytes, offset;
  };
  const Memory memory_;
  std::deque<Request> requests_;
};

struct Case {
  std::vector<int64_t> row, place;
  FileRows rows;
  RunRules rules;
  int64_t depth;
};

Case a_case(int64_t bytes) {
  Case made;
  const int64_t row_bytes = 1 + below(below(2) ? 40 : 3000), offset = below(2000);
  const int64_t rows = (bytes - offset) / row_bytes, count = below(60);
  for (int64_t i = 0; i < count; ++i) {
    made.row.push_back(below(rows));
    made.place.push_back(i);
  }
  std::sort(made.row.begin(), made.row.end());
  std::shuffle(made.place.begin(), made.place.end(), generator);
  const int64_t block = below(2) ? 512 : 1024;
  made.rows = {offset, row_bytes, made.row.data(), count};
  made.rules = {block, below(2) * below(20'000), block * (1 + below(6))};
  made.depth = 1 + below(6);
  return made;
}

void check(const Case& one, const std::vector<char>& content, const std::vector<char>& out) {
  const int64_t bytes = one.rows.row_bytes;
  for (int64_t i = 0; i < one.rows.count; ++i) {
    const auto begin = out.begin() + one.place[size(i)] * bytes;
    expect(std::equal(begin, begin + bytes, content.begin() + one.rows.begin(i)));
  }
}

void reads(const std::vector<char>& content, Mishap fault) {
  Case one = a_case(static_cast<int64_t>(content.size()));
  const Memory memory{content, fault, below(static_cast<int64_t>(content.size()))};
  for (const bool by_queue : {true, false}) {
    std::vector<char> out(size(one.rows.count * one.rows.row_bytes));
    const RowPlaces places{out.data(), one.place.data()};
    MemoryQueue queue(memory);
    MemoryFile file(memory);
    const ReadResult found = by_queue ? read_rows(queue, one.depth, one.rows, one.rules, places)
                                      : read_rows(file, one.depth, one.rows, one.rules, places);
    if (fault == Mishap::kBroken && found.error != 0) {
      expect(found.error == EIO && found.error_at <= memory.broken);
      expect(memory.broken < found.error_at + one.rules.largest);
    } else {
      expect(found.error == 0);
      check(one, content, out);
      if (fault == Mishap::kNone) result(out);
    }
  }
}

void a_cut_file(std::vector<char> content) {
  Case one = a_case(static_cast<int64_t>(content.size()));
  one.row.push_back((static_cast<int64_t>(content.size()) - one.rows.offset) / one.rows.row_bytes - 1);
  one.place.push_back(one.rows.count++);
  one.rows.row = one.row.data();
  const auto half = static_cast<int64_t>(content.size() / 2);
  std::vector<char> out(size(one.rows.count * one.rows.row_bytes));
  content.resize(size(half));
  MemoryQueue queue({content, Mishap::kShort});
  const ReadResult found = read_rows(queue, one.depth, one.rows, one.rules, {out.data(), one.place.data()});
  expect(found.error == kFileEnds && found.error_at >= half);
}

void a_true_file(const std::vector<char>& content) {
  std::FILE* stream = std::tmpfile();
  expect(stream != nullptr);
  expect(std::fwrite(content.data(), 1, content.size(), stream) == content.size());
  std::fflush(stream);
  const int file = fileno(stream);
  const int64_t block = direct_block(file);
  expect(block == 0 || block >= 512);
  for (int round = 0; round < 20; ++round) {
    const Case one = a_case(static_cast<int64_t>(content.size()));
    for (const bool by_queue : {true, false}) {
      std::vector<char> out(size(one.rows.count * one.rows.row_bytes));
      const RowPlaces places{out.data(), one.place.data()};
      const auto queue = by_queue ? read_queue(file, one.depth) : nullptr;
      const ReadResult found = queue != nullptr
                                   ? read_rows(*queue, one.depth, one.rows, one.rules, places)
                                   : read_rows(*plain_file(file), one.depth, one.rows, one.rules, places);
      expect(found.error == 0);
      check(one, content, out);
      result(out);
    }
  }
  std::fclose(stream);
}

// A unit of a sequence, and the slots where its rows lie.
struct Unit {
  std::vector<int64_t> row;
  std::vector<int32_t> following;
  std::vector<int64_t> slot;

  UnitRows rows() const { return {row.data(), following.data(), static_cast<int64_t>(row.size())}; }
};

std::vector<Unit> some_units(int64_t rows) {
  std::vector<Unit> units(size(1 + below(12)));
  for (Unit& unit : units) {
    for (int64_t row = 0; row < rows; ++row) {
      if (below(4) == 0) unit.row.push_back(row);
    }
  }
  return units;
}

// Fills the next uses of units that begin with `number`. Returns the first use of each row.
std::vector<int32_t> uses(std::vector<Unit>& units, int64_t rows, int32_t number) {
  std::vector<int32_t> use(size(rows), kNever);
  for (size_t at = units.size(); at-- > 0;) {
    const std::vector<int64_t>& row = units[at].row;
    units[at].following.resize(row.size());
    note_use(use.data(), row.data(), static_cast<int64_t>(row.size()), number + static_cast<int32_t>(at),
             units[at].following.data());
  }
  return use;
}

void move(const Reading& reading, const std::vector<int64_t>& file, std::vector<int64_t>& memory) {
  move_rows(reinterpret_cast<const char*>(file.data()), reading.rows.data(),
            reinterpret_cast<char*>(memory.data()), reading.slots.data(), reading.count, sizeof(int64_t), 2);
}

// Follows a sweep over some sequences of units. The last unit before one may be in use.
void sweeps() {
  const int64_t rows = 1 + below(200), capacity = below(rows + 1);
  std::vector<int32_t> slot(size(rows), kNoSlot);
  std::vector<int64_t> memory(size(capacity), -1), file(size(rows));
  for (int64_t row = 0; row < rows; ++row) file[size(row)] = row;
  Sweep sweep(capacity);
  int32_t number = 0;
  std::deque<Unit> in_use;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<Unit> units = some_units(rows);
    std::vector<int32_t> next = uses(units, rows, number);
    const RowStates states{next.data(), slot.data(), rows};
    in_use.clear();
    sweep.begin(states, number, static_cast<int32_t>(1 + below(9)), {});
    for (Unit& unit : units) {
      if (in_use.size() == 2) {
        sweep.retire(in_use.front().rows(), number - 1);
        in_use.pop_front();
      }
      const Reading reading = sweep.prepare(states, unit.rows(), number++);
      move(reading, file, memory);
      for (const Unit& before : in_use) {
        for (size_t i = 0; i < before.slot.size(); ++i) expect(memory[size(before.slot[i])] == before.row[i]);
      }
      if (reading.fits) {
        for (size_t i = 0; i < unit.row.size(); ++i) {
          unit.slot.push_back(reading.unit.data()[i]);
          expect(memory[size(unit.slot[i])] == unit.row[i]);
        }
        in_use.push_back(unit);
      }
      result(reading.rows.data(), reading.count);
    }
  }
}

}  // namespace

int main() {
  std::vector<char> content(50'001);
  for (char& one : content) one = static_cast<char>(below(256));
  for (int round = 0; round < 200; ++round) {
    for (const Mishap fault : {Mishap::kNone, Mishap::kShort, Mishap::kBroken}) reads(content, fault);
    a_cut_file(content);
  }
  a_true_file(content);
  for (int round = 0; round < 300; ++round) sweeps();
  return done();
}
