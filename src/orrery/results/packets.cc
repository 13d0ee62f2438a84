#include "orrery/results/packets.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/results/packets_json.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

constexpr std::size_t kShown = 5;

std::string Count(std::uint64_t n) { return HumanCount(static_cast<std::int64_t>(n)); }

}  // namespace

PacketUse UseOfPackets(const network::PacketCounts& counts, const cluster::Cluster& cluster) {
  PacketUse use;
  use.counts = counts;
  use.counts.ports.clear();
  for (std::size_t l = 0; l < counts.ports.size(); ++l) {
    const network::PacketPort& p = counts.ports[l];
    use.sum.marks += p.marks;
    use.sum.drops += p.drops;
    use.sum.trims += p.trims;
    use.sum.pauses += p.pauses;
    use.sum.paused += p.paused;
    if (p.longest_queue == 0 && p.pauses == 0 && p.drops == 0) continue;
    use.links.push_back({cluster.link_name(LinkId(l)), LinkId(l), p});
  }
  std::stable_sort(use.links.begin(), use.links.end(),
                   [](const PacketLink& a, const PacketLink& b) {
                     return a.port.longest_queue > b.port.longest_queue;
                   });
  return use;
}

nlohmann::ordered_json PacketsJson(const PacketUse& use, std::size_t most_links) {
  const network::PacketCounts& c = use.counts;
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < std::min(most_links, use.links.size()); ++i) {
    const network::PacketPort& p = use.links[i].port;
    links.push_back({{"link", use.links[i].name},
                     {"longest_queue_bytes", p.longest_queue},
                     {"longest_queue_at_s", ToSeconds(p.longest_at)},
                     {"marked", p.marks},
                     {"trimmed", p.trims},
                     {"lost", p.drops},
                     {"pauses", p.pauses},
                     {"paused_s", ToSeconds(p.paused)}});
  }
  return {{"sent", c.data_packets},
          {"sent_again", c.retransmissions},
          {"timeouts", c.timeouts},
          {"hops", c.hops},
          {"control_hops", c.control_hops},
          {"switch_batches", c.batches},
          {"host_turns", c.turns},
          {"marked", use.sum.marks},
          {"trimmed", use.sum.trims},
          {"lost", use.sum.drops},
          {"pauses", use.sum.pauses},
          {"paused_s", ToSeconds(use.sum.paused)},
          {"largest_buffer_bytes", c.largest_buffer},
          {"links", std::move(links)}};
}

std::string PacketsText(const PacketUse& use) {
  const network::PacketCounts& c = use.counts;
  std::string text = fmt::format(
      "  {} data packets sent, {} of them again; {} timeouts; {} hops, {} of them control\n"
      "  {} marked, {} trimmed, {} lost; {} pauses, {} of links together\n",
      Count(c.data_packets), Count(c.retransmissions), Count(c.timeouts), Count(c.hops),
      Count(c.control_hops), Count(use.sum.marks), Count(use.sum.trims), Count(use.sum.drops),
      Count(use.sum.pauses), HumanTime(use.sum.paused));
  if (use.links.empty() || use.links.front().port.longest_queue == 0) return text;
  TextTable table;
  table.Row({"longest queues", "bytes", "at", "marked", "trimmed", "lost", "paused for"});
  for (std::size_t column = 1; column < 7; ++column) table.AlignRight(column);
  for (std::size_t i = 0; i < std::min(kShown, use.links.size()); ++i) {
    const network::PacketPort& p = use.links[i].port;
    if (p.longest_queue == 0) break;
    table.Row({use.links[i].name, HumanBytes(p.longest_queue), HumanTime(p.longest_at),
               Count(p.marks), Count(p.trims), Count(p.drops), HumanTime(p.paused)});
  }
  return text + "\n" + table.Render("  ");
}

}  // namespace orrery::results
