// The extension pyg_batchgnn._ccl. It is not linked with oneCCL. pyg_batchgnn.comm.ccl first loads
// the library of the pinned version by its path, so that no other installed version is used.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "ccl/backend.h"
#include "ccl/engine.h"

namespace py = pybind11;

namespace {

constexpr const char* kBuiltWith = CCL_PRODUCT_FULL;

std::string loaded_version() { return ::ccl::get_library_version().full; }

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         std::chrono::milliseconds timeout) {
  return c10::make_intrusive<pyg_batchgnn::CclBackend>(store, rank, size, timeout);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.attr("built_with") = kBuiltWith;
  module.def("loaded_version", &loaded_version);
  module.def("create", &create, py::call_guard<py::gil_scoped_release>(), py::arg("store"), py::arg("rank"),
             py::arg("size"), py::arg("timeout"));
  module.def("rest", [] { pyg_batchgnn::Engine::get().rest(); }, py::call_guard<py::gil_scoped_release>());
}
