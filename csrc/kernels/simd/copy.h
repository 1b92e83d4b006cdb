// Streaming copies with the widest stores that the processor at hand has.
#pragma once

#include <cstddef>

namespace pyg_batchgnn {

// Copies `bytes`, a multiple of 64, from `from` to `to`, which is aligned to 64. Where the processor allows,
// the stores go past the caches: what is written is larger than they are and is not read again soon.
using StreamCopy = void (*)(void* to, const void* from, size_t bytes);

StreamCopy stream_copy() noexcept;

// "avx512", "avx2" or "baseline".
const char* stream_copy_name() noexcept;

}  // namespace pyg_batchgnn
