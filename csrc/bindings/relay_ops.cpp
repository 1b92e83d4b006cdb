#include <memory>
#include <utility>

#include "bindings/operators.h"
#include "bindings/sampled.h"
#include "bindings/tensors.h"
#include "kernels/relay/answer.h"
#include "kernels/relay/relay.h"

namespace pyg_batchgnn {
namespace {

std::vector<int64_t> list_of(const Fault& fault) {
  return {static_cast<int64_t>(fault.error), fault.peer, fault.value};
}

// A relay of any types.
class AnyRelay {
 public:
  virtual ~AnyRelay() = default;
  virtual std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, Tensor> ask(int64_t threads) = 0;
  virtual Fault merge(const Replies& replies, int64_t threads) = 0;
  virtual Minibatches take() = 0;
};

template <class Index, class Naming>
class RelayOf : public AnyRelay {
 public:
  RelayOf(Plan plan, bool coo, Book book, const SeedLists& seeds, const QuestionShape& shape)
      : form_{coo, plan.edge_ids}, relay_(std::move(plan), std::move(book), seeds, shape) {}

  std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, Tensor> ask(int64_t threads) override {
    Questions<Index> asked = relay_.ask(threads);
    const int64_t words = sum_of(asked.words_to);
    return {adopt(std::move(asked.words), {words}), std::move(asked.words_to), std::move(asked.nodes_of),
            adopt(std::move(asked.own), {asked.own_words})};
  }

  Fault merge(const Replies& replies, int64_t threads) override {
    threads_ = threads;
    return relay_.merge(replies, threads, process_pool<Scratch<Index>>());
  }

  Minibatches take() override {
    std::vector<SampledMinibatch> sampled = relay_.take();
    run_tasks(static_cast<int64_t>(sampled.size()), threads_,
              [&](int64_t b, int64_t) { form_.apply(&sampled[static_cast<size_t>(b)]); });
    return collect(std::move(sampled), form_);
  }

 private:
  const EdgeForm form_;
  Relay<Index, Naming> relay_;
  int64_t threads_ = 1;  // of the latest merge
};

template <class Index>
std::unique_ptr<AnyRelay> make_relay(Plan plan, bool coo, Book book, const SeedLists& seeds,
                                     const QuestionShape& shape) {
  if (!shape.disjoint) {
    return std::make_unique<RelayOf<Index, SharedNodes>>(std::move(plan), coo, std::move(book), seeds, shape);
  }
  return std::make_unique<RelayOf<Index, DisjointNodes>>(std::move(plan), coo, std::move(book), seeds, shape);
}

}  // namespace

namespace operators {

Tensor relay_begin(const Tensor& seeds, const Tensor& seed_ptr, const Tensor& keys,
                   const OptionalTensor& example, const OptionalTensor& time, const OptionalTensor& excluded,
                   std::vector<int64_t> offsets, int64_t types, int64_t rank, std::vector<int64_t> source,
                   std::vector<int64_t> target, std::vector<int64_t> num_edges, bool wide, bool disjoint,
                   bool timed, bool excluding, const Tensor& rules, bool coo, int64_t seed, int64_t epoch) {
  auto plan = plan_of<Plan>(rules, seed, epoch);
  Book book{std::move(offsets), types, rank, std::move(source), std::move(target), std::move(num_edges)};
  const SeedLists lists =
      seeds_of(seeds, seed_ptr, keys, static_cast<size_t>(types), example, time, excluded);
  const QuestionShape shape{types, disjoint, timed, excluding};
  return hold(wide ? make_relay<int64_t>(std::move(plan), coo, std::move(book), lists, shape)
                   : make_relay<int32_t>(std::move(plan), coo, std::move(book), lists, shape));
}

std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, Tensor> relay_ask(const Tensor& state,
                                                                                 int64_t threads) {
  return held<AnyRelay>(state).ask(threads);
}

std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>> relay_answer(
    const Tensor& graph, const Tensor& node, int64_t first, int64_t all_nodes, std::vector<int64_t> num_edges,
    const Tensor& requests, std::vector<int64_t> words_of, bool disjoint, bool timed, bool excluding,
    int64_t hop, const Tensor& rules, int64_t threads) {
  const Plan& plan = held<Plan>(rules);
  const auto& own = held<HeldGraph>(graph);
  const QuestionShape shape{static_cast<int64_t>(own.num_types()), disjoint, timed, excluding};
  return own.with_graph([&]<class Index>(const TypedGraph<Index>& typed) {
    const OwnPart<Index> part{typed, data<int64_t>(node), first, all_nodes, std::move(num_edges)};
    const Requests<Index> asked{data<Index>(requests), std::move(words_of), shape};
    Answers answers = answer(part, plan, hop, asked, threads, process_pool<Scratch<Index>>());
    return std::tuple(adopt(std::move(answers.words), {sum_of(answers.words_to)}), answers.words_to,
                      answers.picks_for, list_of(answers.fault));
  });
}

std::tuple<Tensor, Tensor, std::vector<int64_t>, std::vector<int64_t>> relay_answer_open(
    const Tensor& graph, int64_t all_nodes, std::vector<int64_t> num_edges, const Tensor& question,
    bool disjoint, bool timed, bool excluding, int64_t hop, const Tensor& rules, int64_t threads) {
  const Plan& plan = held<Plan>(rules);
  const auto& whole = held<HeldGraph>(graph);
  const QuestionShape shape{static_cast<int64_t>(whole.num_types()), disjoint, timed, excluding};
  return whole.with_graph([&]<class Index>(const TypedGraph<Index>& typed) {
    const OwnPart<Index> part{typed, nullptr, 0, all_nodes, std::move(num_edges)};
    const Requests<Index> asked{data<Index>(question), {question.numel()}, shape};
    OpenAnswers open = answer_open(part, plan, hop, asked, threads, process_pool<Scratch<Index>>());
    const int64_t words = sum_of(open.answers.words_to);
    int64_t picks = 0;
    std::vector<int64_t> sections;
    for (const OpenAnswers::Section& one : open.sections) {
      sections.insert(sections.end(),
                      {one.relation, one.picks, one.edges_at, one.sources_at, one.edge_bytes});
      picks += one.picks;
    }
    return std::tuple(adopt(std::move(open.answers.words), {words}), adopt(std::move(open.position), {picks}),
                      sections, list_of(open.answers.fault));
  });
}

std::tuple<int64_t, int64_t, int64_t> relay_merge(const Tensor& state, const Tensor& own,
                                                  const Tensor& answers, std::vector<int64_t> words_of,
                                                  int64_t threads) {
  const Replies replies{data<int64_t>(answers), std::move(words_of), data<int64_t>(own), own.numel()};
  const Fault fault = held<AnyRelay>(state).merge(replies, threads);
  return {static_cast<int64_t>(fault.error), fault.peer, fault.value};
}

Minibatches relay_take(const Tensor& state) { return held<AnyRelay>(state).take(); }

}  // namespace operators
constexpr Operator kOperators[] = {
    OPERATOR(relay_begin,
             "(Tensor seeds, Tensor seed_ptr, Tensor keys, Tensor? example, Tensor? time, Tensor? excluded, "
             "int[] offsets, int types, int rank, int[] source, int[] target, int[] num_edges, bool wide, "
             "bool disjoint, bool timed, bool excluding, Tensor rules, bool coo, int seed, int epoch) -> "
             "Tensor"),
    OPERATOR(relay_ask,
             "(Tensor(a!) state, int threads) -> (Tensor words, int[] counts, int[] nodes, Tensor own)"),
    OPERATOR(relay_answer,
             "(Tensor graph, Tensor node, int first, int all_nodes, int[] num_edges, Tensor requests, int[] "
             "words_of, bool disjoint, bool timed, bool excluding, int hop, Tensor rules, int threads) -> "
             "(Tensor words, int[] counts, int[] picks, int[] fault)"),
    OPERATOR(relay_answer_open,
             "(Tensor graph, int all_nodes, int[] num_edges, Tensor question, bool disjoint, bool timed, "
             "bool excluding, int hop, Tensor rules, int threads) -> (Tensor words, Tensor position, int[] "
             "sections, int[] fault)"),
    OPERATOR(relay_merge,
             "(Tensor(a!) state, Tensor own, Tensor answers, int[] words_of, int threads) -> (int error, "
             "int peer, int value)"),
    OPERATOR(relay_take, "(Tensor(a!) state) -> (Tensor[] arrays, Tensor counts)"),
};

PYG_BATCHGNN_REGISTER(kOperators)

}  // namespace pyg_batchgnn
