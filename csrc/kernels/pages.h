// Pages from the operating system, in huge pages where it has them. The only kernel that knows the system's
// calls.
#pragma once

#include <cstddef>

namespace pyg_batchgnn {

constexpr size_t kHugePage = size_t{2} << 20;

// Zeroed pages, aligned to a huge page when `bytes` is at least one. Throws std::bad_alloc.
void* map_pages(size_t bytes);

void unmap_pages(void* pages, size_t bytes) noexcept;

// Asks the system to back the whole huge pages inside [data, data + bytes) by huge pages, now where it can
// (MADV_COLLAPSE, Linux 6.1), else in time. Advice only: contents and addresses stay, and a refusal is no
// error.
void advise_huge_pages(const void* data, size_t bytes) noexcept;

}  // namespace pyg_batchgnn
