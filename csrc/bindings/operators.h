// The registration of operators. Each file of operators ends with a table of its own: name, schema
// and, in namespace `operators`, a function of that name. The wrappers in pyg_batchgnn/ops/ check
// the arguments and document them and the results.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bindings/tensors.h"

namespace pyg_batchgnn {

struct Operator {
  const char* name;
  const char* schema;
  void (*boxed)(StableIValue*, uint64_t, uint64_t);

  // Torch chooses a kernel by the device of the tensor arguments, lists and optional ones apart.
  constexpr bool takes_tensor() const {
    const std::string_view text = schema;
    const std::string_view arguments = text.substr(0, text.find("->"));
    for (const std::string_view tensor : {"Tensor ", "Tensor("}) {
      if (arguments.find(tensor) != std::string_view::npos) return true;
    }
    return false;
  }
};

using Library = torch::stable::detail::StableLibrary;

inline void define(Library& library, std::span<const Operator> operators) {
  for (const Operator& one : operators) library.def(one.schema);
}

inline void implement(Library& library, bool takes_tensor, std::span<const Operator> operators) {
  for (const Operator& one : operators) {
    if (one.takes_tensor() == takes_tensor) library.impl(one.name, one.boxed);
  }
}

#define OPERATOR(name, signature) {#name, #name signature, TORCH_BOX(&operators::name)}

// Operators without a tensor argument are registered for all devices.
#define PYG_BATCHGNN_REGISTER(table)                                                         \
  STABLE_TORCH_LIBRARY_FRAGMENT(pyg_batchgnn, library) { define(library, table); }           \
  STABLE_TORCH_LIBRARY_IMPL(pyg_batchgnn, CPU, library) { implement(library, true, table); } \
  STABLE_TORCH_LIBRARY_IMPL(pyg_batchgnn, CompositeExplicitAutograd, library) {              \
    implement(library, false, table);                                                        \
  }

}  // namespace pyg_batchgnn
