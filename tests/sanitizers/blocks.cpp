// Blocks come from malloc in exactly the size asked for, not from the cache, whose blocks are
// rounded up: an access behind what was asked for is then an access behind the block, which the
// sanitizer sees.
#include <cstddef>
#include <cstdlib>

#include "kernels/allocation.h"

namespace pyg_batchgnn {

void* allocate_block(size_t bytes) {
  auto* block = static_cast<size_t*>(std::malloc(bytes + 64));
  *block = bytes;
  return reinterpret_cast<char*>(block) + 64;
}

void release_block(void* block) noexcept { std::free(static_cast<char*>(block) - 64); }

size_t block_capacity(const void* block) noexcept {
  return *reinterpret_cast<const size_t*>(static_cast<const char*>(block) - 64);
}

}  // namespace pyg_batchgnn
