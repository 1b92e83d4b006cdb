// The errors of a message.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

enum class WireError : int64_t {
  kNothing = 0,
  kBlocks = 1,  // value: the number of words
  kNode = 2,    // value: a node that this rank does not own
  kPicks = 3,   // value: more picks of one node than the plan allows
  kLength = 4,  // value: the number of words, which differs from what the counts say
  kSource = 5,  // value: a source that is not a node
};

struct Fault {
  WireError error = WireError::kNothing;
  int64_t peer = -1;
  int64_t value = 0;
  explicit operator bool() const { return error != WireError::kNothing; }
};

}  // namespace pyg_batchgnn
