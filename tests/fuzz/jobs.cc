// Readers that stand on everything: job files, tables of measured runs, traffic.
#include <array>
#include <string>

#include "orrery/base/check.h"
#include "orrery/cluster/cluster.h"
#include "orrery/job/job.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/search/validate/csv.h"
#include "orrery/traffic/flows.h"
#include "orrery/traffic/sweep.h"
#include "tests/fuzz/targets.h"

namespace orrery::fuzz {
namespace {

// A job that is read says so in a configuration that is the same job.
void Job(std::string_view bytes) {
  const Result<job::Job> job = job::ReadJobText(bytes, "input.yaml", "/nowhere", {});
  if (!job.ok()) return;
  const Result<job::Job> again = job::ReadJobText(job->config_json, "again.json", "/nowhere", {});
  ORRERY_CHECK(again.ok() && again->config_hash == job->config_hash, "configuration round trip");
}

const cluster::Cluster& SmallCluster() {
  static const Result<cluster::Cluster> cluster = [] {
    Result<cluster::Spec> spec = cluster::FindPreset("h100-ib-400g");
    ORRERY_CHECK(spec.ok(), "the preset is there");
    spec->nodes = 4;
    return cluster::Cluster::Build(*spec);
  }();
  return *cluster;
}

constexpr std::array<Target, 5> kTargets = {{
    {"job", Job},
    {"csv", [](std::string_view b) { (void)search::CsvTable::Parse(b, "input"); }},
    {"nccl-table", [](std::string_view b) { (void)search::NcclLogToCsv(b, "input", {}); }},
    {"connection-matrix",
     [](std::string_view b) { (void)traffic::ParseConnectionMatrix(b, "input", SmallCluster()); }},
    {"shares", [](std::string_view b) { (void)traffic::ParseShares(b, "input", 8); }},
}};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace orrery::fuzz
