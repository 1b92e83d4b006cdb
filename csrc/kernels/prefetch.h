// Prefetching of cache lines.
#pragma once

namespace pyg_batchgnn {

// Prefetches the cache line of an address, which need not be valid. Compilers take a function that
// does nothing but __builtin_prefetch for one without effect, and drop its calls. The empty
// assembly is an effect.
inline void prefetch_line(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

}  // namespace pyg_batchgnn
