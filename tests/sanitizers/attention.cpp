// Graph attention on random graphs, for the sanitizers: arrays are exactly as long as they must be.
#include "kernels/nn/attention.h"

#include <vector>

#include "inputs.h"

using namespace pyg_batchgnn;

namespace {

struct Shape {
  int64_t targets, sources, edges, columns, edge_columns, heads, loops;
  Element rows, out;
  bool mapped, by_target, by_head;
  double drop;
  Scores scores = Scores::kLinear;
};

void run(const Shape& shape) {
  const auto [targets, sources, edges, columns, edge_columns, heads, loops, rows, out, mapped, by_target,
              by_head, drop, scores] = shape;
  std::vector<int64_t> indptr(static_cast<size_t>(targets + 1)), by_source(static_cast<size_t>(sources + 1));
  std::vector<int32_t> indices, into, leaving, edge;
  std::vector<int64_t> row(static_cast<size_t>(sources)), node(static_cast<size_t>(targets));
  for (int64_t e = 0; e < edges; ++e) into.push_back(static_cast<int32_t>(below(e % 3 != 0 ? targets : 1)));
  for (const int32_t i : into) ++indptr[static_cast<size_t>(i) + 1];
  for (size_t i = 0; i + 1 < indptr.size(); ++i) indptr[i + 1] += indptr[i];
  for (size_t i = 0; i + 1 < indptr.size(); ++i) {
    for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
      indices.push_back(static_cast<int32_t>(e % 4 == 0 ? static_cast<int64_t>(i) : below(sources)));
    }
  }
  for (int64_t j = 0; j < sources; ++j) {
    for (int64_t i = 0; i < targets; ++i) {
      for (int64_t e = indptr[static_cast<size_t>(i)]; e < indptr[static_cast<size_t>(i) + 1]; ++e) {
        if (indices[static_cast<size_t>(e)] != j) continue;
        leaving.push_back(static_cast<int32_t>(i));
        edge.push_back(static_cast<int32_t>(e));
      }
    }
    by_source[static_cast<size_t>(j) + 1] = static_cast<int64_t>(edge.size());
  }
  for (int64_t& r : row) r = below(sources);
  for (int64_t& id : node) id = below(1000);

  const Element wide = rows == Element::kFloat64 ? Element::kFloat64 : Element::kFloat32;
  const bool summed = scores == Scores::kAdditive || scores == Scores::kMessages;
  const int64_t width = heads * (columns + (summed ? 0 : edge_columns));
  const int64_t all = by_head ? 2 * heads * columns : summed ? heads * columns : columns;
  const AttentionEdges in_edges{indptr.data(), {indices.data(), false}, targets, loops};
  const int64_t slots = attention_slots(in_edges);
  const std::vector<char> x = numbers(sources * all, rows), target = numbers(heads * columns, wide);
  const Decodings by(columns, rows);
  const std::vector<char> source = numbers(by_target ? targets * width : width, wide);
  const std::vector<char> edge_rows = numbers(slots * edge_columns, wide);
  const std::vector<char> y = numbers(targets * all, wide), w = numbers(edge_columns * all, wide);
  const AttentionInput input{in_edges,
                             {{x.data(), rows, all, by.get()},
                              mapped ? Integers{row.data(), true} : Integers{},
                              columns,
                              by_head,
                              edge_columns > 0 ? edge_rows.data() : nullptr,
                              edge_columns},
                             {drop, 7, node.data()},
                             {heads, 0.2, source.data(), by_target,
                              by_head || scores != Scores::kLinear ? nullptr : target.data(), scores,
                              summed ? y.data() : nullptr, all,
                              summed && edge_columns > 0 ? w.data() : nullptr}};
  const std::vector<char> logits = numbers(targets * heads, wide), edge_logits = numbers(slots * heads, wide);
  std::vector<char> z = numbers(targets * width, out), coefficient = numbers(slots * heads, wide);
  std::vector<char> total = logits;
  attention_forward(input, logits.data(), edge_logits.data(),
                    {z.data(), out, coefficient.data(), total.data()}, 3);

  std::vector<char> d_source = source, d_target = target, d_logits = logits, d_edges = edge_logits;
  std::vector<char> d_edge_rows = edge_rows, d_x = x, d_y = y, d_w = w;
  if (scores == Scores::kGiven) coefficient = edge_logits;
  const bool need_x = !mapped && rows != Element::kFloat16 && rows != Element::kInt8;
  attention_backward(input, {z.data(), out, coefficient.data(), edge_logits.data(), total.data()},
                     {by_source.data(), {leaving.data(), false}, {edge.data(), false}, sources},
                     {d_source.data(), d_target.data(), d_logits.data(), d_edges.data(), d_edge_rows.data(),
                      need_x ? d_x.data() : nullptr, summed ? d_y.data() : nullptr, d_w.data()},
                     3);
  std::vector<uint8_t> keep(static_cast<size_t>(slots * heads));
  attention_keep(input.edges, input.dropout, heads, keep.data());
  for (const std::vector<char>* made :
       {&z, &coefficient, &total, &d_source, &d_target, &d_logits, &d_edges, &d_edge_rows, &d_x, &d_y, &d_w}) {
    result(*made);
  }
  result(keep);
}

}  // namespace

int main() {
  constexpr Element kTypes[][2] = {
      {Element::kFloat32, Element::kFloat32},   {Element::kFloat32, Element::kBFloat16},
      {Element::kFloat16, Element::kFloat32},   {Element::kBFloat16, Element::kFloat32},
      {Element::kBFloat16, Element::kBFloat16}, {Element::kFloat64, Element::kFloat64},
      {Element::kInt8, Element::kFloat32},      {Element::kInt8, Element::kBFloat16}};
  for (const auto& [rows, out] : kTypes) {
    for (const int64_t columns : {1, 16, 37, 100}) {
      const int64_t heads = 1 + below(6), targets = 1 + below(150), sources = targets + below(50);
      const int64_t edge_columns = below(3) * below(20), loops = below(2) ? targets : -1;
      const bool mapped = below(2) == 0, by_target = below(2) == 0;
      const bool by_head = below(2) == 0 && rows != Element::kInt8;
      run({targets, sources, 600, columns, edge_columns, heads, loops, rows, out, mapped, by_target, by_head,
           0.3});
      for (const Scores scores : {Scores::kAdditive, Scores::kGiven, Scores::kMessages}) {
        if (rows == Element::kInt8) continue;
        const bool with_softmax = scores == Scores::kAdditive;
        run({targets, sources, 600, columns, scores == Scores::kGiven ? 0 : edge_columns,
             scores == Scores::kMessages ? 1 : heads, with_softmax ? loops : -1, rows, out, mapped, false,
             false, with_softmax ? 0.3 : 0.0, scores});
      }
      run({targets, sources, 0, columns, edge_columns, heads, targets / 2, rows, out, false, true, false,
           0.0});
    }
  }
  return done();
}
