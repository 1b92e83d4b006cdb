// A graph cut into parts that are all here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "inputs.h"
#include "kernels/relay/answer.h"
#include "kernels/relay/relay.h"

namespace pyg_batchgnn {

template <class Index>
class Parts {
 public:
  // The nodes of each type are cut into ranges at random.
  Parts(const TypedGraph<Index>& graph, size_t parts, Random& random) : graph_(graph) {
    for (const int64_t nodes : graph.num_nodes) {
      std::vector<int64_t>& cut = cuts_.emplace_back();
      for (size_t part = 1; part < parts; ++part) {
        cut.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(nodes + 1)));
      }
      cut.insert(cut.begin(), 0);
      cut.push_back(nodes);
      std::sort(cut.begin(), cut.end());
    }
    book_.types = static_cast<int64_t>(types());
    book_.offsets = {0};
    for (const Relation<Index>& relation : graph.relations) {
      book_.source.push_back(relation.source);
      book_.target.push_back(relation.target);
      book_.num_edges.push_back(relation.edges.indptr[relation.edges.num_nodes]);
    }
    for (const int64_t nodes : graph.num_nodes) internal_.emplace_back(nodes);
    for (size_t part = 0; part < parts; ++part) {
      for (size_t type = 0; type < types(); ++type) number_nodes(part, type);
    }
    for (size_t part = 0; part < parts; ++part) {
      arrays_.emplace_back(graph.relations.size());
      for (size_t relation = 0; relation < graph.relations.size(); ++relation) fill(part, relation);
      graphs_.push_back(this->graph(part));
    }
  }

  size_t types() const { return graph_.num_nodes.size(); }
  size_t parts() const { return cuts_[0].size() - 1; }
  int64_t internal(int64_t type, int64_t node) const {
    return internal_[static_cast<size_t>(type)][static_cast<size_t>(node)];
  }
  int64_t original(int64_t internal) const { return original_[static_cast<size_t>(internal)]; }

  Book book(size_t rank) const {
    Book book = book_;
    book.rank = static_cast<int64_t>(rank);
    return book;
  }

  OwnPart<Index> part(size_t number) const {
    const int64_t first = book_.offsets[number * types()];
    return {graphs_[number], original_.data() + first, first, book_.num_nodes(), book_.num_edges};
  }

 private:
  struct Arrays {
    int64_t begin;  // of the edges among those of the relation
    std::vector<int64_t> indptr;
    std::vector<Index> indices;
    std::vector<int32_t> edge_ids, position;
  };

  int64_t size(size_t part, size_t type) const { return cuts_[type][part + 1] - cuts_[type][part]; }

  void number_nodes(size_t part, size_t type) {
    for (int64_t node = cuts_[type][part]; node < cuts_[type][part + 1]; ++node) {
      internal_[type][static_cast<size_t>(node)] = static_cast<int64_t>(original_.size());
      original_.push_back(node);
    }
    book_.offsets.push_back(static_cast<int64_t>(original_.size()));
  }

  // Returns the graph of a part.
  TypedGraph<Index> graph(size_t number) const {
    TypedGraph<Index> out;
    for (size_t type = 0; type < types(); ++type) out.num_nodes.push_back(size(number, type));
    for (size_t at = 0; at < graph_.relations.size(); ++at) {
      const Relation<Index>& whole = graph_.relations[at];
      const Arrays& own = arrays_[number][at];
      Relation<Index>& relation = out.relations.emplace_back(whole);
      relation.edges = {own.indptr.data(),
                        own.indices.data(),
                        {own.edge_ids.data(), false},
                        size(number, static_cast<size_t>(whole.target))};
      relation.source_ids = whole.edges.indices + own.begin;
      if (whole.time.time != nullptr) {
        relation.time = {whole.time.time + own.begin, {own.position.data(), false}};
      }
      if (whole.weights.sum != nullptr) {
        relation.weights = {whole.weights.sum + own.begin, whole.weights.weight + own.begin,
                            whole.weights.positive + own.begin};
      }
    }
    return out;
  }

  void fill(size_t part, size_t at) {
    const Relation<Index>& relation = graph_.relations[at];
    const std::vector<int64_t>& cut = cuts_[static_cast<size_t>(relation.target)];
    const Csc<Index>& edges = relation.edges;
    Arrays& out = arrays_[part][at];
    out.begin = edges.indptr[cut[part]];
    for (int64_t row = cut[part]; row <= cut[part + 1]; ++row) {
      out.indptr.push_back(edges.indptr[row] - out.begin);
    }
    const auto* ids = static_cast<const int32_t*>(edges.edge_ids.data);
    for (int64_t e = out.begin; e < edges.indptr[cut[part + 1]]; ++e) {
      out.indices.push_back(static_cast<Index>(internal(relation.source, edges.indices[e])));
      out.edge_ids.push_back(ids == nullptr ? static_cast<int32_t>(e) : ids[e]);
      if (relation.time.time != nullptr) {
        out.position.push_back(static_cast<int32_t>(relation.time[e] - out.begin));
      }
    }
    // Empty arrays have addresses, too: null means that there are no edge ids.
    out.indices.reserve(1);
    out.edge_ids.reserve(1);
  }

  const TypedGraph<Index>& graph_;
  std::vector<std::vector<int64_t>> cuts_, internal_;  // by type
  std::vector<int64_t> original_;                      // by internal id
  Book book_;
  std::vector<std::vector<Arrays>> arrays_;  // by part and relation
  std::vector<TypedGraph<Index>> graphs_;    // by part
};

}  // namespace pyg_batchgnn
