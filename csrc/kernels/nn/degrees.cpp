#include "kernels/nn/degrees.h"

#include <algorithm>
#include <cmath>

namespace pyg_batchgnn {

template <class A>
void degree_scale(const int64_t* indptr, int64_t targets, int64_t nodes, int64_t loops, bool root, A* scale) {
  const auto scale_of = [&](int64_t degree) {
    if (degree == 0) return A{0};
    return A{1} / (root ? std::sqrt(static_cast<A>(degree)) : static_cast<A>(degree));
  };
  for (int64_t v = 0; v < std::min(targets, nodes); ++v)
    scale[v] = scale_of(indptr[v + 1] - indptr[v] + loops);
  std::fill(scale + std::min(targets, nodes), scale + nodes, scale_of(loops));
}

int64_t count_loops(const int64_t* indptr, Integers indices, int64_t targets) {
  int64_t loops = 0;
  for (int64_t i = 0; i < targets; ++i) {
    for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) loops += indices[e] == i ? 1 : 0;
  }
  return loops;
}

void drop_loops(const int64_t* indptr, Integers indices, int64_t targets, int64_t* new_indptr,
                int32_t* new_indices, int64_t* kept) {
  int64_t count = 0;
  new_indptr[0] = 0;
  for (int64_t i = 0; i < targets; ++i) {
    for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
      if (indices[e] == i) continue;
      new_indices[count] = static_cast<int32_t>(indices[e]);
      kept[count++] = e;
    }
    new_indptr[i + 1] = count;
  }
}

template void degree_scale(const int64_t*, int64_t, int64_t, int64_t, bool, float*);
template void degree_scale(const int64_t*, int64_t, int64_t, int64_t, bool, double*);

}  // namespace pyg_batchgnn
