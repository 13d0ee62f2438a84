// What runs of traffic say: a table for the terminal, JSON (orrery.traffic/1), a plot.
#pragma once

#include <string>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/traffic/run.h"
#include "orrery/traffic/sweep.h"

namespace orrery::traffic {

// What every report says of its run.
struct Heading {
  std::string pattern;  // "permutation", "all-reduce", a file's name
  std::string cluster;  // in one line
  std::string network;
  std::uint64_t seed = 1;
  std::vector<std::string> assumed;
};

// Use of the links of one kind: sums, means over all of them, and the most used one. Utilisation is
// bytes over capacity; a link is busy while a message holds a share of it, however small.
struct LinkClass {
  std::string name;
  std::size_t links = 0, used = 0;
  std::int64_t bytes = 0;
  double busy_share = 0, most_busy = 0;
  double utilisation = 0, most_used = 0;
  LinkId busiest;
};
std::vector<LinkClass> LinkClasses(const cluster::Cluster& cluster,
                                   const std::vector<network::PortStatistics>& links,
                                   SimTime finish);
// The links of highest utilisation first, ties by number; idle ones are left out.
std::vector<LinkUse> WorstLinks(const cluster::Cluster& cluster,
                                const std::vector<network::PortStatistics>& links, SimTime finish,
                                std::size_t count);

std::string ReportText(const Heading& heading, const cluster::Cluster& cluster, const FlowRun& run);
std::string ReportJson(const Heading& heading, const cluster::Cluster& cluster, const FlowRun& run);
std::string ReportText(const Heading& heading, const Sweep& sweep);
std::string ReportJson(const Heading& heading, const Sweep& sweep);
// The longest queues over time. REQUIRES: the run kept its queues.
std::string QueuesSvg(const Heading& heading, const cluster::Cluster& cluster, const FlowRun& run);
// Bus bandwidth over size, measured beside predicted where there is a log.
std::string ReportSvg(const Heading& heading, const Sweep& sweep);

}  // namespace orrery::traffic
