#include <memory>
#include <utility>

#include "bindings/operators.h"
#include "bindings/sampled.h"
#include "kernels/relay/answer.h"
#include "kernels/relay/relay.h"

namespace pyg_batchgnn {
namespace {

// A relay of any types.
class AnyRelay {
 public:
  virtual ~AnyRelay() = default;
  virtual std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, Tensor> ask(int64_t threads) = 0;
  virtual Fault merge(const Replies& replies, int64_t threads) = 0;
  virtual std::tuple<std::vector<Tensor>, Tensor> take() = 0;
};

template <class Index, class Local>
class RelayOf : public AnyRelay {
 public:
  RelayOf(Plan plan, Layout layout, Book book, const SeedLists& seeds)
      : hops_(plan.fanouts.size()),
        edge_ids_(plan.edge_ids),
        layout_(layout),
        relay_(std::move(plan), layout, std::move(book), seeds) {}

  std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, Tensor> ask(int64_t threads) override {
    Questions<Index> asked = relay_.ask(threads);
    int64_t words = 0;
    for (const int64_t to : asked.words_to) words += to;
    return {adopt(std::move(asked.words), {words}), std::move(asked.words_to), std::move(asked.nodes_of),
            adopt(std::move(asked.own), {asked.own_words})};
  }

  Fault merge(const Replies& replies, int64_t threads) override {
    return relay_.merge(replies, threads, scratches<Index>());
  }

  std::tuple<std::vector<Tensor>, Tensor> take() override {
    std::vector<Sampled<Local>> sampled = relay_.take();
    ArrayList arrays(layout_, edge_ids_);
    CountTable counts(sampled.size(), 2 * hops_ + 1);
    for (Sampled<Local>& one : sampled) {
      counts.add(one.nodes_per_hop);
      counts.add(one.edges_per_hop);
      if (one.nodes > 0) arrays.add(std::move(one.node), one.nodes);
      arrays.add(std::move(one.edges));
    }
    return {arrays.take(), counts.take()};
  }

 private:
  const size_t hops_;
  const bool edge_ids_;
  const Layout layout_;
  Relay<Index, Local> relay_;
};

// The state of a relay is the memory of a tensor. It is freed with the tensor, also after an error.
struct State {
  static constexpr uint64_t kMark = 0x79616C6572u;
  uint64_t mark = kMark;
  std::unique_ptr<AnyRelay> relay;
};

void drop(void* state) { delete static_cast<State*>(state); }

AnyRelay& relay_of(const Tensor& state) {
  auto* held = static_cast<State*>(state.mutable_data_ptr());
  if (state.numel() != sizeof(State) || held->mark != State::kMark) {
    throw std::runtime_error("expected what relay_begin returned");
  }
  return *held->relay;
}

template <class Index>
std::unique_ptr<AnyRelay> make_relay(Plan plan, Layout layout, Book book, const SeedLists& seeds) {
  if (layout == Layout::kCoo) {
    return std::make_unique<RelayOf<Index, int64_t>>(std::move(plan), layout, std::move(book), seeds);
  }
  return std::make_unique<RelayOf<Index, int32_t>>(std::move(plan), layout, std::move(book), seeds);
}

}  // namespace

namespace operators {

Tensor relay_begin(const Tensor& seeds, const Tensor& originals, const Tensor& seed_ptr,
                   std::vector<int64_t> offsets, int64_t rank, int64_t num_edges, bool wide,
                   std::vector<int64_t> fanouts, bool replace, bool return_edge, bool coo, int64_t seed,
                   int64_t epoch) {
  Plan plan{std::move(fanouts), replace ? Replacement::kWith : Replacement::kWithout, return_edge,
            static_cast<uint64_t>(seed), static_cast<uint64_t>(epoch)};
  Book book{std::move(offsets), rank, num_edges};
  const SeedLists lists{data<int64_t>(seeds), data<int64_t>(originals), data<int64_t>(seed_ptr),
                        seed_ptr.numel() - 1};
  const Layout layout = coo ? Layout::kCoo : Layout::kCsc;
  auto state = std::make_unique<State>();
  state->relay = wide ? make_relay<int64_t>(std::move(plan), layout, std::move(book), lists)
                      : make_relay<int32_t>(std::move(plan), layout, std::move(book), lists);
  const std::vector<int64_t> size{sizeof(State)}, stride{1};
  const Tensor tensor = torch::stable::from_blob(state.get(), {size.data(), 1}, {stride.data(), 1},
                                                 torch::stable::Device(torch::headeronly::DeviceType::CPU),
                                                 ScalarType::Byte, &drop);
  state.release();
  return tensor;
}

std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, Tensor> relay_ask(const Tensor& state,
                                                                                 int64_t threads) {
  return relay_of(state).ask(threads);
}

std::tuple<Tensor, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>> relay_answer(
    const Tensor& indptr, const Tensor& indices, const Tensor& edge_ids, const Tensor& node, int64_t first,
    int64_t num_edges, const Tensor& requests, std::vector<int64_t> words_of, int64_t fanout, bool replace,
    bool return_edge, int64_t threads) {
  return with_integer(indices, [&](auto type) {
    using Index = decltype(type);
    const OwnPart<Index> part{{data<int64_t>(indptr), data<Index>(indices), edge_ids.const_data_ptr(),
                               is_wide(edge_ids), indptr.numel() - 1},
                              data<int64_t>(node),
                              first};
    const AnswerShape shape(fanout, num_edges, return_edge, sizeof(Index));
    Answers answers =
        answer(part, {data<Index>(requests), std::move(words_of)}, fanout,
               replace ? Replacement::kWith : Replacement::kWithout, shape, threads, scratches<Index>());
    int64_t words = 0;
    for (const int64_t to : answers.words_to) words += to;
    return std::tuple(adopt(std::move(answers.words), {words}), std::move(answers.words_to),
                      std::move(answers.picks_for),
                      std::vector<int64_t>{static_cast<int64_t>(answers.fault.error), answers.fault.peer,
                                           answers.fault.value});
  });
}

std::tuple<int64_t, int64_t, int64_t> relay_merge(const Tensor& state, const Tensor& own,
                                                  const Tensor& answers, std::vector<int64_t> words_of,
                                                  int64_t threads) {
  const Replies replies{data<int64_t>(answers), std::move(words_of), data<int64_t>(own), own.numel()};
  const Fault fault = relay_of(state).merge(replies, threads);
  return {static_cast<int64_t>(fault.error), fault.peer, fault.value};
}

std::tuple<std::vector<Tensor>, Tensor> relay_take(const Tensor& state) { return relay_of(state).take(); }

}  // namespace operators
}  // namespace pyg_batchgnn
