#include "ccl/store_kvs.h"

#include <thread>

#include "ccl/engine.h"

namespace pyg_batchgnn {
namespace {

// The pause between two polls for a value that is absent or has not changed.
constexpr std::chrono::microseconds kPause(500);

std::string text_of(const ::ccl::string_class& key) { return "ccl/" + std::string(key.c_str()); }

}  // namespace

StoreKvs::StoreKvs(c10::intrusive_ptr<c10d::Store> store, std::chrono::steady_clock::time_point deadline)
    : store_(std::move(store)), deadline_(deadline) {}

::ccl::vector_class<char> StoreKvs::get(const ::ccl::string_class& key) {
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

void StoreKvs::set(const ::ccl::string_class& key, const ::ccl::vector_class<char>& data) {
  const Engine::Unlocked unlocked;
  try {
    store_->set(text_of(key), std::vector<uint8_t>(data.begin(), data.end()));
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
}

}  // namespace pyg_batchgnn
