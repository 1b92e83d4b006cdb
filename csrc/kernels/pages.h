// Memory pages of the operating system, huge ones if available. Only this kernel makes system
// calls.
#pragma once

#include <cstddef>

namespace pyg_batchgnn {

constexpr size_t kHugePage = size_t{2} << 20;

// Returns zeroed pages, aligned to a huge page if `bytes` is at least that large. Throws
// std::bad_alloc.
void* map_pages(size_t bytes);

void unmap_pages(void* pages, size_t bytes) noexcept;

// Asks the system for huge pages inside [data, data + bytes): at once if possible (MADV_COLLAPSE,
// Linux 6.1), else over time. Contents and addresses do not change. A refusal is no error.
//
// Memory that a fork shares with other processes stays as it is. Three pages are looked at: one at
// the start, one in the middle and one near the end. If the system does not tell whether they are
// shared (/proc/self/pagemap cannot be read), huge pages are asked for over time only.
void advise_huge_pages(const void* data, size_t bytes);

}  // namespace pyg_batchgnn
