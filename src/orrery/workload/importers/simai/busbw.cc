#include "orrery/workload/importers/simai/busbw.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

using graph::Collective;
using graph::GroupSlot;

constexpr double kGiB = 1073741824;
constexpr std::string_view kSections[] = {"TP", "DP", "EP", "PP"};
constexpr GroupSlot kGroups[] = {GroupSlot::kTp, GroupSlot::kDp, GroupSlot::kEp, GroupSlot::kPp};
constexpr std::string_view kKeys[] = {"allreduce", "allgather", "reducescatter", "alltoall"};
constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll};

}  // namespace

Result<BusBandwidths> BusBandwidths::Parse(std::string_view text, const std::string& name) {
  BusBandwidths table;
  table.name_ = name;
  std::string_view section;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = TakeLine(&text);
    line = Trimmed(line.substr(0, line.find('#')));
    const std::size_t colon = line.find(':');
    if (line.empty() || (colon == line.npos && section.empty())) continue;  // its title
    const std::string_view key = Trimmed(line.substr(0, line.find_first_of(",:")));
    const std::string_view value = colon == line.npos ? "" : Trimmed(line.substr(colon + 1));
    Status added;
    if (colon == line.npos) {
      added = InvalidInput("'{}': a key, a colon and a number are expected", Printable(line, 60));
    } else if (!value.empty()) {
      added = table.Add(section, key, value);
    } else if (const auto at = std::ranges::find(kSections, key); at != std::end(kSections)) {
      section = *at;
    } else {
      added = InvalidInput("{}", UnknownName("section", Printable(key, 40), kSections));
    }
    if (!added.ok()) return std::move(added).In(fmt::format("{}:{}", Printable(name), number));
  }
  if (section.empty()) {
    return InvalidInput("{}: no section TP, DP, EP or PP: this is no table of SimAI's (busbw.yaml)",
                        Printable(name));
  }
  return table;
}

Status BusBandwidths::Add(std::string_view section, std::string_view key, std::string_view value) {
  if (section.empty()) return InvalidInput("'{}' stands before any section", Printable(key, 40));
  const bool pipeline = section == "PP";
  const auto at = std::ranges::find(kKeys, key);
  if (pipeline ? key != "busbw" : at == std::end(kKeys)) {
    constexpr std::string_view kPipeline[] = {"busbw"};
    const std::span<const std::string_view> valid =
        pipeline ? std::span<const std::string_view>(kPipeline) : kKeys;
    return InvalidInput("{}: {}", section, UnknownName("key", Printable(key, 40), valid));
  }
  if (value == "null") return {};
  double gb = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), gb);
  if (error != std::errc() || end != value.data() + value.size() || !(gb > 0) || gb > 1e9) {
    return InvalidInput("{}: {}: '{}' is no bandwidth in GB/s", section, Printable(key, 40),
                        Printable(value, 40));
  }
  const GroupSlot group = kGroups[std::ranges::find(kSections, section) - kSections];
  const Collective collective = pipeline ? Collective::kSend : kCollectives[at - kKeys];
  known_[{group, collective}] = gb * kGiB;
  return {};
}

Result<SimTime> BusBandwidths::Time(GroupSlot group, Collective collective, std::int64_t bytes,
                                    std::int64_t members) const {
  if (group == GroupSlot::kExpertDp) group = GroupSlot::kEp;
  const auto at = known_.find({group, collective});
  if (at == known_.end()) {
    const std::string_view section = kSections[std::ranges::find(kGroups, group) - kGroups];
    const bool pipeline = collective == Collective::kSend;
    const std::string_view key =
        pipeline ? "busbw" : kKeys[std::ranges::find(kCollectives, collective) - kCollectives];
    return InvalidInput("{}: {} has no {}, and the workload needs one", Printable(name_), section,
                        key);
  }
  const auto n = static_cast<double>(members);
  const double factor = collective == Collective::kSend        ? 1
                        : collective == Collective::kAllReduce ? 2 * (n - 1) / n
                                                               : (n - 1) / n;
  return RoundToPs(static_cast<double>(bytes) / at->second * factor * 1e12);
}

}  // namespace orrery::workload
