#include "ccl/group.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ccl/engine.h"

namespace pyg_batchgnn {
namespace {

// oneCCL's rendezvous over torch's store. It needs no server, port or interface of its own.

// oneCCL calls it on the thread that makes a communicator, which holds the engine's lock. The lock
// is released while the store is asked, so that other groups can go on.
class StoreKvs final : public ::ccl::kvs_interface {
 public:
  StoreKvs(c10::intrusive_ptr<c10d::Store> store, std::chrono::steady_clock::time_point deadline)
      : store_(std::move(store)), deadline_(deadline) {}

  // Returns the value, or nothing if there is none yet: oneCCL asks again. Throws after the
  // deadline, and throws the error of an earlier `set`.
  ::ccl::vector_class<char> get(const ::ccl::string_class& key) override {
    const Engine::Unlocked unlocked;
    TORCH_CHECK_WITH(DistBackendError, failure_.empty(), "ccl: the store failed: ", failure_);
    TORCH_CHECK_WITH(DistBackendError, std::chrono::steady_clock::now() < deadline_,
                     "ccl: timed out waiting for other ranks to make the same group");
    const std::string name = text_of(key);
    ::ccl::vector_class<char> value;
    if (store_->check({name})) {
      const std::vector<uint8_t> bytes = store_->get(name);
      value.assign(bytes.begin(), bytes.end());
    }
    if (value.empty() || (name == last_key_ && value == last_value_)) std::this_thread::sleep_for(kPause);
    last_key_ = name;
    last_value_ = value;
    return value;
  }

  // Never throws, because oneCCL calls it in destructors.
  void set(const ::ccl::string_class& key, const ::ccl::vector_class<char>& data) override {
    const Engine::Unlocked unlocked;
    try {
      store_->set(text_of(key), std::vector<uint8_t>(data.begin(), data.end()));
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

 private:
  // The pause between two polls for a value that is absent or has not changed.
  static constexpr std::chrono::microseconds kPause{500};

  static std::string text_of(const ::ccl::string_class& key) { return "ccl/" + std::string(key.c_str()); }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::chrono::steady_clock::time_point deadline_;
  std::string failure_;
  std::string last_key_;
  ::ccl::vector_class<char> last_value_;
};

// After the store's deadline, the thread that makes the group needs this long to report it.
constexpr std::chrono::milliseconds kGrace(1000);

// One group is made at a time, because oneCCL holds locks of its own while it asks the store.
std::timed_mutex& making() {
  static auto* mutex = new std::timed_mutex;
  return *mutex;
}

// oneCCL closes its connections with the last communicator, and cannot always open them again. So
// the first communicator is never destroyed.
void keep_transport(const std::shared_ptr<Group>& group) {
  static auto* first = new std::shared_ptr<Group>;
  if (!*first) *first = group;
}

// oneCCL prints the settings that are not its defaults, unless CCL_LOG_LEVEL is error.
void start_library() {
  const char* level = std::getenv("CCL_LOG_LEVEL");
  const bool quiet = level != nullptr && std::string_view(level) == "error";
  const auto state = std::cout.rdstate();
  if (quiet) std::cout.setstate(std::ios::badbit);
  ::ccl::init();
  if (quiet) std::cout.clear(state);
}

std::shared_ptr<Group> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                            Clock::time_point deadline) {
  const std::unique_lock<std::timed_mutex> turn(making(), deadline);
  TORCH_CHECK_WITH(DistBackendError, turn.owns_lock(), "ccl: timed out; another group is still being made");
  const Engine::Locked locked(deadline);
  start_library();
  Engine::get().watch_exit();
  auto kvs = std::make_shared<StoreKvs>(store, deadline);
  auto group = std::make_shared<Group>(rank, size, ::ccl::create_communicator(size, rank, kvs));
  keep_transport(group);
  return group;
}

}  // namespace

std::shared_ptr<Group> Group::meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::packaged_task<std::shared_ptr<Group>()> task([=] { return make(store, rank, size, deadline); });
  auto made = task.get_future();
  std::thread(std::move(task)).detach();
  if (made.wait_until(deadline + kGrace) != std::future_status::ready) {
    Engine::get().leave_as_it_is();
    C10_THROW_ERROR(DistBackendError, "ccl: timed out while the ranks of a group connected to each other");
  }
  try {
    return made.get();
  } catch (const std::exception& error) {
    Engine::get().leave_as_it_is();
    C10_THROW_ERROR(DistBackendError, c10::str("ccl: cannot make a group: ", error.what()));
  }
}

Group::Group(int rank, int size, ::ccl::communicator&& communicator)
    : rank(rank), size(size), communicator_(std::make_unique<::ccl::communicator>(std::move(communicator))) {}

Group::~Group() {
  try {
    const Engine::Locked locked(Clock::now() + kGrace);
    if (broken_.empty()) {
      communicator_.reset();
      return;
    }
  } catch (const std::exception&) {  // oneCCL is stuck, or does not release it
    Engine::get().leave_as_it_is();
  }
  static_cast<void>(communicator_.release());
}

void Group::abandon(const std::string& why) {
  if (broken_.empty()) broken_ = why;
  Engine::get().leave_as_it_is();
}

}  // namespace pyg_batchgnn
