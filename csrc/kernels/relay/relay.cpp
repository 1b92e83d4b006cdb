#include "kernels/relay/relay.h"

#include <algorithm>
#include <utility>

#include "kernels/relay/ask.h"
#include "kernels/relay/merge.h"
#include "kernels/relay/write_question.h"

namespace pyg_batchgnn {

template <class Index, class Local, class Naming>
Relay<Index, Local, Naming>::Relay(Plan plan, Layout layout, Book book, const SeedLists& seeds,
                                   const QuestionShape& shape)
    : plan_(std::move(plan)),
      layout_(layout),
      book_(std::move(book)),
      shape_(shape),
      naming_(book_.num_nodes()),
      excluded_(seeds.excluded, seeds.excluded + 5 * seeds.excluded_count) {
  std::vector<int64_t> begins;
  for (int64_t b = 0; b < seeds.minibatches; ++b) {
    const Seeds own = seeds.of(b, &begins);
    Minibatch& minibatch = minibatches_.emplace_back(plan_, book_);
    minibatch.key = own.key;
    minibatch.excluded = own;
    minibatch.excluded.excluded = excluded_.data();
    const int64_t examples = read_examples(own, begins.back(), book_.num_nodes(), &minibatch.latest);
    for (size_t type = 0; type < types(); ++type) {
      const int64_t* example = Naming::kDisjoint ? own.example + begins[type] : nullptr;
      minibatch.growth.take_seeds(type, naming_, own.node + begins[type], example,
                                  begins[type + 1] - begins[type], examples * book_.num_nodes());
    }
  }
  nodes_.resize(minibatches_.size() * parts() * types());
  blocks_.resize(minibatches_.size() * parts());
}

template <class Index, class Local, class Naming>
std::vector<SampledMinibatch<Local>> Relay<Index, Local, Naming>::take() {
  std::vector<SampledMinibatch<Local>> sampled;
  for (Minibatch& minibatch : minibatches_) {
    for (size_t relation = 0; relation < book_.relations(); ++relation) {
      const Nodes<Id>& targets = minibatch.growth.nodes(static_cast<size_t>(book_.target[relation]));
      const bool induced = plan_.subgraph == Subgraph::kInduced;
      minibatch.growth.take_edges(relation, layout_, induced ? targets.count() : targets.first());
    }
    sampled.push_back(minibatch.growth.take([&](size_t) { return naming_; }));
  }
  return sampled;
}

template class Relay<int32_t, int32_t, SharedNodes>;
template class Relay<int32_t, int64_t, SharedNodes>;
template class Relay<int64_t, int32_t, SharedNodes>;
template class Relay<int64_t, int64_t, SharedNodes>;
template class Relay<int32_t, int32_t, DisjointNodes>;
template class Relay<int32_t, int64_t, DisjointNodes>;
template class Relay<int64_t, int32_t, DisjointNodes>;
template class Relay<int64_t, int64_t, DisjointNodes>;

}  // namespace pyg_batchgnn
