// oneCCL's rendezvous over torch's store. It needs no server, port or interface of its own.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ccl/library.h"

namespace pyg_batchgnn {

// oneCCL calls it on the thread that makes a communicator, which holds the engine's lock. The lock
// is released while the store is asked, so that other groups can go on.
class StoreKvs final : public ::ccl::kvs_interface {
 public:
  StoreKvs(c10::intrusive_ptr<c10d::Store> store, std::chrono::steady_clock::time_point deadline);

  // Returns the value, or nothing if there is none yet: oneCCL asks again. Throws after the
  // deadline, and throws the error of an earlier `set`.
  ::ccl::vector_class<char> get(const ::ccl::string_class& key) override;

  // Never throws, because oneCCL calls it in destructors.
  void set(const ::ccl::string_class& key, const ::ccl::vector_class<char>& data) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::chrono::steady_clock::time_point deadline_;
  std::string failure_;
  std::string last_key_;
  ::ccl::vector_class<char> last_value_;
};

}  // namespace pyg_batchgnn
