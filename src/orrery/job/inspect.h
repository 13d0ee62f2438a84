// What a file holds, as pairs of name and value for people.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/goal.h"
#include "orrery/job/data.h"

namespace orrery::job {

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string Count(std::size_t n);  // "16,384"
// `data`: tables that a user added; null: what is built in.
Result<Facts> JobFacts(const std::string& path, const std::shared_ptr<const Data>& data);
// A cluster by definition, preset, topology file or the job that it is of, on `nodes` hosts (0: as
// many as it names, else 16). A topology file stands on the preset h100-ib-400g for what it does
// not say.
Result<cluster::Cluster> InspectedCluster(const std::string& path, int nodes,
                                          const std::shared_ptr<const Data>& data);
// Its shape: vertices, links by kind, bisection, diameter, diversity.
Facts ClusterFacts(const cluster::Cluster& cluster);
Result<Facts> ModelFacts(const std::string& path, const std::shared_ptr<const Data>& data);
Facts GoalFacts(const formats::GoalSchedule& schedule);
Result<Facts> ResultFacts(std::string_view text, const std::string& name);

}  // namespace orrery::job
