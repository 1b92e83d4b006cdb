#include "kernels/nn/edge_dots.h"

#include <algorithm>

#include "kernels/allocation.h"
#include "kernels/nn/work.h"
#include "kernels/parallel.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBlock = 1024;  // edges and rows of a task
constexpr int kLanes = 16;        // partial sums, which the compiler keeps in vectors

template <class A, class In, class Grad>
A dot(const In* x, const Grad* grad, int64_t columns) {
  A part[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      part[lane] += static_cast<A>(widen(x[c + lane])) * static_cast<A>(widen(grad[c + lane]));
    }
  }
  A sum = 0;
  for (; c < columns; ++c) sum += static_cast<A>(widen(x[c])) * static_cast<A>(widen(grad[c]));
  for (const A one : part) sum += one;
  return sum;
}

// Calls body with values of the types of x and of the gradient.
template <class Body>
void with_types(const EdgeDots& job, const Body& body) {
  with_element(job.x.element, [&](auto in) {
    if (job.grad.element == Element::kFloat64) {
      body(in, double{});
    } else if (job.grad.element == Element::kBFloat16) {
      body(in, Bfloat16{});
    } else {
      body(in, float{});
    }
  });
}

template <class In, class Grad>
struct Rows {
  const EdgeDots& job;

  Wide<Grad> operator()(int64_t i, int64_t s) const {
    const auto* x = reinterpret_cast<const In*>(job.x.row(job.row ? job.row[s] : s));
    return dot<Wide<Grad>>(x, reinterpret_cast<const Grad*>(job.grad.row(i)), job.columns);
  }
};

template <class A>
A entry(const void* scale, int64_t i) {
  return scale == nullptr ? A{1} : static_cast<const A*>(scale)[i];
}

}  // namespace

void edge_dots(const EdgeDots& job, void* out, int64_t threads) {
  const int64_t blocks = blocks_of_work(job.indptr, job.targets, kBlock);
  with_types(job, [&](auto in, auto above) {
    using A = Wide<decltype(above)>;
    const Rows<decltype(in), decltype(above)> rows{job};
    run_tasks(blocks, threads, [&](int64_t block, int64_t) {
      const int64_t first = row_at_work(job.indptr, job.targets, block * kBlock);
      const int64_t last = row_at_work(job.indptr, job.targets, (block + 1) * kBlock);
      for (int64_t i = first; i < last; ++i) {
        A scale = entry<A>(job.target_scale, i);
        if (job.mean) scale /= static_cast<A>(std::max<int64_t>(1, job.indptr[i + 1] - job.indptr[i]));
        for (int64_t e = job.indptr[i]; e < job.indptr[i + 1]; ++e) {
          const int64_t s = job.indices[e];
          static_cast<A*>(out)[e] = scale * entry<A>(job.source_scale, s) * rows(i, s);
        }
      }
    });
  });
}

void self_dots(const EdgeDots& job, bool each, void* out, int64_t threads) {
  const int64_t blocks = (job.targets + kBlock - 1) / kBlock;
  with_types(job, [&](auto in, auto above) {
    using A = Wide<decltype(above)>;
    const Rows<decltype(in), decltype(above)> rows{job};
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
