// Scratch objects of the process, also of a child that is forked while another thread uses them.
#pragma once

#include <atomic>

#include "kernels/object_pool.h"

#if defined(__linux__)
#include <pthread.h>
#endif

namespace pyg_batchgnn {

// What clears a pool. Entries are never removed. A lock of the list would stay locked in a child
// that is forked meanwhile.
struct PoolClearer {
  void (*clear)();
  PoolClearer* next;
};

inline std::atomic<PoolClearer*> pool_clearers{nullptr};

// Frees the objects that no call uses, in the pools of all types.
inline void clear_process_pools() {
  for (const PoolClearer* one = pool_clearers.load(); one != nullptr; one = one->next) one->clear();
}

// Returns the process's pool of a type. It is never destroyed.
template <class T>
ObjectPool<T>& process_pool() {
  static auto* const pool = [] {
#if defined(__linux__)
    // A child that is forked while another thread holds the lock would wait forever.
    pthread_atfork([] { process_pool<T>().lock().lock(); }, [] { process_pool<T>().lock().unlock(); },
                   [] { process_pool<T>().lock().unlock(); });
#endif
    auto* const clearer = new PoolClearer{[] { process_pool<T>().clear(); }, pool_clearers.load()};
    while (!pool_clearers.compare_exchange_weak(clearer->next, clearer)) {
    }
    return new ObjectPool<T>();
  }();
  return *pool;
}

}  // namespace pyg_batchgnn
