// Scratch objects that are kept between calls. Each is used by one thread at a time.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace pyg_batchgnn {

// The pool holds as many objects as were ever in use at the same time. Thread-safe.
template <class T>
class ObjectPool {
 public:
  // Lends an object for the lifetime of the loan.
  class Loan {
   public:
    Loan(ObjectPool& owner, std::unique_ptr<T> object) : owner_(owner), object_(std::move(object)) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { owner_.give(std::move(object_)); }
    T& operator*() const { return *object_; }

   private:
    ObjectPool& owner_;
    std::unique_ptr<T> object_;
  };

  Loan borrow() {
    std::unique_ptr<T> object = take();
    return Loan(*this, object != nullptr ? std::move(object) : std::make_unique<T>());
  }

  void clear() {
    std::vector<std::unique_ptr<T>> dropped;
    const std::lock_guard<std::mutex> guard(lock_);
    dropped.swap(idle_);
  }

  // No other lock is taken while this one is held.
  std::mutex& lock() { return lock_; }

 private:
  // Returns an idle object, or nothing.
  std::unique_ptr<T> take() {
    const std::lock_guard<std::mutex> guard(lock_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<T> object = std::move(idle_.back());
    idle_.pop_back();
    return object;
  }

  void give(std::unique_ptr<T> object) {
    const std::lock_guard<std::mutex> guard(lock_);
    idle_.push_back(std::move(object));
  }

  std::mutex lock_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace pyg_batchgnn
