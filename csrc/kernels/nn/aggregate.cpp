#include "kernels/nn/aggregate.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/nn/work.h"
#include "kernels/parallel.h"
#include "kernels/simd/sum_rows.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlock = 1024;  // edges and rows of a task, about a tenth of a millisecond
// A row with more edges is summed in pieces of this size, which are added in order. So one hub does
// not keep a thread busy while the others have no work. The cut depends only on the row.
constexpr int64_t kPiece = 2048;
constexpr int64_t kMostEdges = kBlock + kPiece;
constexpr int64_t kBytesAhead = 12800;      // bytes of rows between prefetch and use
constexpr int64_t kPlacesAhead = 64;        // edges between the prefetch of a row number and its
                                            // use
constexpr int64_t kStreamBytes = 16 << 20;  // an output of this size has left the caches before it
                                            // is read
constexpr int64_t kLine = 64;

// Returns the columns of [3, columns] center, scale and shift; only sums in float have them.
template <class A>
Affine<A> affine(const float* of, int64_t columns) {
  if constexpr (std::is_same_v<A, float>) {
    if (of != nullptr) return {of, of + columns, of + 2 * columns};
  }
  return {};
}

// One task with all addresses and weights looked up. The inner loop does not depend on index types.
template <class A>
class Lookup {
 public:
  explicit Lookup(const Aggregation& job)
      : job_(job),
        prefetch_(std::clamp<int64_t>(kBytesAhead / std::max<int64_t>(1, job.x.row_bytes(job.columns)), 2,
                                      kMostAhead)) {
    weight_.fill(1);
  }

  // Looks up the edges of [first, last) and the addresses of the following ones.
  void edges(int64_t first, int64_t last) {
    const int64_t seen = std::min(last + prefetch_, job_.indptr[job_.targets]);
    const int64_t known = std::max<int64_t>(0, std::min(seen, job_.indptr[job_.targets] - kPlacesAhead));
    for (int64_t e = first; e < seen; ++e) {
      const int64_t s = job_.indices[e];
      if (job_.row && e < known) job_.row.prefetch(job_.indices[e + kPlacesAhead]);
      source_[static_cast<size_t>(e - first)] = job_.x.row(job_.row ? job_.row[s] : s);
    }
    const char* const nearby = static_cast<const char*>(job_.x.data);
    for (int64_t e = seen; e < last + prefetch_; ++e) source_[static_cast<size_t>(e - first)] = nearby;
    if (job_.edge_weight != nullptr || job_.source_scale != nullptr) weigh(first, last);
  }

  // The rows of [first, last); `partial` leaves the sums as they are.
  void rows(int64_t first, int64_t last, bool partial) {
    for (int64_t i = first; i < last; ++i) {
      const auto r = static_cast<size_t>(i - first);
      scale_[r] = partial ? A{1} : row_scale(i);
      const bool has_self = !partial && i < job_.self_rows;
      self_[r] = has_self ? job_.self.row(job_.self_row ? job_.self_row[i] : i) : nullptr;
      self_scale_[r] = has_self ? self_scale(i) : A{1};
    }
  }

  SumRows<A> task(int64_t rows, const int64_t* ptr, char* out, Element element, bool stream,
                  const GradientTally<A>& tally = {}) const {
    return {rows,
            job_.columns,
            ptr,
            ptr[0],
            source_.data(),
            weight_.data(),
            prefetch_,
            scale_.data(),
            self_.data(),
            self_scale_.data(),
            out,
            element,
            stream,
            affine<A>(job_.normed, job_.columns),
            tally};
  }

  A row_scale(int64_t i) const {
    const A scale = job_.target_scale == nullptr ? A{1} : static_cast<const A*>(job_.target_scale)[i];
    const int64_t degree = job_.indptr[i + 1] - job_.indptr[i];
    return job_.mean && degree > 0 ? scale / static_cast<A>(degree) : scale;
  }

 private:
  A self_scale(int64_t i) const {
    if (job_.self_scale == nullptr) return 1;
    return static_cast<const A*>(job_.self_scale)[job_.self_scale_each ? i : 0];
  }

  void weigh(int64_t first, int64_t last) {
    for (int64_t e = first; e < last; ++e) {
      A weight = 1;
      if (job_.edge_weight != nullptr) {
        weight = static_cast<const A*>(job_.edge_weight)[job_.edge ? job_.edge[e] : e];
      }
      if (job_.source_scale != nullptr) weight *= static_cast<const A*>(job_.source_scale)[job_.indices[e]];
      weight_[static_cast<size_t>(e - first)] = weight;
    }
  }

  const Aggregation& job_;
  int64_t prefetch_;
  std::array<const char*, kMostEdges + kMostAhead> source_;
  std::array<A, kMostEdges> weight_;
  std::array<A, kBlock> scale_, self_scale_;
  std::array<const char*, kBlock> self_;
};

template <class A>
class Aggregator {
 public:
  explicit Aggregator(const Aggregation& job)
      : job_(job),
        row_bytes_(job.columns * element_bytes(job.out_element)),
        stream_(job.out_element != Element::kFloat64 && row_bytes_ % kLine == 0 &&
                reinterpret_cast<uintptr_t>(job.out) % kLine == 0 &&
                row_bytes_ * job.targets >= kStreamBytes),
        blocks_(blocks_of_work(job.indptr, job.targets, kBlock)) {}

  void run(int64_t threads) {
    if (job_.gradient.x != nullptr) std::fill_n(tallies_.reserve(tally_size()), tally_size(), 0.0);
    run_tasks(blocks_, threads, [&](int64_t block, int64_t) { rows_of(block); });
    hubs(threads);
    if (job_.gradient.x != nullptr) join_tallies();
  }

 private:
  static constexpr Element kSum = std::is_same_v<A, double> ? Element::kFloat64 : Element::kFloat32;

  bool is_hub(int64_t i) const { return job_.indptr[i + 1] - job_.indptr[i] > kPiece; }

  // Sums the rows between hubs, one task per stretch.
  void rows_of(int64_t block) const {
    const int64_t end = row_at_work(job_.indptr, job_.targets, (block + 1) * kBlock);
    int64_t first = row_at_work(job_.indptr, job_.targets, block * kBlock);
    if (first == end) return;
    Lookup<A> lookup(job_);
    for (int64_t last = first; first < end; first = last = last + 1) {
      while (last < end && !is_hub(last)) ++last;
      lookup.edges(job_.indptr[first], job_.indptr[last]);
      lookup.rows(first, last, false);
      char* const out = static_cast<char*>(job_.out) + first * row_bytes_;
      sum_rows(
          lookup.task(last - first, job_.indptr + first, out, job_.out_element, stream_, tally(first, block)),
          job_.x.element);
    }
  }

  struct Piece {
    int64_t row, ends[2];
  };

  void hubs(int64_t threads) const {
    if (job_.indptr[job_.targets] - job_.indptr[0] <= kPiece) return;
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < job_.targets; ++i) {
      if (!is_hub(i)) continue;
      for (int64_t e = job_.indptr[i]; e < job_.indptr[i + 1]; e += kPiece) {
        pieces.push_back({i, {e, std::min(e + kPiece, job_.indptr[i + 1])}});
      }
    }
    const auto count = static_cast<int64_t>(pieces.size());
    if (count == 0) return;
    Buffer<A> buffer;
    A* const sums = buffer.reserve((count + 1) * job_.columns + 1);
    A* const own = sums + count * job_.columns;
    run_tasks(count, threads, [&](int64_t p, int64_t) {
      sum_piece(pieces[static_cast<size_t>(p)], sums + p * job_.columns);
    });
    for (int64_t p = 0; p < count;) {
      const int64_t row = pieces[static_cast<size_t>(p)].row;
      const int64_t first = p;
      while (p < count && pieces[static_cast<size_t>(p)].row == row) ++p;
      join(row, sums + first * job_.columns, p - first, own);
    }
  }

  void sum_piece(const Piece& piece, A* sums) const {
    Lookup<A> lookup(job_);
    lookup.edges(piece.ends[0], piece.ends[1]);
    lookup.rows(piece.row, piece.row + 1, true);
    sum_rows(lookup.task(1, piece.ends, reinterpret_cast<char*>(sums), kSum, false), job_.x.element);
  }

  // Adds the pieces of a hub in order into the first one and finishes its row. `own` is for its
  // self part.
  void join(int64_t row, A* sums, int64_t pieces, A* own) const {
    Lookup<A> lookup(job_);
    lookup.rows(row, row + 1, false);
    const int64_t no_edges[2] = {};
    sum_rows(lookup.task(1, no_edges, reinterpret_cast<char*>(own), kSum, false), job_.x.element);
    for (int64_t p = 1; p < pieces; ++p) {
      for (int64_t c = 0; c < job_.columns; ++c) sums[c] += sums[p * job_.columns + c];
    }
    const A scale = lookup.row_scale(row);
    for (int64_t c = 0; c < job_.columns; ++c) sums[c] = sums[c] * scale + own[c];
    write(row, sums);
  }

  // The row is finished as the sum of no edges and a self part, as other rows are.
  void write(int64_t row, const A* sums) const {
    const int64_t no_edges[2] = {};
    const A one = 1;
    const char* const self = reinterpret_cast<const char*>(sums);
    char* const out = static_cast<char*>(job_.out) + row * row_bytes_;
    sum_rows({1,
              job_.columns,
              no_edges,
              0,
              nullptr,
              nullptr,
              0,
              &one,
              &self,
              &one,
              out,
              job_.out_element,
              false,
              {},
              tally(row, blocks_)},
             kSum);
  }

  // Returns the place of the sums of the rows of a gradient from `row` on. Hubs have the place
  // behind all blocks.
  GradientTally<A> tally(int64_t row, int64_t block) const {
    if constexpr (std::is_same_v<A, float>) {
      const NormedGradient& of = job_.gradient;
      double* const sum = tallies_.data() + 2 * job_.columns * block;
      if (of.x != nullptr) {
        return {of.x + row * job_.columns, affine<A>(of.columns, job_.columns), sum, sum + job_.columns};
      }
    }
    return {};
  }

  int64_t tally_size() const { return 2 * job_.columns * (blocks_ + 1); }

  // Adds in the order of the blocks, independent of threads.
  void join_tallies() const {
    for (int64_t at = 0; at < tally_size(); ++at) {
      job_.gradient.sums[at % (2 * job_.columns)] += tallies_.data()[at];
    }
  }

  const Aggregation& job_;
  int64_t row_bytes_;
  bool stream_;
  int64_t blocks_;
  Buffer<double> tallies_;  // [blocks + 1, 2, columns]
};

}  // namespace

void aggregate(const Aggregation& job, int64_t threads) {
  if (job.gradient.x != nullptr) std::fill_n(job.gradient.sums, 2 * job.columns, 0.0);
  if (job.targets == 0 || job.columns == 0) return;
  if (job.out_element == Element::kFloat64) {
    Aggregator<double>(job).run(threads);
  } else {
    Aggregator<float>(job).run(threads);
  }
}

}  // namespace pyg_batchgnn
