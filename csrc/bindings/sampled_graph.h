// The arguments of sampling operators as the kernels take them: the graph, and the seeds of all
// minibatches.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/held.h"
#include "bindings/tensors.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/plan.h"

namespace pyg_batchgnn {

// The seeds of all minibatches.
struct AllSeeds {
  const int64_t* node;  // by minibatch, then by type
  const int64_t* ptr;   // [minibatches * types + 1]
  const uint64_t* key;  // [minibatches]
  int64_t minibatches;
  int64_t types;
  const int64_t* example = nullptr;
  const int64_t* time = nullptr;
  const int64_t* excluded = nullptr;  // [5, excluded_count], see Seeds
  int64_t excluded_count = 0;

  AllSeeds(const Tensor& seeds, const Tensor& seed_ptr, const Tensor& keys, size_t num_types)
      : node(data<int64_t>(seeds)),
        ptr(data<int64_t>(seed_ptr)),
        key(reinterpret_cast<const uint64_t*>(data<int64_t>(keys))),
        minibatches(keys.numel()),
        types(static_cast<int64_t>(num_types)) {}

  // Fills `begins` with the begin of each type's seeds.
  Seeds of(int64_t minibatch, std::vector<int64_t>* begins) const {
    const int64_t* from = ptr + minibatch * types;
    begins->resize(static_cast<size_t>(types) + 1);
    for (size_t type = 0; type < begins->size(); ++type) (*begins)[type] = from[type] - from[0];
    Seeds seeds{node + from[0], begins->data(), key[minibatch]};
    if (example != nullptr) seeds.example = example + from[0];
    if (time != nullptr) seeds.time = time + from[0];
    seeds.excluded = excluded;
    seeds.excluded_stride = excluded_count;
    const auto [first, last] = std::equal_range(excluded, excluded + excluded_count, minibatch);
    seeds.excluded_begin = first - excluded;
    seeds.excluded_end = last - excluded;
    return seeds;
  }
};

// Returns the tensor's data, null if it is empty.
template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : data<T>(tensor);
}

// The arrays of the relations, each one per relation; `order` and `weights` may be empty.
struct RelationArrays {
  std::vector<Tensor> indptr, indices, edge_ids;
  std::vector<int64_t> source, target, digest;
  std::vector<Tensor> order;    // time and position of each relation
  std::vector<Tensor> weights;  // sum, weight and positive of each relation

  template <class Index>
  Relation<Index> relation(size_t number) const {
    Relation<Index> out;
    const Tensor& ids = edge_ids[number];
    out.edges = {data<int64_t>(indptr[number]), data<Index>(indices[number]),
                 ids.numel() == 0 ? nullptr : ids.const_data_ptr(), is_wide(ids), indptr[number].numel() - 1};
    out.source = source[number];
    out.target = target[number];
    out.digest = static_cast<uint64_t>(digest[number]);
    if (!order.empty()) {
      const Tensor& position = order[2 * number + 1];
      out.time = {data_or_null<int64_t>(order[2 * number]), position.const_data_ptr(), is_wide(position)};
    }
    if (!weights.empty()) {
      out.weights = {data_or_null<double>(weights[3 * number]), data_or_null<double>(weights[3 * number + 1]),
                     data_or_null<int64_t>(weights[3 * number + 2])};
    }
    return out;
  }
};

// A graph in the type of its indices, as operators hold it from one call to the next.
class HeldGraph {
 public:
  HeldGraph(std::vector<int64_t> num_nodes, const RelationArrays& arrays) : num_types_(num_nodes.size()) {
    for (const auto* list :
         {&arrays.indptr, &arrays.indices, &arrays.edge_ids, &arrays.order, &arrays.weights}) {
      for (const Tensor& array : *list) arrays_.push_back({array, array.const_data_ptr(), array.numel()});
    }
    const auto fill = [&](auto type) {
      using Index = decltype(type);
      TypedGraph<Index> graph{std::move(num_nodes), {}};
      for (size_t number = 0; number < arrays.indptr.size(); ++number) {
        graph.relations.push_back(arrays.template relation<Index>(number));
      }
      graph_ = std::move(graph);
    };
    arrays.indices.empty() ? fill(int64_t{}) : with_integer(arrays.indices.front(), fill);
  }

  size_t num_types() const { return num_types_; }

  // Calls body with the graph. Throws if an array was resized or given other memory.
  template <class Body>
  auto with_graph(const Body& body) const {
    for (const Array& one : arrays_) {
      if (one.tensor.numel() != one.size || one.tensor.const_data_ptr() != one.data) {
        throw std::runtime_error("an array of the graph was resized or replaced; make a new sampler");
      }
    }
    return std::visit(body, graph_);
  }

 private:
  struct Array {
    Tensor tensor;
    const void* data;
    int64_t size;
  };
  size_t num_types_;
  std::vector<Array> arrays_;
  std::variant<TypedGraph<int32_t>, TypedGraph<int64_t>> graph_;
};

}  // namespace pyg_batchgnn
