// The native half of the Python package: text in, JSON out. Exceptions live only here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/cluster/catalog.h"
#include "orrery/job/data.h"
#include "orrery/job/job.h"
#include "orrery/job/network_setup.h"
#include "orrery/job/simulate.h"
#include "orrery/recipes/import.h"
#include "orrery/results/json.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/search/plan/plan.h"
#include "orrery/search/sweep/sweep.h"
#include "orrery/traffic/report.h"
#include "orrery/traffic/sweep.h"

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

// Clusters, prices and built blocks that calls leave for the next ones. A call takes a set nobody
// uses, or a fresh one.
class CachePool {
 public:
  std::unique_ptr<orrery::job::Caches> Take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<orrery::job::Caches>();
    auto one = std::move(idle_.back());
    idle_.pop_back();
    return one;
  }
  void Return(std::unique_ptr<orrery::job::Caches> one) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(std::move(one));
  }

 private:
  static constexpr std::size_t kMostIdle = 8;
  std::mutex mutex_;
  std::vector<std::unique_ptr<orrery::job::Caches>> idle_;
};

CachePool& Pool() {
  static CachePool* const pool =
      new CachePool;  // a thread whose wait was cut short may outlive main
  return *pool;
}

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
  std::unique_ptr<orrery::job::Caches> caches = Pool().Take();
  const auto result = orrery::job::Simulate(*parsed, request.simulate, caches.get());
  Pool().Return(std::move(caches));
  if (!result.ok()) return Failure(result.status());
  return {"ok", orrery::results::ToJson(*result)};
}

// Runs on a thread of its own, which knows nothing of Python, so that Ctrl-C can end the wait for
// it; what it then computes nobody reads.
Answer Waited(std::function<Answer()> work) {
  std::packaged_task<Answer()> task(std::move(work));
  std::future<Answer> answer = task.get_future();
  std::thread(std::move(task)).detach();
  const py::gil_scoped_release release;
  while (answer.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  return answer.get();
}

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
  return Waited([request = std::move(request)]() mutable { return Run(std::move(request)); });
}

// Axes of a space: keys, and a value for each at each point.
using Axes =
    std::vector<std::pair<std::vector<std::string>, std::vector<std::vector<std::string>>>>;

struct Variants {
  Variants(std::string job_text, bool path, std::vector<std::string> assignments,
           std::optional<std::string> back_end, std::string measured_table, std::string constants)
      : job(std::move(job_text)),
        is_path(path),
        set(std::move(assignments)),
        network(std::move(back_end)),
        measured(std::move(measured_table)),
        calibration(std::move(constants)) {}

  std::string job;
  bool is_path = true;
  std::vector<std::string> set;
  std::optional<std::string> network;
  std::string measured, calibration;

  orrery::Result<orrery::search::Template> Read() const {
    orrery::job::ReadOptions read;
    read.set = set;
    read.network = network;
    if (!calibration.empty()) {
      ORRERY_ASSIGN_OR_RETURN(read.constants, orrery::search::ReadCalibration(calibration));
    }
    return is_path ? orrery::search::ReadTemplate(job, read, measured)
                   : orrery::search::ReadTemplateText(job, "job", read, measured);
  }
};

Answer Sweep(const Variants& variants, const Axes& axes, const std::string& scale, bool weak,
             bool replay, int threads, int shard, int shards) {
  return Waited([=]() -> Answer {
    const auto job = variants.Read();
    if (!job.ok()) return Failure(job.status());
    orrery::search::Space space;
    for (const auto& [keys, points] : axes) {
      const Status added = space.Add({.keys = keys, .points = points});
      if (!added.ok()) return Failure(added);
    }
    if (!scale.empty()) {
      auto axis = orrery::search::ScaleAxis(*job, scale, weak);
      if (!axis.ok()) return Failure(axis.status());
      const Status added = space.Add(*std::move(axis));
      if (!added.ok()) return Failure(added);
    }
    const auto sweep = orrery::search::RunSweep(
        *job, space, {.threads = threads, .replay = replay, .shard = shard, .shards = shards});
    if (!sweep.ok()) return Failure(sweep.status());
    return {"ok", orrery::search::SweepToJson(*sweep)};
  });
}

Answer Merge(const std::vector<std::string>& texts) {
  std::vector<orrery::search::Sweep> shards;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto shard = orrery::search::SweepFromJson(texts[i], "shard " + std::to_string(i + 1));
    if (!shard.ok()) return Failure(shard.status());
    shards.push_back(*std::move(shard));
  }
  const auto merged = orrery::search::Merge(std::move(shards));
  if (!merged.ok()) return Failure(merged.status());
  return {"ok", orrery::search::SweepToJson(*merged)};
}

// The values that a text such as "1..8" or "1,2,4" stands for.
std::pair<std::string, std::vector<std::string>> Values(const std::string& text) {
  auto values = orrery::search::ParseValues(text);
  if (!values.ok()) return {Failure(values.status()).second, {}};
  return {"", *std::move(values)};
}

Answer Plan(const Variants& variants, const std::vector<std::string>& vary,
            const std::string& objective, std::size_t top, int threads, std::uint64_t seed,
            std::uint64_t evaluations) {
  return Waited([=]() -> Answer {
    auto job = variants.Read();
    if (!job.ok()) return Failure(job.status());
    orrery::search::PlanOptions options{
        .top = top, .threads = threads, .seed = seed, .max_evaluations = evaluations};
    auto objectives = orrery::search::ParseObjectives(objective);
    if (!objectives.ok()) return Failure(objectives.status());
    options.objectives = *std::move(objectives);
    const auto open = orrery::search::OpenSpace(*std::move(job), vary);
    if (!open.ok()) return Failure(open.status());
    const auto plans = orrery::search::FindPlans(*open, options);
    if (!plans.ok()) return Failure(plans.status());
    return {"ok", orrery::search::PlanToJson(*plans)};
  });
}

Answer ImportRecipe(const std::vector<std::string>& files, orrery::recipes::Options options) {
  return Waited([files, options = std::move(options)]() -> Answer {
    const auto imported = orrery::recipes::Import(files, options);
    if (!imported.ok()) return Failure(imported.status());
    return {"ok", orrery::recipes::ToJson(*imported)};
  });
}

Answer Traffic(const std::string& collective, const std::string& cluster, int nodes,
               std::size_t gpus, std::int64_t least, std::int64_t most, std::int64_t factor,
               const std::string& network, const std::vector<std::string>& set) {
  return Waited([=]() -> Answer {
    namespace traffic = orrery::traffic;
    const orrery::constants::Set constants = orrery::constants::Set::Fitted();
    auto setup = orrery::job::ReadNetworkSetup(cluster, nodes, network, set, &constants);
    if (!setup.ok()) return Failure(setup.status());
    traffic::SweepOptions options{.gpus = gpus, .network = network, .pricing = setup->pricing};
    const auto kind = traffic::FindCollective(collective);
    if (!kind.ok()) return Failure(kind.status());
    options.collective = *kind;
    auto sizes = traffic::SweepSizes(least, most, factor);
    if (!sizes.ok()) return Failure(sizes.status());
    options.sizes = *std::move(sizes);
    const auto sweep = traffic::RunSweep(setup->cluster, setup->environment, options);
    if (!sweep.ok()) return Failure(sweep.status());
    return {"ok", traffic::ReportJson({collective, setup->description, network, 1, setup->assumed},
                                      *sweep)};
  });
}

using Rows = std::vector<std::tuple<std::string, std::string, std::int64_t>>;

// Name, description and parameters of every model that is known.
Rows Models() {
  Rows rows;
  for (const auto& row : orrery::job::BuiltInData().models.list()) {
    const auto model = orrery::workload::FindModel(row.name);
    rows.emplace_back(row.name, row.description, model.ok() ? model->parameters() : 0);
  }
  return rows;
}

// Name, description and GPUs a host of every cluster that is known.
Rows Clusters() {
  Rows rows;
  for (const auto& row : orrery::job::BuiltInData().clusters.clusters()) {
    const auto spec = orrery::cluster::FindPreset(std::string(row.name));
    rows.emplace_back(row.name, row.description, spec.ok() ? spec->gpus_per_node : 0);
  }
  return rows;
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native half of orrery; use the functions of the package itself.";
  module.attr("version") = std::string(orrery::job::Version());
  module.def("simulate", &Simulate, py::arg("job"), py::arg("is_path"), py::arg("set"),
             py::arg("network"), py::arg("fold"), py::arg("threads"), py::arg("seed"),
             py::arg("measured"), py::arg("calibration"), py::arg("timeline"),
             py::arg("timeline_ranks"), py::arg("heat_map"));
  py::class_<Variants>(module, "Variants")
      .def(py::init<std::string, bool, std::vector<std::string>, std::optional<std::string>,
                    std::string, std::string>(),
           py::arg("job"), py::arg("is_path"), py::arg("set"), py::arg("network"),
           py::arg("measured"), py::arg("calibration"));
  module.def("sweep", &Sweep, py::arg("variants"), py::arg("axes"), py::arg("scale"),
             py::arg("weak"), py::arg("replay"), py::arg("threads"), py::arg("shard"),
             py::arg("shards"));
  module.def("merge", &Merge, py::arg("texts"));
  module.def("values", &Values, py::arg("text"));
  module.def("models", &Models);
  module.def("clusters", &Clusters);
  module.def(
      "import_recipe",
      [](const std::vector<std::string>& files, const std::string& cluster,
         const std::string& model, std::int64_t nodes, std::int64_t gpus,
         const std::map<std::string, std::string>& env, const std::vector<std::string>& leave_out,
         const std::string& dialect, const std::vector<std::string>& set) {
        orrery::recipes::Options options{
            .dialect = dialect, .cluster = cluster, .model = model, .nodes = nodes, .gpus = gpus};
        options.variables = env;
        options.leave_out = leave_out;
        options.read.set = set;
        return ImportRecipe(files, std::move(options));
      },
      py::arg("files"), py::arg("cluster"), py::arg("model"), py::arg("nodes"), py::arg("gpus"),
      py::arg("env"), py::arg("leave_out"), py::arg("dialect"), py::arg("set"));
  module.def("traffic", &Traffic, py::arg("collective"), py::arg("cluster"), py::arg("nodes"),
             py::arg("gpus"), py::arg("least"), py::arg("most"), py::arg("factor"),
             py::arg("network"), py::arg("set"));
  module.def("plan", &Plan, py::arg("variants"), py::arg("vary"), py::arg("objective"),
             py::arg("top"), py::arg("threads"), py::arg("seed"), py::arg("evaluations"));
}
