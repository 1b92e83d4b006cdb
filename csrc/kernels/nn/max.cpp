#include "kernels/nn/max.h"

#include <algorithm>
#include <type_traits>

#include "kernels/nn/work.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlock = 1024;  // edges and rows of a task
constexpr int64_t kChunk = 64;    // columns at once

// Calls body(row, first column, columns) for all of the output, in chunks.
template <class Body>
void for_chunks(const MaxJob& job, int64_t threads, const Body& body) {
  run_tasks(blocks_of_work(job.indptr, job.targets, kBlock), threads, [&](int64_t block, int64_t) {
    const int64_t first = row_at_work(job.indptr, job.targets, block * kBlock);
    const int64_t last = row_at_work(job.indptr, job.targets, (block + 1) * kBlock);
    for (int64_t i = first; i < last; ++i) {
      for (int64_t c = 0; c < job.columns; c += kChunk) body(i, c, std::min(kChunk, job.columns - c));
    }
  });
}

template <class In>
const In* source(const MaxJob& job, int64_t e, int64_t column) {
  const int64_t s = job.indices[e];
  return reinterpret_cast<const In*>(job.x.row(job.row ? job.row[s] : s)) + column;
}

// Returns a value as it is after a store as Out.
template <class Out, class In>
Wide<Out> rounded(In value) {
  return widen(narrow<Out>(static_cast<Wide<Out>>(widen(value))));
}

template <class In, class Out>
void max_chunk(const MaxJob& job, int64_t i, int64_t column, int64_t columns, Out* out) {
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

template <class In, class Out, class A>
void share_chunk(const MaxJob& job, const Matrix& out, const Matrix& grad, int64_t i, int64_t column,
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
void gather_chunk(const MaxJob& job, const Matrix& x, const Matrix& share, int64_t s, int64_t column,
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

// Calls body with a value of each of the two types; results are float, double or bfloat16.
template <class Body>
void with_elements(Element in, Element out, const Body& body) {
  with_element(in, [&](auto x) {
    if (out == Element::kFloat64) {
      body(x, double{});
    } else if (out == Element::kBFloat16) {
      body(x, Bfloat16{});
    } else {
      body(x, float{});
    }
  });
}

}  // namespace

void max_rows(const MaxJob& job, void* out, Element out_element, int64_t threads) {
  with_elements(job.x.element, out_element, [&](auto in, auto stored) {
    using Out = decltype(stored);
    for_chunks(job, threads, [&](int64_t i, int64_t column, int64_t columns) {
      max_chunk<decltype(in)>(job, i, column, columns, static_cast<Out*>(out));
    });
  });
}

void share_among_maxima(const MaxJob& job, Matrix out, Matrix grad, void* share, int64_t threads) {
  with_elements(job.x.element, out.element, [&](auto in, auto stored) {
    using Out = decltype(stored);
    for_chunks(job, threads, [&](int64_t i, int64_t column, int64_t columns) {
      share_chunk<decltype(in), Out>(job, out, grad, i, column, columns, static_cast<Wide<Out>*>(share));
    });
  });
}

void gather_shares(const MaxJob& job, Matrix x, Matrix share, void* out, int64_t threads) {
  with_elements(x.element, job.x.element, [&](auto in, auto stored) {
    using In = decltype(in);
    if constexpr (!std::is_same_v<In, Half>) {  // float16 tables take no gradient
      for_chunks(job, threads, [&](int64_t s, int64_t column, int64_t columns) {
        gather_chunk<In, decltype(stored), Wide<decltype(stored)>>(job, x, share, s, column, columns,
                                                                   static_cast<In*>(out));
      });
    }
  });
}

}  // namespace pyg_batchgnn
