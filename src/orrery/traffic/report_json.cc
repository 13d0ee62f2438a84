#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orrery/results/packets_json.h"
#include "orrery/traffic/report.h"

namespace orrery::traffic {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWorst = 50;

Json Head(const Heading& heading, const char* kind) {
  return {{"schema", "orrery.traffic/1"}, {"kind", kind},
          {"pattern", heading.pattern},   {"cluster", heading.cluster},
          {"network", heading.network},   {"seed", heading.seed},
          {"assumed", heading.assumed}};
}

Json ToJson(const Spread& spread) {
  return {{"mean", spread.mean}, {"p50", spread.p50}, {"p99", spread.p99}, {"max", spread.most}};
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json PacketsJson(const cluster::Cluster& cluster, const FlowRun& run) {
  const results::PacketUse use = results::UseOfPackets(*run.packets, cluster);
  Json json = results::PacketsJson(use, use.links.size());
  if (run.queues.on()) {
    for (std::size_t i = 0; i < use.links.size(); ++i) {
      const auto queue = run.queues.of(use.links[i].link.index());
      if (!queue.empty()) json["links"][i]["queue_bytes"] = queue;
    }
  }
  Json flows = Json::array();
  for (const SlowFlow& f : run.slowest) {
    flows.push_back({{"from", f.from.index()},
                     {"to", f.to.index()},
                     {"bytes", f.bytes},
                     {"start_s", ToSeconds(f.start)},
                     {"completion_s", ToSeconds(f.completion)},
                     {"slowdown", f.slowdown}});
  }
  json["slowest_flows"] = std::move(flows);
  if (run.queues.on()) json["queue_step_s"] = ToSeconds(run.queues.width());
  return json;
}

}  // namespace

std::string ReportJson(const Heading& heading, const cluster::Cluster& cluster,
                       const FlowRun& run) {
  Json json = Head(heading, "flows");
  json["flows"] = run.flows;
  json["bytes"] = run.bytes;
  json["finish_time_s"] = static_cast<double>(run.finish) / 1e12;
  json["finish_time_ps"] = run.finish;
  json["completion_s"] = ToJson(run.completion_s);
  json["slowdown"] = ToJson(run.slowdown);
  Json sizes = Json::array();
  for (const SizeClass& c : run.sizes) {
    sizes.push_back(
        {{"up_to_bytes", c.up_to}, {"flows", c.flows}, {"slowdown", ToJson(c.slowdown)}});
  }
  json["by_size"] = std::move(sizes);
  Json classes = Json::array();
  for (const LinkClass& c : LinkClasses(cluster, run.links, run.finish)) {
    classes.push_back({{"class", c.name},
                       {"links", c.links},
                       {"used", c.used},
                       {"bytes", c.bytes},
                       {"busy_share", c.busy_share},
                       {"most_busy_share", c.most_busy},
                       {"utilisation", c.utilisation},
                       {"most_utilisation", c.most_used}});
  }
  json["link_classes"] = std::move(classes);
  Json worst = Json::array();
  for (const LinkUse& use : WorstLinks(cluster, run.links, run.finish, kWorst)) {
    worst.push_back(
        {{"link", cluster.link_name(use.link)},
         {"bytes", use.bytes},
         {"busy_share", static_cast<double>(use.busy) / static_cast<double>(run.finish)},
         {"utilisation", use.utilisation}});
  }
  json["worst_links"] = std::move(worst);
  if (run.packets) json["packets"] = PacketsJson(cluster, run);
  json["completion_ps"] = run.completion;
  json["fingerprint"] = fmt::format("{:016x}", run.fingerprint);
  return Dump(json);
}

std::string ReportJson(const Heading& heading, const Sweep& sweep) {
  Json json = Head(heading, "collective");
  json["gpus"] = sweep.gpus;
  Json rows = Json::array();
  for (const SweepRow& row : sweep.rows) {
    Json one = {{"bytes", row.bytes},
                {"time_ps", row.time},
                {"algbw_GBps", row.algbw_GBps},
                {"busbw_GBps", row.busbw_GBps},
                {"plan", row.plan}};
    if (!row.instead_of.empty()) one["instead_of"] = row.instead_of;
    if (!row.note.empty()) one["note"] = row.note;
    if (row.measured_us > 0) {
      one["measured_us"] = row.measured_us;
      one["measured_busbw_GBps"] = row.measured_busbw_GBps;
      one["error_pct"] = 100 * row.error();
    }
    rows.push_back(std::move(one));
  }
  json["rows"] = std::move(rows);
  json["fingerprint"] = fmt::format("{:016x}", sweep.fingerprint);
  return Dump(json);
}

}  // namespace orrery::traffic
