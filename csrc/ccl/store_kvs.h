// oneCCL's meeting place is torch's store: no server of its own, no port, no interface to choose.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ccl/library.h"

namespace pyg_batchgnn {

// Called by oneCCL on the thread that makes a communicator, which holds the engine's lock: it is given up
// while the store is asked, for other groups go on meanwhile.
class StoreKvs final : public ::ccl::kvs_interface {
 public:
  StoreKvs(c10::intrusive_ptr<c10d::Store> store, std::chrono::steady_clock::time_point deadline);

  // The value, or nothing where there is none yet: oneCCL asks again. Throws after the deadline, and what a
  // `set` before it met.
  ::ccl::vector_class<char> get(const ::ccl::string_class& key) override;

  // Never throws: oneCCL calls it in destructors.
  void set(const ::ccl::string_class& key, const ::ccl::vector_class<char>& data) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::chrono::steady_clock::time_point deadline_;
  std::string failure_;
  std::string last_key_;
  ::ccl::vector_class<char> last_value_;
};

}  // namespace pyg_batchgnn
