#include "orrery/results/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "orrery/base/text.h"
#include "orrery/results/json.h"
#include "orrery/results/json_parts.h"
#include "orrery/results/requests_json.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

using Json = nlohmann::ordered_json;
using engine::Part;
using engine::RankClass;

constexpr std::size_t kRanksShown = 16;

// Exact, as LogGOPSim prints it: whole nanoseconds where they are whole.
std::string Nanoseconds(SimTime ps) {
  std::string text = HumanCount(ps / kNanosecond);
  if (ps % kNanosecond != 0) text += fmt::format(".{:03}", ps % kNanosecond);
  return text + " ns";
}

// "8 (+7 alike)": a rank, and how many others it stands for.
std::string AndOthers(std::uint32_t rank, std::size_t ranks) {
  return ranks > 1 ? fmt::format("{} (+{} alike)", rank, ranks - 1) : fmt::format("{}", rank);
}

// Ranks, latest first.
std::vector<std::size_t> Latest(const std::vector<RankClass>& ranks) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ranks[a].finish_time > ranks[b].finish_time;
  });
  return order;
}

SimTime Of(const RankClass& rank, Part part) {
  return rank.breakdown[static_cast<std::size_t>(part)];
}
SimTime Compute(const RankClass& rank) {
  return Of(rank, Part::kCompute) + Of(rank, Part::kOptimizer) + Of(rank, Part::kInterference);
}
SimTime Exposed(const RankClass& rank) {
  SimTime sum = 0;
  for (std::size_t role = 0; role < graph::kGroupSlots; ++role) {
    sum += rank.breakdown[static_cast<std::size_t>(Part::kExposed) + role];
  }
  return sum;
}
SimTime Waiting(const RankClass& rank) {
  return Of(rank, Part::kNoise) + Of(rank, Part::kWaiting) + Of(rank, Part::kBubble);
}

Json RankJson(const RankClass& rank, bool processors) {
  Json json = {{"finish_time_ps", rank.finish_time}};
  if (rank.size > 1) {  // folded: the lowest of as many
    json["rank"] = rank.representative.value;
    json["ranks"] = rank.size;
  }
  if (processors) {
    json["calc_ps"] = rank.held_calc;
    json["send_ps"] = rank.held_send;
    json["receive_ps"] = rank.held_receive;
  }
  for (std::size_t part = 0; part < rank.breakdown.size(); ++part) {
    if (rank.breakdown[part] == 0 && part >= static_cast<std::size_t>(Part::kExposed)) continue;
    json[PartName(part) + "_ps"] = rank.breakdown[part];
  }
  return json;
}

Json MemoryJson(const TraceMemory& m) {
  Json at_peak;
  for (std::size_t r = 0; r < memory::kStorageRoles; ++r) {
    at_peak[std::string(memory::Name(static_cast<memory::StorageRole>(r)))] = m.replay.at_peak[r];
  }
  Json json = {{"rank", m.rank},
               {"ranks", m.ranks},
               {"peak_allocated_bytes", m.replay.peak_allocated},
               {"peak_reserved_bytes", m.replay.peak_reserved},
               {"peak_requested_bytes", m.replay.peak_requested},
               {"workspace_bytes", m.replay.workspaces},
               {"context_bytes", m.context_bytes},
               {"total_bytes", m.total()},
               {"at_peak_bytes", std::move(at_peak)},
               {"peak_at", m.peak_at},
               {"allocator_retries", m.replay.retries}};
  if (m.replay.oom) {
    json["out_of_memory"] = {{"at", m.oom_at},
                             {"requested_bytes", m.replay.oom->requested},
                             {"allocated_bytes", m.replay.oom->allocated},
                             {"reserved_bytes", m.replay.oom->reserved},
                             {"device_free_bytes", m.replay.oom->device_free}};
  }
  return json;
}

double FlopsPerGpu(const TraceResult& result) {
  const double seconds = static_cast<double>(result.record.jobs[0].step_time) / 1e12;
  return seconds > 0 ? result.model_flops / seconds / result.record.ranks : 0;
}

std::string MemoryReport(const std::vector<TraceMemory>& memory) {
  TextTable table;
  table.Row({"memory of rank", "allocated", "reserved", "with context", "peak at"});
  for (std::size_t column = 0; column < 4; ++column) table.AlignRight(column);
  std::string text;
  for (const TraceMemory& m : memory) {
    table.Row({AndOthers(m.rank, m.ranks), HumanBytes(m.replay.peak_allocated),
               HumanBytes(m.replay.peak_reserved), HumanBytes(m.total()),
               Printable(m.peak_at, 60)});
    if (!m.replay.oom) continue;
    text += fmt::format("  rank {} is out of memory ({}): {} asked for, {} allocated, {} left\n",
                        m.rank, Printable(m.oom_at, 80), HumanBytes(m.replay.oom->requested),
                        HumanBytes(m.replay.oom->allocated), HumanBytes(m.replay.oom->device_free));
  }
  return fmt::format("\n{}{}", table.Render("  "), text);
}

// The ranks that end last, and what their time went to.
std::string RankReport(const TraceResult& result, const std::vector<std::size_t>& order) {
  const engine::Record& run = result.record;
  const auto rank_of = [&](std::size_t i) { return run.classes[i].representative.value; };
  TextTable table;
  const bool processors = result.processors > 0;
  const bool counted = !result.counts.empty();
  table.Row(processors ? std::vector<std::string>{"rank", "finish", "calc", "sending", "receiving",
                                                  "communication", "waiting"}
            : counted  ? std::vector<std::string>{"rank", "finish", "compute", "communication",
                                                  "exposed", "waiting", "CPU, memory"}
                       : std::vector<std::string>{"rank", result.repeats ? "step" : "finish",
                                                  "compute", "communication", "waiting", "host"});
  for (std::size_t column = 0; column < (processors || counted ? 7 : 6); ++column) {
    table.AlignRight(column);
  }
  for (std::size_t i = 0; i < std::min(order.size(), kRanksShown); ++i) {
    const RankClass& r = run.classes[order[i]];
    const SimTime time = result.repeats ? r.iteration_time : r.finish_time;
    std::vector<std::string> row = {AndOthers(rank_of(order[i]), r.size),
                                    result.repeats ? HumanTime(time) : Nanoseconds(time)};
    if (processors) {
      for (const SimTime t : {r.held_calc, r.held_send, r.held_receive, Exposed(r), Waiting(r)}) {
        row.push_back(HumanTime(t));
      }
    } else if (counted) {
      for (const SimTime t : {Compute(r), result.counts[order[i]].communication, Exposed(r),
                              Waiting(r), Of(r, Part::kHost)}) {
        row.push_back(HumanTime(t));
      }
    } else {
      for (const SimTime t : {Compute(r), Exposed(r), Waiting(r), Of(r, Part::kHost)}) {
        row.push_back(HumanTime(t));
      }
    }
    table.Row(row);
  }
  std::string text = table.Render("  ");
  if (order.size() > kRanksShown) {
    text += fmt::format("  and {} ranks that end no later; --json has all\n",
                        HumanCount(static_cast<std::int64_t>(order.size() - kRanksShown)));
  }
  return text;
}

}  // namespace

bool TraceResult::out_of_memory() const {
  return std::ranges::any_of(memory, [](const TraceMemory& m) { return m.replay.oom.has_value(); });
}

std::string ToJson(const TraceResult& result) {
  const engine::Record& run = result.record;
  Json json;
  json["schema"] = kResultSchema;
  json["cluster"] = !result.cluster.empty()         ? result.cluster
                    : result.measured_communication ? "none: communication as measured"
                                                    : "none: every pair of ranks alike";
  json["finish_time_s"] = static_cast<double>(run.finish_time) / 1e12;
  json["finish_time_ps"] = run.finish_time;
  if (result.repeats) {
    json["step_time_s"] = static_cast<double>(run.jobs[0].step_time) / 1e12;
    json["step_time_ps"] = run.jobs[0].step_time;
    if (result.model_flops > 0) {
      json["model_flops_per_gpu_per_s"] = FlopsPerGpu(result);
    }
  }
  if (result.measured >= 0) {
    json["measured_ps"] = result.measured;
    json["communication"] = result.measured_communication ? "measured" : "priced";
  }
  Json ranks = Json::array();
  for (std::size_t r = 0; r < run.classes.size(); ++r) {
    ranks.push_back(RankJson(run.classes[r], result.processors > 0));
    if (result.counts.empty()) continue;
    ranks.back()["communication_ps"] = result.counts[r].communication;
    ranks.back()["gpu_ticks_ps"] = result.counts[r].gpu_ticks;
  }
  // GOAL's section is older than other formats; it has the same content under its own name.
  json[result.format == "GOAL" ? "goal" : "trace"] = {
      {"format", result.format},     {"operations", result.operations},
      {"programs", result.programs}, {"messages", run.messages.sent},
      {"bytes", run.messages.bytes}, {"unexpected_messages", run.messages.unexpected},
      {"ranks", std::move(ranks)}};
  if (!result.memory.empty()) {
    Json memory = Json::array();
    for (const TraceMemory& m : result.memory) memory.push_back(MemoryJson(m));
    json["memory"] = std::move(memory);
  }
  if (result.requests) json["requests"] = RequestsJson(*result.requests);
  json["network"] = NetworkJson(result.network, run.network, result.worst_links);
  if (result.packets) json["network"]["packets"] = PacketsJson(*result.packets, kPacketLinks);
  Json provenance;
  for (std::size_t p = 0; p < run.provenance.size(); ++p) {
    provenance[std::string(compute::Name(static_cast<compute::Provenance>(p)))] = run.provenance[p];
  }
  json["provenance"] = std::move(provenance);
  json["simulation"] = SimulationJson(result.simulation);
  json["assumed"] = result.assumed;
  json["ignored"] = Json::array();  // what a job file's keys may be, and a framework's switches
  json["unexpected_switches"] = Json::array();
  json["warnings"] = result.warnings;
  json["config"] = Json::parse(result.config_json, nullptr, false);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ToCsv(const TraceResult& result) {
  if (result.requests) return RequestsCsv(*result.requests);
  const bool counted = !result.counts.empty();
  std::string text = "rank,alike,finish_ps,compute_ps,exposed_communication_ps,waiting_ps,host_ps";
  text += counted ? ",communication_ps,gpu_ticks_ps\n" : "\n";
  for (std::size_t r = 0; r < result.record.classes.size(); ++r) {
    const RankClass& rank = result.record.classes[r];
    text +=
        fmt::format("{},{},{},{},{},{},{}", rank.representative.value, rank.size, rank.finish_time,
                    Compute(rank), Exposed(rank), Waiting(rank), Of(rank, Part::kHost));
    if (counted) {
      text += fmt::format(",{},{}", result.counts[r].communication, result.counts[r].gpu_ticks);
    }
    text += "\n";
  }
  return text;
}

std::string Report(const TraceResult& result) {
  const engine::Record& run = result.record;
  const std::vector<std::size_t> order = Latest(run.classes);
  std::string text =
      fmt::format("{}: {}, {} ranks ({} distinct), {} operations", Printable(result.source, 60),
                  result.format, HumanCount(run.ranks), result.programs,
                  HumanCount(static_cast<std::int64_t>(result.operations)));
  if (run.messages.sent > 0 || !result.repeats) {
    text +=
        fmt::format(", {} messages, {}", HumanCount(static_cast<std::int64_t>(run.messages.sent)),
                    HumanBytes(run.messages.bytes));
  }
  text += "\n\n";
  if (result.repeats) {
    text += fmt::format("  step         {}", HumanTime(run.jobs[0].step_time));
    if (result.model_flops > 0) {
      text += fmt::format(", {:.1f} TFLOP/s a GPU in matrix products and attention",
                          FlopsPerGpu(result) / 1e12);
    }
    text += run.jobs[0].settled ? "\n" : " (not settled)\n";
  }
  const auto rank_of = [&](std::size_t i) { return run.classes[i].representative.value; };
  text += fmt::format("  finish       {} ({}), rank {}\n", Nanoseconds(run.finish_time),
                      HumanTime(run.finish_time), rank_of(order.front()));
  if (result.measured > 0) {
    text += fmt::format("  measured     {} ({}); the run differs by {:+.2f} %\n",
                        Nanoseconds(result.measured), HumanTime(result.measured),
                        100.0 * static_cast<double>(run.finish_time - result.measured) /
                            static_cast<double>(result.measured));
  }
  if (result.measured_communication) text += "  communication as measured, once all have come\n";
  if (!result.cluster.empty()) text += fmt::format("  cluster      {}\n", result.cluster);
  text += fmt::format("  network      {}{}{}\n", result.network,
                      result.parameters.empty() ? "" : ": ", result.parameters);
  if (run.messages.sent > 0 && result.counts.empty()) {
    text += fmt::format("  unexpected   {} messages came before their receive was posted\n",
                        HumanCount(static_cast<std::int64_t>(run.messages.unexpected)));
  }
  text += "\n";
  text += result.requests ? RequestsText(*result.requests) : RankReport(result, order);
  if (!result.memory.empty()) text += MemoryReport(result.memory);
  for (const WorstLink& link : result.worst_links) {
    if (&link == &result.worst_links.front()) text += "\n  busiest links\n";
    if (&link - result.worst_links.data() >= 5) break;
    text += fmt::format("    {:<24} {:>12}  {:.1f} % of its capacity\n", link.name,
                        HumanBytes(link.bytes), 100 * link.utilisation);
  }
  if (result.packets) text.append("\n").append(PacketsText(*result.packets));
  if (!result.assumed.empty()) text += "\n  assumed\n";
  for (const std::string& assumed : result.assumed) text += "    " + assumed + "\n";
  for (const std::string& warning : result.warnings) text += "\n  warning: " + warning + "\n";
  // Ranks that never wait for each other have none.
  text += fmt::format("\n  {}{}, {} of memory, fingerprint {:016x}\n",
                      run.events == 0
                          ? std::string("run in ")
                          : HumanCount(static_cast<std::int64_t>(run.events)) + " events in ",
                      HumanSeconds(result.simulation.wall_s),
                      HumanBytes(result.simulation.peak_rss_bytes), run.fingerprint);
  return text;
}

}  // namespace orrery::results
