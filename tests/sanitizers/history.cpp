// What historical embeddings ask for, on random nodes; test_sanitizers.py compiles it with
// sanitizers. Arrays are exactly as long as they must be.
#include "kernels/history.h"

#include <algorithm>
#include <vector>

#include "inputs.h"

using namespace pyg_batchgnn;

namespace {

void caches(int64_t lines, int64_t slots, int64_t nodes) {
  std::vector<int32_t> slot(size(slots)), older(size(lines)), newer(size(lines));
  std::vector<int64_t> node(size(lines)), stored(size(lines)), ends{kNoLine, kNoLine, 0};
  CacheLines cache{slot.data(),  slots,        node.data(), stored.data(),
                   older.data(), newer.data(), ends.data(), lines};
  for (int64_t step = 0; step < 6; ++step) {
    const int64_t count = below(2 * lines + 2);
    std::vector<int64_t> wanted(size(count)), steps(size(count), step);
    std::vector<int32_t> line(size(count));
    for (int64_t& one : wanted) one = below(nodes) * 1'000'003;
    store_lines(cache, wanted.data(), steps.data(), count, line.data());
    search_lines(cache, wanted.data(), count, step, line.data(), 3);
    for (int64_t i = 0; i < count; ++i) {
      expect(line[size(i)] == kNoLine || node[size(line[size(i)])] == wanted[size(i)]);
    }
    std::vector<int32_t> used(size(ends[2]));
    list_lines(cache, used.data());
    result(line);
    result(used);
    expect(static_cast<int64_t>(used.size()) <= lines);
  }
}

void layers(int64_t targets, int64_t own, int64_t halo, bool spoilt) {
  std::vector<int64_t> indptr(size(targets + 1)), begins(size(targets + 1));
  for (int64_t i = 0; i < targets; ++i) indptr[size(i + 1)] = indptr[size(i)] + below(6);
  std::vector<int32_t> source(size(indptr.back())), cached(size(halo));
  for (int32_t& one : source) one = static_cast<int32_t>(below(own + halo));
  if (spoilt && !source.empty()) source.back() = static_cast<int32_t>(below(2) ? own + halo : -1);
  int32_t place = 0;
  for (int32_t& one : cached) one = below(3) ? place++ : -1;
  const HaloLayer layer{indptr.data(), source.data(), targets, own, own, cached.data(), halo};
  if (!count_rows_of_halo(layer, begins.data(), 3)) return expect(spoilt);
  std::vector<int32_t> rows(size(begins.back()));
  std::vector<int64_t> places(size(begins.back()));
  fill_rows_of_halo(layer, begins.data(), rows.data(), places.data(), 3);
  result(rows);
  result(places);
  expect(rows.size() <= source.size());
}

void pushes(int64_t nodes, int64_t count, int64_t peers, int64_t most) {
  std::vector<int64_t> ptr(size(nodes + 1)), row(size(count)), name(size(count));
  std::vector<int32_t> peer, degree;
  for (int64_t i = 0; i < nodes; ++i) {
    for (int32_t p = 0; p < peers; ++p) {
      if (below(2)) continue;
      peer.push_back(p);
      degree.push_back(static_cast<int32_t>(1 + below(9)));
    }
    ptr[size(i + 1)] = static_cast<int64_t>(peer.size());
  }
  for (int64_t& one : row) one = below(nodes + 1) - 1;
  for (int64_t i = 0; i < count; ++i) name[size(i)] = 5 * row[size(i)];
  const HaloPeers halo{ptr.data(), peer.data(), degree.data(), nodes};
  const Pushed pushed = choose_pushed(halo, row.data(), name.data(), count, {peers, most, 7}, 3);
  result(pushed.counts);
  int64_t at = 0;
  for (const int64_t own : pushed.counts) {
    expect(most == kPushAll || own <= most);
    for (int64_t i = 0; i < own; ++i, ++at) expect(row[size(pushed.place.data()[at])] >= 0);
  }
}

}  // namespace

int main() {
  for (const int64_t lines : {0, 1, 5, 64}) caches(lines, lines < 8 ? 16 : 128, 200);
  for (const bool spoilt : {false, true}) {
    layers(0, 4, 0, spoilt);
    layers(9000, 50, 30, spoilt);
    layers(7, 1, 3, spoilt);
  }
  pushes(40, 0, 2, 3);
  pushes(300, 10'000, 4, 20);
  pushes(300, 200, 1, kPushAll);
  pushes(300, 5000, 3, 0);
  return done();
}
