// Numbers the neighbours of a process's own nodes: own nodes first, then ghosts.
#pragma once

#include <cstdint>
#include <vector>

namespace pyg_batchgnn {

// Returns the ghosts: the distinct ids outside [first, first + nodes), ascending. It takes one bit
// for each of the `total` nodes of all processes.
//   local: [count], is set to id - first for own nodes, and to nodes + the number of the ghost for
//     others. It may be the array of the ids itself.
template <class Id>
std::vector<Id> number_ghosts(const Id* ids, int64_t count, int64_t first, int64_t nodes, int64_t total,
                              int32_t* local);

}  // namespace pyg_batchgnn
