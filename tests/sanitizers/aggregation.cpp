// Runs aggregation's kernels on random graphs; test_sanitizers.py compiles it with sanitizers.
#include <algorithm>
#include <memory>
#include <vector>

#include "inputs.h"
#include "kernels/csc.h"
#include "kernels/nn/aggregate.h"

using namespace pyg_batchgnn;

namespace {

// Of exactly the size asked for.
template <class T>
struct Array {
  explicit Array(int64_t count, T value = {}) : data(new T[static_cast<size_t>(count)]) {
    std::fill(data.get(), data.get() + count, value);
  }
  std::unique_ptr<T[]> data;
};

struct Graph {
  Graph(int64_t targets, int64_t sources, int64_t degree) : indptr(targets + 1), indices(0) {
    for (int64_t i = 0; i < targets; ++i) {
      indptr.data[i + 1] = indptr.data[i] + below(degree + 1) + (i % 7 == 3 ? 3 * degree : 0);
    }
    edges = indptr.data[targets];
    indices = Array<int32_t>(edges);
    for (int64_t e = 0; e < edges; ++e) indices.data[e] = static_cast<int32_t>(below(sources));
  }

  Array<int64_t> indptr;
  Array<int32_t> indices;
  int64_t edges = 0;
};

template <class Out>
void sum(const Graph& graph, int64_t targets, int64_t sources, int64_t columns, Element in, Element out) {
  using A = Wide<Out>;
  const std::vector<char> x = numbers(sources * columns, in);
  const Decodings by(columns, in);
  const Array<A> weight(graph.edges, 1), of_source(sources, 2), of_target(targets, 3), own(targets, 4);
  Array<Out> sums(targets * columns);
  const Matrix rows{x.data(), in, columns, by.get()};
  const Integers indices{graph.indices.data.get(), false};
  Aggregation job{{graph.indptr.data.get(), indices, targets, columns, rows}, {}, sums.data.get(), out};
  aggregate(job, 3);
  result(sums.data.get(), targets * columns);
  job.edge_weight = weight.data.get();
  job.source_scale = of_source.data.get();
  job.target_scale = of_target.data.get();
  job.mean = true;
  job.self = job.x;
  job.self_rows = std::min(targets, sources);
  job.self_scale = own.data.get();
  job.self_scale_each = true;
  aggregate(job, 3);
  result(sums.data.get(), targets * columns);
}

void gradients(const Graph& graph, int64_t targets, int64_t sources, int64_t columns) {
  Array<int64_t> ptr(sources + 1);
  Array<int32_t> target(graph.edges), edge(graph.edges);
  const Integers indices{graph.indices.data.get(), false};
  transpose(graph.indptr.data.get(), indices, targets, sources, ptr.data.get(), target.data.get(),
            edge.data.get(), 3);

  Array<float> x(sources * columns), out(targets * columns), grad(targets * columns, 1.0f);
  for (int64_t i = 0; i < sources * columns; ++i) x.data[i] = static_cast<float>(below(64)) / 64.0f;
  const Matrix rows{x.data.get(), Element::kFloat32, columns};
  const Matrix maxima{out.data.get(), Element::kFloat32, columns};
  const InEdgeRows forward{graph.indptr.data.get(), indices, targets, columns, rows, {}};
  max_rows(forward, out.data.get(), Element::kFloat32, 3);
  Array<float> share(targets * columns), d_x(sources * columns);
  const Matrix above{grad.data.get(), Element::kFloat32, columns};
  share_among_maxima(forward, maxima, above, share.data.get(), 3);
  const InEdgeRows backward{ptr.data.get(), {target.data.get(), false}, sources, columns, maxima, {}};
  gather_shares(backward, rows, {share.data.get(), Element::kFloat32, columns}, d_x.data.get(), 3);
  result(out.data.get(), targets * columns);
  result(d_x.data.get(), sources * columns);

  Array<float> d_weight(graph.edges), d_self(targets);
  const EdgeDots dots{forward, {}, above};
  edge_dots(dots, d_weight.data.get(), 3);
  result(d_weight.data.get(), graph.edges);
  self_dots(dots, true, d_self.data.get(), 3);
  self_dots(dots, false, d_self.data.get(), 3);
  result(d_self.data.get(), targets);
}

void codes(const Graph& graph, int64_t targets, int64_t sources, int64_t columns) {
  const std::vector<char> x = numbers(sources * columns, Element::kInt8);
  const Decodings by(columns, Element::kInt8);
  const Matrix rows{x.data(), Element::kInt8, columns, by.get()};
  const Integers indices{graph.indices.data.get(), false};
  Array<float> out(targets * columns), d_weight(graph.edges);
  const InEdgeRows edges{graph.indptr.data.get(), indices, targets, columns, rows};
  max_rows(edges, out.data.get(), Element::kFloat32, 3);
  result(out.data.get(), targets * columns);
  const EdgeDots dots{edges, {}, {out.data.get(), Element::kFloat32, columns}};
  edge_dots(dots, d_weight.data.get(), 3);
  result(d_weight.data.get(), graph.edges);
}

void round_of(int64_t targets, int64_t sources, int64_t degree, int64_t columns) {
  const Graph graph(targets, sources, degree);
  sum<float>(graph, targets, sources, columns, Element::kFloat32, Element::kFloat32);
  sum<float>(graph, targets, sources, columns, Element::kFloat16, Element::kFloat32);
  sum<Bfloat16>(graph, targets, sources, columns, Element::kBFloat16, Element::kBFloat16);
  sum<double>(graph, targets, sources, columns, Element::kFloat64, Element::kFloat64);
  sum<float>(graph, targets, sources, columns, Element::kInt8, Element::kFloat32);
  sum<double>(graph, targets, sources, columns, Element::kInt8, Element::kFloat64);
  codes(graph, targets, sources, columns);
  gradients(graph, targets, sources, columns);
}

}  // namespace

int main() {
  for (const int64_t columns : {1, 7, 16, 33, 100, 260}) {
    for (const int64_t degree : {0, 4, 1000}) round_of(20, 30, degree, columns);
    round_of(3000, 3001, 2, columns);
  }
  return done();
}
