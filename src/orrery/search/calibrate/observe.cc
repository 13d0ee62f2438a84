#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/fabrics.h"
#include "orrery/compute/compute.h"
#include "orrery/compute/measured_table.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/search/validate/cases.h"
#include "orrery/workload/scope.h"

namespace orrery::search {
namespace {

// How far a right model may be off one kernel, and the step of a run (Observations::sigma).
constexpr double kKernelSigma = 0.1;
constexpr double kRunSigma = 0.03;

void Join(const constants::Scope& from, constants::Scope* to) {
  for (const std::string_view word : from.words) to->Add(word);
}

// Once each: what rows were taken to have run on. REQUIRES: nothing is predicted yet.
std::vector<std::string> AssumedOf(const std::vector<Case>& cases, const Report& report) {
  std::vector<std::string> assumed;
  const auto add = [&](const std::string& text) {
    if (std::find(assumed.begin(), assumed.end(), text) == assumed.end()) assumed.push_back(text);
  };
  for (const Case& item : cases) {
    const cluster::Spec& spec = item.collective->cluster;
    if (spec.nodes * spec.gpus_per_node > spec.gpus_per_nvlink_domain)
      add(cluster::DescribeFabric(spec));
    for (const std::string& text : report.rows[item.first].assumed) add(text);
  }
  return assumed;
}

// As tools/fit/fit.py has it.
double CollectiveSigma(std::string_view stratum) {
  return stratum == "collectives < 1 MB" ? 0.12 : 0.08;
}

// "bf16 product nt", "flash2 backward, causal", "rmsnorm forward".
std::string KindOf(const graph::Kernel& kernel) {
  if (const auto* g = std::get_if<graph::Gemm>(&kernel)) {
    return fmt::format("{} product {}{}", graph::Name(g->dtype), graph::Name(g->layout),
                       g->kind == graph::GemmKind::kGrouped ? ", experts" : "");
  }
  if (const auto* a = std::get_if<graph::Attention>(&kernel)) {
    return fmt::format("{} {}{}", graph::Name(a->kernel), graph::Name(a->pass),
                       a->causal ? ", causal" : "");
  }
  const auto& m = std::get<graph::MemoryBound>(kernel);
  return fmt::format("{} {}", graph::Name(m.op), graph::Name(m.pass));
}

std::string SizesOf(const graph::Kernel& kernel) {
  if (const auto* g = std::get_if<graph::Gemm>(&kernel)) {
    return fmt::format("{}{}x{}x{}", g->batch > 1 ? fmt::format("{} x ", g->batch) : "", g->m, g->n,
                       g->k);
  }
  if (const auto* a = std::get_if<graph::Attention>(&kernel)) {
    return fmt::format("{} x {}/{} heads of {}, {} tokens", a->batch, a->heads, a->kv_heads,
                       a->head_dim, a->seq_q);
  }
  const auto& m = std::get<graph::MemoryBound>(kernel);
  return fmt::format("{}x{}", m.rows, m.cols);
}

// The first preset with that GPU.
Result<cluster::Spec> PresetOf(const compute::GpuSamples& measured) {
  std::set<std::string> known;
  for (const cluster::Preset& preset : cluster::Presets()) {
    ORRERY_ASSIGN_OR_RETURN(cluster::Spec spec, cluster::FindPreset(preset.name));
    if (spec.device.table == measured.gpu) return spec;
    known.insert(spec.device.table);
  }
  known.erase("");
  const std::vector<std::string_view> names(known.begin(), known.end());
  return InvalidInput("{}: {}", Printable(measured.path),
                      UnknownName("gpu", Printable(measured.gpu, 40), names));
}

}  // namespace

Result<Observations> ObserveCollectives(const formats::CsvTable& table) {
  Report report;
  auto cases = std::make_shared<std::vector<Case>>();
  ORRERY_RETURN_IF_ERROR(MapCases(table, {}, &report, cases.get()));
  if (report.kind != TableKind::kCollectives) {
    return InvalidInput("{}: no table of collectives", table.name());
  }
  Observations out;
  out.assumed = AssumedOf(*cases, report);
  ValidateOptions once;
  once.threads = 1;
  const constants::Set fitted = constants::Set::Fitted();
  PredictCases(*cases, std::span(&fitted, 1), once, &report.rows);
  auto kept = std::make_shared<std::vector<Case>>();
  for (const Case& item : *cases) {
    const Prediction& p = report.rows[item.first];
    if (!p.predicted || !p.measured) continue;
    kept->push_back(item);
    kept->back().first = out.measured.size();
    out.measured.push_back(*p.measured * 1e-6);
    out.sigma.push_back(CollectiveSigma(p.stratum));
    out.what.push_back(fmt::format("{} {}", graph::Name(item.collective->collective),
                                   HumanBytes(item.collective->bytes)));
    out.kind.emplace_back(graph::Name(item.collective->collective));
    Join(item.scope, &out.scope);
  }
  std::string reason;
  std::size_t refused = 0;
  for (const Prediction& p : report.rows) {
    if (p.refused() && refused++ == 0) reason = p.reason;
  }
  if (kept->empty()) {
    return InvalidInput("{}: no row can be predicted{}{}", table.name(), reason.empty() ? "" : ": ",
                        reason);
  }
  if (refused > 0) {
    out.assumed.push_back(
        fmt::format("{} of {} rows left out: {}", refused, report.rows.size(), reason));
  }
  const std::size_t rows = out.measured.size();
  out.predict = [kept, rows, once](const constants::Set& set) -> Result<std::vector<double>> {
    std::vector<Prediction> predictions(rows);
    PredictCases(*kept, std::span(&set, 1), once, &predictions);
    std::vector<double> times;
    for (const Prediction& p : predictions) {
      if (!p.predicted) return InvalidInput("{}", p.reason);
      times.push_back(*p.predicted * 1e-6);
    }
    return times;
  };
  return out;
}

Result<Observations> ObserveKernels(const std::vector<std::string>& csv_paths) {
  ORRERY_ASSIGN_OR_RETURN(std::vector<compute::GpuSamples> measured,
                          compute::ReadSamples(csv_paths));
  Observations out;
  struct Device {
    cluster::DeviceSpec spec;
    std::vector<compute::Sample> samples;
  };
  auto devices = std::make_shared<std::vector<Device>>();
  for (compute::GpuSamples& gpu : measured) {
    ORRERY_ASSIGN_OR_RETURN(cluster::Spec one, PresetOf(gpu));
    if (gpu.samples.empty()) continue;
    one.nodes = one.gpus_per_node = 1;
    cluster::AddScope(one, &out.scope);
    out.scope.Add("fp8");
    out.scope.Add("flash1");
    for (const compute::Sample& sample : gpu.samples) {
      out.measured.push_back(sample.time_s);
      out.sigma.push_back(kKernelSigma);
      out.kind.push_back(KindOf(sample.kernel));
      out.what.push_back(
          fmt::format("{} {} {}", one.device.table, out.kind.back(), SizesOf(sample.kernel)));
    }
    devices->push_back({one.device, std::move(gpu.samples)});
  }
  if (out.measured.empty()) {
    return InvalidInput(
        "{}: no kernel to learn from; the tables gemm, attention and memory_bound of "
        "docs/formats/measured-kernels.md are read",
        Printable(csv_paths.front()));
  }
  out.predict = [devices](const constants::Set& set) -> Result<std::vector<double>> {
    std::vector<double> times;
    for (const Device& d : *devices) {
      cluster::DeviceSpec spec = d.spec;
      spec.constants = set;
      ORRERY_ASSIGN_OR_RETURN(const compute::CostModel model, compute::CostModel::Create(spec, {}));
      for (const compute::Sample& sample : d.samples) {
        times.push_back(ToSeconds(model.Price(sample.kernel).duration));
      }
    }
    return times;
  };
  return out;
}

Result<Observations> ObserveRun(const std::string& path, double step_time_s,
                                const std::string& measured_database) {
  job::ReadOptions read;
  ORRERY_ASSIGN_OR_RETURN(const job::Job job, job::ReadJob(path, read));
  if (job.workloads.size() != 1) {
    return InvalidInput("{}: {} jobs; calibrate with a file of one", path, job.workloads.size());
  }
  Observations out;
  out.sigma = {kRunSigma};
  out.what = {path};
  out.kind = {"step"};
  out.measured = {step_time_s};
  cluster::AddScope(job.cluster, &out.scope);
  const job::Workload& workload = job.workloads.front();
  workload::AddScope(workload.model, workload.plan, workload.host, &out.scope);
  job::SimulateOptions options;
  options.measured_database = measured_database;
  out.predict = [path, options](const constants::Set& set) -> Result<std::vector<double>> {
    job::ReadOptions with;
    with.constants = set;
    ORRERY_ASSIGN_OR_RETURN(const job::Job job, job::ReadJob(path, with));
    ORRERY_ASSIGN_OR_RETURN(const results::RunResult result, job::Simulate(job, options));
    return std::vector<double>{ToSeconds(result.jobs.front().step_time)};
  };
  return out;
}

}  // namespace orrery::search
