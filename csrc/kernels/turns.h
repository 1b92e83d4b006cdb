// Turns of processes that share memory. Each process announces the number of its turn in a word of
// its own, and waits until the words of others have come to a turn.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// Announces a turn. Whoever sees the number also sees all that this process wrote before it.
//
// `word` is aligned to its size, and in memory that other processes map as well. The numbers of a
// process ascend, and they start again after 2^32.
void announce_turn(uint32_t* word, uint32_t turn);

// Waits until a process has announced a turn or a later one. Returns whether it has; false once the
// time is over, and earlier if a signal came, so that the caller can look at it.
bool wait_for_turn(const uint32_t* word, uint32_t turn, double seconds);

}  // namespace pyg_batchgnn
