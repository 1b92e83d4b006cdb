#include "kernels/nn/aggregate.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "kernels/allocation.h"
#include "kernels/parallel.h"
#include "kernels/simd/decode.h"
#include "kernels/simd/sum_rows.h"

namespace pyg_batchgnn {
namespace {

// Returns the first row whose work begins at or after `work`. The work of a row is the number of
// its edges plus one. Cuts at multiples of the work of a block give tasks of about equal length.
inline int64_t row_at_work(const int64_t* indptr, int64_t rows, int64_t work) {
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (indptr[middle] - indptr[0] + middle < work) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

inline int64_t blocks_of_work(const int64_t* indptr, int64_t rows, int64_t block) {
  return (indptr[rows] - indptr[0] + rows + block - 1) / block;
}

constexpr int64_t kBlock = 1024;  // edges and rows of a task, about a tenth of a millisecond

// Calls body(row) for every row, in tasks of about equal work.
template <class RowBody>
void for_rows(const int64_t* indptr, int64_t rows, int64_t threads, const RowBody& body) {
  run_tasks(blocks_of_work(indptr, rows, kBlock), threads, [&](int64_t block, int64_t) {
    const int64_t last = row_at_work(indptr, rows, (block + 1) * kBlock);
    for (int64_t i = row_at_work(indptr, rows, block * kBlock); i < last; ++i) body(i);
  });
}

// A row with more edges is summed in pieces of this size, which are added in order. So one hub does
// not keep a thread busy while the others have no work. The cut depends only on the row.
constexpr int64_t kPiece = 2048;
constexpr int64_t kMostEdges = kBlock + kPiece;
constexpr int64_t kBytesAhead = 12800;      // bytes of rows between prefetch and use
constexpr int64_t kPlacesAhead = 64;        // edges between a row number's prefetch and its use
constexpr int64_t kStreamBytes = 16 << 20;  // such an output leaves the caches before it is read
constexpr int64_t kLine = 64;

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
    if (weighted()) weigh(first, last);
  }

  // The rows of [first, last); `partial` leaves the sums as they are.
  void rows(int64_t first, int64_t last, bool partial) {
    for (int64_t i = first; i < last; ++i) {
      const auto r = static_cast<size_t>(i - first);
      scale_[r] = partial ? A{1} : row_scale(i);
      const bool has_self = !partial && i < job_.self_rows;
      self_[r] = has_self ? job_.self.row(job_.self_row ? job_.self_row[i] : i) : nullptr;
      self_scale_[r] = has_self ? self_scale(i) : A{1};
      if (job_.x.decoding && !partial) total_[r] = sum_of_factors(i) + (has_self ? self_scale_[r] : A{0});
    }
  }

  // The rows of a task, and those of sums that are not decoded yet.
  SumRows<A> task(int64_t rows, const int64_t* ptr, char* out, Element element, bool stream) const {
    SumRows<A> task = sums(rows, ptr, out, element);
    task.stream = stream;
    task.decoding = job_.x.decoding;
    return task;
  }
  SumRows<A> sums(int64_t rows, const int64_t* ptr, char* out, Element element) const {
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
            false,
            {},
            total_.data()};
  }
  const A* total() const { return total_.data(); }

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

  bool weighted() const { return job_.edge_weight != nullptr || job_.source_scale != nullptr; }

  A weight(int64_t e) const {
    A weight = 1;
    if (job_.edge_weight != nullptr) {
      weight = static_cast<const A*>(job_.edge_weight)[job_.edge ? job_.edge[e] : e];
    }
    if (job_.source_scale != nullptr) weight *= static_cast<const A*>(job_.source_scale)[job_.indices[e]];
    return weight;
  }

  void weigh(int64_t first, int64_t last) {
    for (int64_t e = first; e < last; ++e) weight_[static_cast<size_t>(e - first)] = weight(e);
  }

  // Returns the sum of the factors of a target's edges; of an unweighted mean exactly its scale.
  A sum_of_factors(int64_t i) const {
    const int64_t degree = job_.indptr[i + 1] - job_.indptr[i];
    if (degree == 0) return 0;
    if (!weighted()) {
      const A scale = job_.target_scale == nullptr ? A{1} : static_cast<const A*>(job_.target_scale)[i];
      return job_.mean ? scale : scale * static_cast<A>(degree);
    }
    double sum = 0;
    for (int64_t e = job_.indptr[i]; e < job_.indptr[i + 1]; ++e) sum += static_cast<double>(weight(e));
    return static_cast<A>(sum) * row_scale(i);
  }

  const Aggregation& job_;
  int64_t prefetch_;
  std::array<const char*, kMostEdges + kMostAhead> source_;
  std::array<A, kMostEdges> weight_;
  std::array<A, kBlock> scale_, self_scale_, total_;
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
                row_bytes_ * job.targets >= kStreamBytes) {}

  void run(int64_t threads) {
    const int64_t blocks = blocks_of_work(job_.indptr, job_.targets, kBlock);
    run_tasks(blocks, threads, [&](int64_t block, int64_t) { rows_of(block); });
    hubs(threads);
  }

 private:
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
      sum_rows(lookup.task(last - first, job_.indptr + first, out, job_.out_element, stream_),
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
    sum_rows(lookup.sums(1, piece.ends, reinterpret_cast<char*>(sums), kElement<A>), job_.x.element);
  }

  // Adds the pieces of a hub in order into the first one, and its self part, which takes `own`.
  void join(int64_t row, A* sums, int64_t pieces, A* own) const {
    Lookup<A> lookup(job_);
    lookup.rows(row, row + 1, false);
    const int64_t no_edges[2] = {};
    sum_rows(lookup.sums(1, no_edges, reinterpret_cast<char*>(own), kElement<A>), job_.x.element);
    for (int64_t p = 1; p < pieces; ++p) {
      for (int64_t c = 0; c < job_.columns; ++c) sums[c] += sums[p * job_.columns + c];
    }
    const A scale = lookup.row_scale(row);
    for (int64_t c = 0; c < job_.columns; ++c) sums[c] = sums[c] * scale + own[c];
    write(row, sums, lookup.total());
  }

  // The row is finished as the sum of no edges and a self part, as other rows are.
  void write(int64_t row, const A* sums, const A* total) const {
    const int64_t no_edges[2] = {};
    const A one = 1;
    const char* const self = reinterpret_cast<const char*>(sums);
    char* const out = static_cast<char*>(job_.out) + row * row_bytes_;
    sum_rows({1, job_.columns, no_edges, 0, nullptr, nullptr, 0, &one, &self, &one, out, job_.out_element,
              false, job_.x.decoding, total},
             kElement<A>);
  }

  const Aggregation& job_;
  int64_t row_bytes_;
  bool stream_;
};

}  // namespace

void aggregate(const Aggregation& job, int64_t threads) {
  if (job.targets == 0 || job.columns == 0) return;
  if (job.out_element == Element::kFloat64) {
    Aggregator<double>(job).run(threads);
  } else {
    Aggregator<float>(job).run(threads);
  }
}

namespace {

constexpr int64_t kChunk = 64;  // columns at once

// Calls body(row, first column, columns) for all of the output, in chunks.
template <class Body>
void for_chunks(const InEdgeRows& job, int64_t threads, const Body& body) {
  for_rows(job.indptr, job.targets, threads, [&](int64_t i) {
    for (int64_t c = 0; c < job.columns; c += kChunk) body(i, c, std::min(kChunk, job.columns - c));
  });
}

template <class In>
const In* source(const InEdgeRows& job, int64_t e, int64_t column) {
  const int64_t s = job.indices[e];
  return reinterpret_cast<const In*>(job.x.row(job.row ? job.row[s] : s)) + column;
}

// Returns a value as it is after a store as Out.
template <class Out, class In>
Wide<Out> rounded(In value) {
  return widen(narrow<Out>(static_cast<Wide<Out>>(widen(value))));
}

template <class In, class Out>
void max_chunk(const InEdgeRows& job, int64_t i, int64_t column, int64_t columns, Out* out) {
  Wide<Out> most[kChunk] = {};
  for (int64_t e = job.indptr[i]; e < job.indptr[i + 1]; ++e) {
    const In* const from = source<In>(job, e, column);
    const bool first = e == job.indptr[i];
    for (int64_t c = 0; c < columns; ++c) {
      const auto value = static_cast<Wide<Out>>(widen(from[c]));
      most[c] = first || value > most[c] || value != value ? value : most[c];
    }
  }
  for (int64_t c = 0; c < columns; ++c) out[i * job.columns + column + c] = narrow<Out>(most[c]);
}

template <class Out>
void max_of_codes(const InEdgeRows& job, int64_t i, int64_t column, int64_t columns, Out* out) {
  out += i * job.columns + column;
  if (job.indptr[i] == job.indptr[i + 1]) {
    std::fill_n(out, columns, Out{});
    return;
  }
  Code most[kChunk];
  std::fill_n(most, columns, Code{-128});
  for (int64_t e = job.indptr[i]; e < job.indptr[i + 1]; ++e) {
    const Code* const from = source<Code>(job, e, column);
    for (int64_t c = 0; c < columns; ++c) most[c].number = std::max(most[c].number, from[c].number);
  }
  decode_row(most, job.x.decoding.from(column), columns, out);
}

template <class In, class Out, class A>
void share_chunk(const InEdgeRows& job, const Matrix& out, const Matrix& grad, int64_t i, int64_t column,
                 int64_t columns, A* share) {
  const Out* const most = reinterpret_cast<const Out*>(out.row(i)) + column;
  A reached[kChunk];
  for (int64_t c = 0; c < columns; ++c) reached[c] = widen(most[c]) == 0 ? 1 : 0;
  for (int64_t e = job.indptr[i]; e < job.indptr[i + 1]; ++e) {
    const In* const from = source<In>(job, e, column);
    for (int64_t c = 0; c < columns; ++c) reached[c] += rounded<Out>(from[c]) == widen(most[c]) ? 1 : 0;
  }
  const Out* const above = reinterpret_cast<const Out*>(grad.row(i)) + column;
  for (int64_t c = 0; c < columns; ++c) {
    share[i * job.columns + column + c] = static_cast<A>(widen(above[c])) / reached[c];
  }
}

template <class In, class Out, class A>
void gather_chunk(const InEdgeRows& job, const Matrix& x, const Matrix& share, int64_t s, int64_t column,
                  int64_t columns, In* out) {
  const In* const own = reinterpret_cast<const In*>(x.row(s)) + column;
  A sum[kChunk] = {};
  for (int64_t e = job.indptr[s]; e < job.indptr[s + 1]; ++e) {
    const Out* const most = source<Out>(job, e, column);
    const A* const shares = reinterpret_cast<const A*>(share.row(job.indices[e])) + column;
    for (int64_t c = 0; c < columns; ++c) sum[c] += rounded<Out>(own[c]) == widen(most[c]) ? shares[c] : 0;
  }
  for (int64_t c = 0; c < columns; ++c) {
    out[s * job.columns + column + c] = narrow<In>(static_cast<Wide<In>>(sum[c]));
  }
}

// Calls body with a value of each of the two types; results are float, double or bfloat16, and
// double for rows of double.
template <class Body>
void with_elements(Element in, Element out, const Body& body) {
  with_element(in, [&](auto x) {
    if constexpr (std::is_same_v<decltype(x), double>) {
      body(x, double{});
    } else if (out == Element::kFloat64) {
      body(x, double{});
    } else if (out == Element::kBFloat16) {
      body(x, Bfloat16{});
    } else {
      body(x, float{});
    }
  });
}

}  // namespace

void max_rows(const InEdgeRows& job, void* out, Element out_element, int64_t threads) {
  with_elements(job.x.element, out_element, [&](auto in, auto stored) {
    using Out = decltype(stored);
    for_chunks(job, threads, [&](int64_t i, int64_t column, int64_t columns) {
      if constexpr (std::is_same_v<decltype(in), Code>) {
        max_of_codes(job, i, column, columns, static_cast<Out*>(out));
      } else {
        max_chunk<decltype(in)>(job, i, column, columns, static_cast<Out*>(out));
      }
    });
  });
}

void share_among_maxima(const InEdgeRows& job, Matrix out, Matrix grad, void* share, int64_t threads) {
  with_elements(job.x.element, out.element, [&](auto in, auto stored) {
    using Out = decltype(stored);
    for_chunks(job, threads, [&](int64_t i, int64_t column, int64_t columns) {
      share_chunk<decltype(in), Out>(job, out, grad, i, column, columns, static_cast<Wide<Out>*>(share));
    });
  });
}

void gather_shares(const InEdgeRows& job, Matrix x, Matrix share, void* out, int64_t threads) {
  with_elements(x.element, job.x.element, [&](auto in, auto stored) {
    using In = decltype(in);
    // Tables of float16 and of codes take no gradient.
    if constexpr (!std::is_same_v<In, Half> && !std::is_same_v<In, Code>) {
      for_chunks(job, threads, [&](int64_t s, int64_t column, int64_t columns) {
        gather_chunk<In, decltype(stored), Wide<decltype(stored)>>(job, x, share, s, column, columns,
                                                                   static_cast<In*>(out));
      });
    }
  });
}

namespace {

constexpr int kLanes = 16;  // partial sums, which the compiler keeps in vectors

// A row in the type of the sums.
template <class A, class In>
struct SummedRow {
  const In* row;
  Decoding decoding;

  A operator[](int64_t c) const {
    const A value = static_cast<A>(widen(row[c]));
    if constexpr (!std::is_same_v<In, Code>) return value;
    return value * A{decoding.scale[c]} + A{decoding.offset[c]};
  }
};

template <class A, class In, class Grad>
A dot(const SummedRow<A, In>& x, const Grad* grad, int64_t columns) {
  A part[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      part[lane] += x[c + lane] * static_cast<A>(widen(grad[c + lane]));
    }
  }
  A sum = 0;
  for (; c < columns; ++c) sum += x[c] * static_cast<A>(widen(grad[c]));
  for (const A one : part) sum += one;
  return sum;
}

template <class In, class Grad>
struct RowDots {
  const EdgeDots& job;

  Wide<Grad> operator()(int64_t i, int64_t s) const {
    const auto* x = reinterpret_cast<const In*>(job.x.row(job.row ? job.row[s] : s));
    const SummedRow<Wide<Grad>, In> row{x, job.x.decoding};
    return dot(row, reinterpret_cast<const Grad*>(job.grad.row(i)), job.columns);
  }
};

template <class A>
A entry(const void* scale, int64_t i) {
  return scale == nullptr ? A{1} : static_cast<const A*>(scale)[i];
}

}  // namespace

void edge_dots(const EdgeDots& job, void* out, int64_t threads) {
  with_elements(job.x.element, job.grad.element, [&](auto in, auto above) {
    using A = Wide<decltype(above)>;
    const RowDots<decltype(in), decltype(above)> rows{job};
    for_rows(job.indptr, job.targets, threads, [&](int64_t i) {
      A scale = entry<A>(job.target_scale, i);
      if (job.mean) scale /= static_cast<A>(std::max<int64_t>(1, job.indptr[i + 1] - job.indptr[i]));
      for (int64_t e = job.indptr[i]; e < job.indptr[i + 1]; ++e) {
        const int64_t s = job.indices[e];
        static_cast<A*>(out)[e] = scale * entry<A>(job.source_scale, s) * rows(i, s);
      }
    });
  });
}

void self_dots(const EdgeDots& job, bool each, void* out, int64_t threads) {
  const int64_t blocks = (job.targets + kBlock - 1) / kBlock;
  with_elements(job.x.element, job.grad.element, [&](auto in, auto above) {
    using A = Wide<decltype(above)>;
    const RowDots<decltype(in), decltype(above)> rows{job};
    Buffer<A> buffer;
    A* const dots = each ? static_cast<A*>(out) : buffer.reserve(job.targets + 1);
    run_tasks(blocks, threads, [&](int64_t block, int64_t) {
      const int64_t last = std::min((block + 1) * kBlock, job.targets);
      for (int64_t i = block * kBlock; i < last; ++i) dots[i] = rows(i, i);
    });
    if (each) return;
    double sum = 0;  // in the order of the rows
    for (int64_t i = 0; i < job.targets; ++i) sum += static_cast<double>(dots[i]);
    *static_cast<A*>(out) = static_cast<A>(sum);
  });
}

}  // namespace pyg_batchgnn
