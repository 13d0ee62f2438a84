#include <algorithm>
#include <array>

#include "orrery/base/int128.h"
#include "orrery/results/result.h"

namespace orrery::results {
namespace {

// A row of all `links` together.
UseOverTime::Row MakeRow(std::string name, const engine::Record& record,
                         const cluster::Cluster& cluster, std::span<const std::size_t> links,
                         std::size_t steps) {
  UseOverTime::Row row;
  row.name = std::move(name);
  std::vector<Uint128> sums(steps, 0);  // in the log's parts of a byte
  double rate_Bps = 0;
  for (const std::size_t l : links) {
    rate_Bps += static_cast<double>(cluster.links()[l].bandwidth_Bps);
    const auto log = record.use.of(l);
    for (std::size_t i = 0; i < std::min(steps, log.size()); ++i) {
      sums[i] += static_cast<Uint128>(log[i]);
    }
  }
  const SimTime width = record.use.width();
  for (std::size_t i = 0; i < steps; ++i) {
    const SimTime begin = static_cast<SimTime>(i) * width;
    // What is on its way when the last rank is done lands too: then the step is a whole one.
    const SimTime end =
        record.finish_time > begin ? std::min(begin + width, record.finish_time) : begin + width;
    const double bytes = static_cast<double>(sums[i]) / network::UseLog::kByte;
    row.bytes.push_back(static_cast<std::int64_t>(sums[i] / network::UseLog::kByte));
    row.utilisation.push_back(bytes / (rate_Bps * ToSeconds(end - begin)));
  }
  return row;
}

// Steps up to the last one that holds anything or that the run reaches.
std::size_t StepsOf(const engine::Record& record) {
  const SimTime width = record.use.width();
  auto steps = static_cast<std::size_t>((record.finish_time + width - 1) / width);
  for (std::size_t l = 0; l < record.use.links(); ++l) {
    const auto log = record.use.of(l);
    std::size_t n = log.size();
    while (n > steps && log[n - 1] == 0) --n;
    steps = std::max(steps, n);
  }
  return steps;
}

}  // namespace

UseOverTime OverTime(const engine::Record& record, const cluster::Cluster& cluster,
                     std::span<const WorstLink> worst) {
  UseOverTime use;
  if (!record.use.on()) return use;
  use.step = record.use.width();
  const std::size_t steps = StepsOf(record);
  std::array<std::vector<std::size_t>, cluster::kLinkKinds> of_kind;
  for (std::size_t l = 0; l < cluster.links().size(); ++l) {
    of_kind[static_cast<std::size_t>(cluster.links()[l].kind)].push_back(l);
  }
  for (std::size_t k = 0; k < of_kind.size(); ++k) {
    if (of_kind[k].empty()) continue;
    use.classes.push_back(MakeRow(std::string(cluster::Name(static_cast<cluster::LinkKind>(k))),
                                  record, cluster, of_kind[k], steps));
  }
  for (const WorstLink& link : worst) {
    const std::size_t one[] = {link.link.index()};
    use.links.push_back(MakeRow(link.name, record, cluster, one, steps));
  }
  return use;
}

}  // namespace orrery::results
