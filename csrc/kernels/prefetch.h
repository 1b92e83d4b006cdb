// Prefetching of cache lines.
#pragma once

namespace pyg_batchgnn {

// Prefetches the cache line of an address, which need not be valid. The line comes into the second
// level, which waits for more lines at a time than the first. Compilers take a function that does
// nothing but __builtin_prefetch for one without effect. The empty assembly is an effect.
inline void prefetch_line(const void* address) {
  constexpr int kRead = 0, kSecondLevel = 2;
  __builtin_prefetch(address, kRead, kSecondLevel);
  asm volatile("");
}

}  // namespace pyg_batchgnn
