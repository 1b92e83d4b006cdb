// The room that is left in each part, or in each cluster, by constraint.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pyg_batchgnn {

// Room is negative where a limit is exceeded.
class Rooms {
 public:
  // room: [groups, constraints].
  Rooms(int64_t constraints, int64_t* room) : constraints_(constraints), room_(room) {}

  int64_t constraints() const { return constraints_; }
  int64_t* of(int64_t group) const { return room_ + group * constraints_; }

  // Returns whether a node of these weights may join the group. A limit that the node does not add
  // to does not count.
  bool fits(const int32_t* weight, int64_t group) const {
    const int64_t* const room = of(group);
    for (int64_t k = 0; k < constraints_; ++k)
      if (weight[k] > 0 && room[k] < weight[k]) return false;
    return true;
  }

  void move(const int32_t* weight, int64_t from, int64_t to) const {
    int64_t* const left = of(from);
    int64_t* const joined = of(to);
    for (int64_t k = 0; k < constraints_; ++k) {
      left[k] += weight[k];
      joined[k] -= weight[k];
    }
  }

 private:
  int64_t constraints_;
  int64_t* room_;
};

// The limits by which excess is measured.
//   share: [constraints], what one unit of each weight counts: 1 over the limit, 0 without limit.
struct Excess {
  const double* share;

  // Returns by how much a group exceeds its limits.
  double of(const Rooms& rooms, int64_t group) const {
    double excess = 0;
    const int64_t* const room = rooms.of(group);
    for (int64_t k = 0; k < rooms.constraints(); ++k)
      if (room[k] < 0) excess -= static_cast<double>(room[k]) * share[k];
    return excess;
  }

  // Returns by how much the excess of the group grows with a node of these weights; negative
  // weights leave it.
  double growth(const Rooms& rooms, int64_t group, const int32_t* weight, int64_t sign) const {
    double growth = 0;
    const int64_t* const room = rooms.of(group);
    for (int64_t k = 0; k < rooms.constraints(); ++k) {
      const int64_t then = room[k] - sign * weight[k];
      growth += static_cast<double>(std::min<int64_t>(room[k], 0) - std::min<int64_t>(then, 0)) * share[k];
    }
    return growth;
  }
};

}  // namespace pyg_batchgnn
