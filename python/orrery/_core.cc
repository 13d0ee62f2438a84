// The native half of the Python package: text in, JSON out. Exceptions live only here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/results/json.h"

namespace py = pybind11;

namespace {

using orrery::Status;

// {"ok", JSON} or {error code, message}: the Python half makes the exception.
std::pair<std::string, std::string> Failure(const Status& status) {
  return {std::string(orrery::results::CodeName(status.code())), status.message()};
}

std::pair<std::string, std::string> Simulate(const std::string& job, bool is_path,
                                             const std::vector<std::string>& set,
                                             const std::optional<std::string>& network, bool fold,
                                             int threads, const std::optional<std::uint64_t>& seed,
                                             const std::string& measured) {
  const py::gil_scoped_release release;
  orrery::job::ReadOptions read;
  read.set = set;
  read.network = network;
  read.fold = fold;
  read.threads = threads;
  read.seed = seed;
  const auto parsed =
      is_path ? orrery::job::ReadJob(job, read) : orrery::job::ReadJobText(job, "job", "", read);
  if (!parsed.ok()) return Failure(parsed.status());
  orrery::job::SimulateOptions options;
  options.measured_database = measured;
  const auto result = orrery::job::Simulate(*parsed, options);
  if (!result.ok()) return Failure(result.status());
  return {"ok", orrery::results::ToJson(*result)};
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native half of orrery; use the functions of the package itself.";
  module.attr("version") = std::string(orrery::job::Version());
  module.def("simulate", &Simulate, py::arg("job"), py::arg("is_path"), py::arg("set"),
             py::arg("network"), py::arg("fold"), py::arg("threads"), py::arg("seed"),
             py::arg("measured"));
}
