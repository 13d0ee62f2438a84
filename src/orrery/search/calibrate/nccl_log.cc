// nccl-tests' output as a table of collectives.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/fabrics.h"
#include "orrery/formats/nccl_log.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/search/validate/collectives.h"

namespace orrery::search {
namespace {

using formats::NcclTestsLog;

// The one kind of GPU that it ran on. REQUIRES: the log lists ranks.
Result<std::string> GpuOf(const NcclTestsLog& log, const std::string& name) {
  const std::string& gpu = log.ranks.front().gpu;
  for (const NcclTestsLog::Rank& rank : log.ranks) {
    if (rank.gpu == gpu) continue;
    return InvalidInput("{}:{}: ranks on different GPUs ({} and {}): calibrate one kind at a time",
                        name, rank.line, Printable(gpu, 40), Printable(rank.gpu, 40));
  }
  return gpu;
}

struct Place {
  std::string gpu;
  std::size_t hosts = 1, ranks = 1;
};

// Where it ran: what the log says; what the options say, where it says nothing.
Result<Place> PlaceOf(const NcclTestsLog& log, const std::string& name,
                      const NcclLogOptions& options) {
  Place place;
  const auto nodes = static_cast<std::size_t>(options.nodes);
  const auto gpus = static_cast<std::size_t>(options.gpus);
  if (log.ranks.empty()) {
    if (gpus == 0 || options.device.empty()) {
      return InvalidInput(
          "{}: no '#  Rank' lines: the log does not say on which GPUs it ran; give the test's "
          "whole output, or --nodes 2 --gpus 16 --device H100-SXM5-80GB (the GPUs of all hosts)",
          name);
    }
    return Place{options.device, nodes > 0 ? nodes : 1, gpus};
  }
  ORRERY_ASSIGN_OR_RETURN(place.gpu, GpuOf(log, name));
  std::set<std::string_view> hosts;
  for (const NcclTestsLog::Rank& rank : log.ranks) hosts.insert(rank.host);
  place.hosts = hosts.size();
  place.ranks = log.ranks.size();
  if ((nodes > 0 && nodes != place.hosts) || (gpus > 0 && gpus != place.ranks)) {
    return InvalidInput(
        "{}: the log is of {} ranks on {} hosts, not what --nodes and --gpus say; "
        "leave them out",
        name, place.ranks, place.hosts);
  }
  return place;
}

}  // namespace

Result<std::string> NcclLogToCsv(std::string_view text, const std::string& name,
                                 const NcclLogOptions& options) {
  if (!options.network.empty()) {
    if (Status fabric = cluster::CheckFabricText(options.network); !fabric.ok()) {
      return std::move(fabric).In("--fabric");
    }
  }
  const std::vector<std::string_view> names = CollectiveNames();
  if (!options.collective.empty() &&
      std::find(names.begin(), names.end(), options.collective) == names.end()) {
    return InvalidInput("--collective: {}",
                        UnknownName("collective", Printable(options.collective, 40), names));
  }
  ORRERY_ASSIGN_OR_RETURN(const NcclTestsLog log, formats::ParseNcclTestsLog(text, name));
  const std::string& collective = options.collective.empty() ? log.test : options.collective;
  if (collective.empty()) {
    return InvalidInput("{}: the log does not say which test it is; give --collective all_reduce",
                        name);
  }
  ORRERY_ASSIGN_OR_RETURN(const Place place, PlaceOf(log, name, options));
  if (place.ranks % place.hosts != 0) {
    return InvalidInput("{}: {} ranks on {} hosts: hosts with unequal numbers of GPUs", name,
                        place.ranks, place.hosts);
  }
  if (place.hosts > 1 && options.network.empty()) {
    return InvalidInput(
        "{}: {} hosts: say how they are connected, such as --fabric '8x400Gb/s "
        "InfiniBand'",
        name, place.hosts);
  }
  ORRERY_RETURN_IF_ERROR(formats::CheckNcclTestsLog(log, collective, place.ranks, name));
  std::string out =
      "source,gpu,nodes,gpus_per_node,nccl_version,network,collective,size_bytes,dtype,"
      "time_us_oop\n";
  for (const NcclTestsLog::Row& row : log.rows) {
    out +=
        fmt::format("log,{},{},{},{},{},{},{},{},{}\n", formats::CsvField(place.gpu), place.hosts,
                    place.ranks / place.hosts, log.version, formats::CsvField(options.network),
                    collective, row.bytes, row.type, row.time_us);
  }
  return out;
}

}  // namespace orrery::search
