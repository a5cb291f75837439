// The Python module octavo._native. Each area binds its own part; no other file includes Python headers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "common/isa.h"
#include "common/thread_team.h"

namespace nb = nanobind;

void bind_linear(nb::module_& m);
namespace octavo {
void bind_attention(nb::module_& m);
void bind_bench(nb::module_& m);
void bind_runner(nb::module_& m);
}  // namespace octavo
void bind_sampling(nb::module_& m);

NB_MODULE(_native, m) {
  m.doc() = "Native kernels of Octavo.";
  m.def("detect_isa", [] { return std::string(octavo::isa_name(octavo::detect_isa())); });
  m.def("isa_supported", [](const std::string& name) { return octavo::isa_supported(octavo::parse_isa(name)); });
  nb::class_<octavo::ThreadTeam>(m, "ThreadTeam")
      .def(nb::init<int>(), nb::arg("num_threads"))
      .def_prop_ro("size", &octavo::ThreadTeam::size);
  bind_linear(m);
  octavo::bind_attention(m);
  bind_sampling(m);
  octavo::bind_runner(m);
  octavo::bind_bench(m);
}
