#include "orrery/results/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orrery/results/campaign_report.h"
#include "orrery/results/json_parts.h"
#include "orrery/results/parts.h"
#include "orrery/results/requests_json.h"

namespace orrery::results {
namespace {

using Json = nlohmann::ordered_json;

// Text from users may hold anything; what is not UTF-8 becomes U+FFFD.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

void AddTime(Json* json, const std::string& name, SimTime ps) {
  (*json)[name + "_s"] = static_cast<double>(ps) / 1e12;  // the double nearest to the decimal
  (*json)[name + "_ps"] = ps;
}

Json ToJson(const BreakdownRow& row) {
  Json json;
  if (row.stage >= 0) json["stage"] = row.stage;
  json["ranks"] = row.ranks;
  AddTime(&json, "total", row.total);
  for (std::size_t i = 0; i < row.parts.size(); ++i) AddTime(&json, PartName(i), row.parts[i]);
  // Sequence parallelism uses the tensor-parallel communicator: its time is in exposed_tp.
  AddTime(&json, "exposed_sp", 0);
  return json;
}

Json TimelineJson(const std::vector<memory::TimelinePoint>& points) {
  Json list = Json::array();
  for (const memory::TimelinePoint& point : points) {
    list.push_back({{"call", point.call},
                    {"peak_allocated_bytes", point.peak_allocated},
                    {"allocated_bytes", point.allocated},
                    {"reserved_bytes", point.reserved}});
  }
  return list;
}

Json ToJson(const MemoryRow& row, std::int64_t device_bytes) {
  const memory::Footprint& footprint = row.footprint;
  Json json;
  json["program"] = row.program;
  json["stage"] = row.stage;
  json["ranks"] = row.ranks;
  json["peak_allocated_bytes"] = footprint.peak_allocated;
  json["peak_reserved_bytes"] = footprint.peak_reserved;
  json["context_bytes"] = footprint.context_bytes;
  json["total_bytes"] = row.total();
  json["device_bytes"] = device_bytes;
  Json parts;
  for (std::size_t i = 0; i < memory::kKinds; ++i) {
    parts[fmt::format("{}_bytes", graph::Name(static_cast<graph::MemoryKind>(i)))] =
        footprint.at_peak[i];
  }
  json["parts_at_peak"] = std::move(parts);
  json["peak_op"] = footprint.peak_op;
  json["peak_requested_bytes"] = footprint.peak_requested;
  json["cached_at_peak_bytes"] = footprint.cached_at_peak;
  json["cuda_context_bytes"] = footprint.cuda_bytes;
  json["nccl_bytes"] = footprint.nccl_bytes;
  json["allocator_retries"] = footprint.retries;
  json["allocator_settled"] = footprint.settled;
  json["allocator_bounded"] = footprint.bounded;
  Json modules = Json::array();
  for (const memory::ModuleShare& share : footprint.modules) {
    modules.push_back({{"module", share.module}, {"bytes", share.bytes}});
  }
  json["modules_at_peak"] = std::move(modules);
  json["oom"] = footprint.oom;
  json["oom_op"] = footprint.oom ? Json(footprint.oom_op) : Json(nullptr);
  if (footprint.oom) {
    const memory::OutOfMemory& state = footprint.oom_state;
    json["oom_state"] = {{"requested_bytes", state.requested},
                         {"allocated_bytes", state.allocated},
                         {"reserved_bytes", state.reserved},
                         {"device_free_bytes", state.device_free},
                         {"largest_cached_bytes", state.largest_cached}};
  }
  if (!footprint.timeline.empty()) json["timeline"] = TimelineJson(footprint.timeline);
  return json;
}

void AddJob(const JobResult& job, Json* json) {
  Json& out = *json;
  out["ranks"] = job.ranks;
  out["description"] = job.description;
  AddTime(&out, "step_time", job.step_time);
  out["step_time_interval_s"] = Json::array({job.interval_low_s, job.interval_high_s});
  out["settled"] = job.settled;
  out["tokens_per_s"] = job.tokens_per_s;
  out["model_tflops_per_gpu"] = job.model_tflops_per_gpu;
  out["mfu"] = job.mfu > 0 ? Json(job.mfu) : Json(nullptr);
  Json stages = Json::array();
  for (const BreakdownRow& row : job.stages) stages.push_back(ToJson(row));
  out["breakdown"] = {{"overall", ToJson(job.overall)}, {"stages", std::move(stages)}};
  Json memory = Json::array();
  for (const MemoryRow& row : job.memory) memory.push_back(ToJson(row, job.device_bytes));
  out["memory"] = std::move(memory);
  out["verdict"] = Name(job.verdict());
  if (!job.memory.empty()) {
    out["memory_interval_bytes"] = Json::array({job.memory_low_bytes(), job.memory_high_bytes()});
  }
  if (!job.memory_remedy.empty()) out["memory_remedy"] = job.memory_remedy;
  out["bound_by"] = BoundBy(job);
  if (job.cost) out["cost"] = CostJson(*job.cost);
  if (job.goodput) out["goodput"] = GoodputJson(*job.goodput);
}

Json OrNull(double value) { return value > 0 ? Json(value) : Json(nullptr); }

// Every job: how it shares the cluster, and of those that train the step.
Json SharedJobs(const RunResult& result) {
  Json jobs = Json::array();
  for (const SharingRow& row : result.sharing->rows) {
    Json one = {{"name", row.name}, {"kind", row.kind}};
    if (row.job) {
      AddJob(result.jobs[*row.job], &one);
    } else {
      one["ranks"] = row.ranks;
      one["description"] = row.description;
    }
    one["hosts"] = row.hosts;
    one["placement"] = row.placement;
    if (!result.sharing->steps) {
      one["background"] = row.background;
      one["priority"] = row.priority;
      AddTime(&one, "start", row.start);
      AddTime(&one, "end", row.end);
      one["iterations"] = row.iterations;
      AddTime(&one, row.background ? "iteration_time" : "completion_time", row.time);
    }
    if (row.alone) AddTime(&one, "alone", *row.alone);
    one["slowdown"] = OrNull(row.slowdown());
    if (row.requests) one["requests"] = RequestsJson(*row.requests);
    if (row.requests_alone) one["requests_alone"] = RequestsJson(*row.requests_alone);
    jobs.push_back(std::move(one));
  }
  return jobs;
}

Json InterferenceJson(const Sharing& sharing) {
  Json json = {{"jain_index", OrNull(sharing.jain_index())},
               {"runs_together", 1},
               {"runs_alone", sharing.runs_alone},
               {"runs_of_pairs", sharing.runs_of_pairs}};
  if (!sharing.no_matrix_because.empty()) json["no_matrix_because"] = sharing.no_matrix_because;
  if (sharing.matrix.empty()) return json;
  Json rows = Json::array();
  for (const std::vector<double>& row : sharing.matrix) {
    Json cells = Json::array();
    for (const double one : row) cells.push_back(OrNull(one));
    rows.push_back(std::move(cells));
  }
  json["matrix"] = std::move(rows);
  return json;
}

Json OverTimeJson(const UseOverTime& use) {
  const auto rows = [](const std::vector<UseOverTime::Row>& of, const char* what) {
    Json list = Json::array();
    for (const UseOverTime::Row& row : of) {
      list.push_back({{what, row.name}, {"bytes", row.bytes}, {"utilisation", row.utilisation}});
    }
    return list;
  };
  Json json;
  AddTime(&json, "step", use.step);
  json["link_classes"] = rows(use.classes, "class");
  json["worst_links"] = rows(use.links, "link");
  return json;
}

}  // namespace

Json NetworkJson(const std::string& backend, const std::vector<engine::LinkClassUse>& classes,
                 const std::vector<WorstLink>& worst_links) {
  Json links = Json::array();
  for (const engine::LinkClassUse& use : classes) {
    links.push_back({{"class", use.name}, {"bytes", use.bytes}, {"busy_share", use.busy_share}});
  }
  Json worst = Json::array();
  for (const WorstLink& link : worst_links) {
    worst.push_back({{"link", link.name},
                     {"bytes", link.bytes},
                     {"busy_share", link.busy_share},
                     {"utilisation", link.utilisation}});
  }
  return {
      {"backend", backend}, {"link_classes", std::move(links)}, {"worst_links", std::move(worst)}};
}

Json SimulationJson(const Simulation& simulation) {
  Json json;
  json["wall_s"] = simulation.wall_s;
  json["events"] = simulation.events;
  if (simulation.events_repeated > 0) json["events_repeated"] = simulation.events_repeated;
  json["ranks"] = simulation.ranks;
  json["ranks_simulated"] = simulation.ranks_simulated;
  json["iterations"] = simulation.iterations;
  json["threads_used"] = simulation.threads_used;
  json["folded"] = simulation.folded;
  if (!simulation.folded) json["not_folded_because"] = simulation.not_folded_because;
  json["peak_rss_bytes"] = simulation.peak_rss_bytes;
  json["version"] = simulation.version;
  json["config_hash"] = Hex(simulation.config_hash);
  json["seed"] = simulation.seed;
  json["fingerprint"] = Hex(simulation.fingerprint);
  return json;
}

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidInput:
      return "invalid_input";
    case Code::kInfeasible:
      return "infeasible";
    case Code::kResource:
      return "resource";
    case Code::kInterrupted:
      return "interrupted";
  }
  return "resource";
}

std::string ToJson(const RunResult& result) {
  Json json;
  json["schema"] = kResultSchema;
  json["cluster"] = result.cluster;
  AddTime(&json, "finish_time", result.finish_time);
  if (result.sharing) {
    json["jobs"] = SharedJobs(result);
    json["interference"] = InterferenceJson(*result.sharing);
  } else if (result.jobs.size() == 1) {
    AddJob(result.jobs.front(), &json);
  } else {
    Json jobs = Json::array();
    for (const JobResult& job : result.jobs) {
      Json one = {{"name", job.name}};
      AddJob(job, &one);
      jobs.push_back(std::move(one));
    }
    json["jobs"] = std::move(jobs);
  }
  json["network"] = NetworkJson(result.network, result.links, result.worst_links);
  if (result.packets) json["network"]["packets"] = PacketsJson(*result.packets, kPacketLinks);
  if (!result.over_time.empty()) {
    json["network"]["over_time"] = OverTimeJson(result.over_time);
  }
  Json provenance;
  for (std::size_t i = 0; i < compute::kProvenances; ++i) {
    provenance[std::string(compute::Name(static_cast<compute::Provenance>(i)))] =
        result.provenance[i];
  }
  provenance["spread"] = result.compute_spread;
  json["provenance"] = std::move(provenance);
  json["simulation"] = SimulationJson(result.simulation);
  json["assumed"] = result.assumed;
  json["ignored"] = result.ignored;
  json["unexpected_switches"] = result.switches;
  json["warnings"] = result.warnings;
  json["config"] = Json::parse(result.config_json, nullptr, false);
  return Dump(json);
}

std::string ErrorToJson(const Status& status) {
  Json json;
  json["schema"] = kErrorSchema;
  json["error"] = {{"code", CodeName(status.code())}, {"message", status.message()}};
  return Dump(json);
}

}  // namespace orrery::results
