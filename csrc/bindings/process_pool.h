// Scratch objects of the process, also of a child that is forked while another thread uses them.
#pragma once

#include "kernels/object_pool.h"

#if defined(__linux__)
#include <pthread.h>
#endif

namespace pyg_batchgnn {

// Returns the process's pool of a type. It is never destroyed.
template <class T>
ObjectPool<T>& process_pool() {
  static auto* const pool = [] {
#if defined(__linux__)
    // A child that is forked while another thread holds the lock would wait forever.
    pthread_atfork([] { process_pool<T>().lock().lock(); }, [] { process_pool<T>().lock().unlock(); },
                   [] { process_pool<T>().lock().unlock(); });
#endif
    return new ObjectPool<T>();
  }();
  return *pool;
}

}  // namespace pyg_batchgnn
