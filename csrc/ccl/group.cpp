#include "ccl/group.h"

#include <cstdlib>
#include <future>
#include <iostream>
#include <mutex>
#include <string_view>
#include <thread>

#include "ccl/engine.h"
#include "ccl/store_kvs.h"

namespace pyg_batchgnn {
namespace {

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

// oneCCL prints the settings that are not its defaults to standard output. With CCL_LOG_LEVEL=error
// the output is suppressed.
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
