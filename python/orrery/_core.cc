// The native half of the Python package: text in, JSON out. Exceptions live only here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/results/json.h"
#include "orrery/search/calibrate/calibrate.h"

namespace py = pybind11;

namespace {

using orrery::Status;

// {"ok", JSON} or {error code, message}: the Python half makes the exception.
using Answer = std::pair<std::string, std::string>;

Answer Failure(const Status& status) {
  return {std::string(orrery::results::CodeName(status.code())), status.message()};
}

struct Request {
  std::string job;  // a path, or the text of a job file
  bool is_path = true;
  orrery::job::ReadOptions read;
  orrery::job::SimulateOptions simulate;
  std::string calibration;  // a file; empty: none
};

Answer Run(Request request) {
  if (!request.calibration.empty()) {
    auto constants = orrery::search::ReadCalibration(request.calibration);
    if (!constants.ok()) return Failure(constants.status());
    request.read.constants = *std::move(constants);
  }
  auto parsed = request.is_path ? orrery::job::ReadJob(request.job, request.read)
                                : orrery::job::ReadJobText(request.job, "job", "", request.read);
  if (!parsed.ok()) return Failure(parsed.status());
  if (!request.calibration.empty()) {
    parsed->assumed.push_back("constants of " + orrery::Printable(request.calibration));
  }
  const auto result = orrery::job::Simulate(*parsed, request.simulate);
  if (!result.ok()) return Failure(result.status());
  return {"ok", orrery::results::ToJson(*result)};
}

// Runs on a thread of its own, which knows nothing of Python, so that Ctrl-C can end the wait for
// it; what it then computes nobody reads.
Answer Simulate(const std::string& job, bool is_path, const std::vector<std::string>& set,
                const std::optional<std::string>& network, bool fold, int threads,
                const std::optional<std::uint64_t>& seed, const std::string& measured,
                const std::string& calibration, const std::string& timeline,
                const std::string& timeline_ranks, const std::string& heat_map) {
  Request request{.job = job, .is_path = is_path, .calibration = calibration};
  request.read.set = set;
  request.read.network = network;
  request.read.fold = fold;
  request.read.threads = threads;
  request.read.seed = seed;
  request.simulate.measured_database = measured;
  request.simulate.timeline = timeline;
  request.simulate.timeline_ranks = timeline_ranks;
  request.simulate.heat_map = heat_map;
  std::packaged_task<Answer(Request)> task(Run);
  std::future<Answer> answer = task.get_future();
  std::thread(std::move(task), std::move(request)).detach();
  for (;;) {
    {
      const py::gil_scoped_release release;
      if (answer.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) break;
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  return answer.get();
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native half of orrery; use the functions of the package itself.";
  module.attr("version") = std::string(orrery::job::Version());
  module.def("simulate", &Simulate, py::arg("job"), py::arg("is_path"), py::arg("set"),
             py::arg("network"), py::arg("fold"), py::arg("threads"), py::arg("seed"),
             py::arg("measured"), py::arg("calibration"), py::arg("timeline"),
             py::arg("timeline_ranks"), py::arg("heat_map"));
}
