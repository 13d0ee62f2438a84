#include "orrery/network/network.h"

#include <algorithm>
#include <array>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/network/backends.h"

namespace orrery::network {
namespace {

constexpr std::array kBackends = {
    BackendInfo{
        .name = "analytic",
        .description =
            "Each port's bandwidth is shared equally among the flows in flight on it; a "
            "collective of fixed time F and transfer time T takes F + max(T, max over ports of "
            "bytes x flows / capacity) while the sharing lasts.",
        .fluids = true},
    BackendInfo{
        .name = "links",
        .description =
            "Each direction of a link is a FIFO of messages, cut through at the MTU; alone a "
            "message takes the sum of latencies + wire bytes / least bandwidth + min(MTU, wire "
            "bytes) / bandwidth on every other hop.",
        .transfers = true,
        .sees_links = true},
    BackendInfo{
        .name = "flow",
        .description =
            "Weighted max-min fair rates over the links of each path, in 256ths of a byte/s, "
            "solved again at each start and end; alone a flow takes its path's latencies + wire "
            "bytes / least bandwidth + min(MTU, wire bytes) / bandwidth on every other hop; "
            "messages of one connection go in order.",
        .transfers = true,
        .link_fluids = true,
        .sees_links = true},
    BackendInfo{
        .name = "flow-chunks",
        .description =
            "As flow, but collectives run chunk by chunk as on links: every channel's next "
            "message has its max-min fair rate, where links serves one after the other; so a "
            "collective's channels come late together, and alone it takes up to a third longer.",
        .transfers = true,
        .sees_links = true},
    BackendInfo{
        .name = "loggops",
        .description =
            "LogGOPS between end points: a message holds the sender's port and then the "
            "receiver's for g + bytes x G and arrives o + L after; L and G from its path where "
            "the job names none, so that alone it takes as long as on links.",
        .transfers = true},
    BackendInfo{
        .name = "packet",
        .description =
            "Packets through output-queued switches with shared buffers, ECN, PFC or trimming, "
            "under a congestion control (orrery list congestion-controls); with 'none' alone a "
            "message takes as long as on links.",
        .transfers = true,
        .sees_links = true},
    BackendInfo{
        .name = "external",
        .description =
            "A program of yours that $ORRERY_NETWORK_COMMAND starts, told of every message and "
            "asked when it arrives, line by line (docs/formats/external-network.md).",
        .transfers = true},
};
constexpr std::array<std::unique_ptr<Network> (*)(const Parameters&), kBackends.size()> kMake = {
    [](const Parameters&) { return MakeAnalytic(); },
    [](const Parameters&) { return MakeLinks(); },
    [](const Parameters&) { return MakeFlow("flow"); },
    [](const Parameters&) { return MakeFlow("flow-chunks"); },
    MakeLogGops,
    MakePacket,
    [](const Parameters&) { return MakeExternal(); }};

}  // namespace

Status Network::SetupPorts(std::span<const std::int64_t>) {
  return InvalidInput(
      "network '{}' serves transfers only; choose 'analytic' for closed-form collectives", name());
}

void Network::Start(SimTime, std::span<const Fluid> fluids, std::span<const PortLoad>) {
  ORRERY_CHECK(fluids.empty(), "this network serves no fluids over ports");
}

void Network::Start(SimTime, std::span<const LinkFluid> fluids, std::span<const LinkLoad>) {
  ORRERY_CHECK(fluids.empty(), "this network serves no fluids over links");
}

std::uint32_t Network::Know(std::span<const LinkLoad>, std::uint32_t, std::int64_t) {
  return LinkFluid::kUnknown;
}

void Network::Move(SimTime, FlightId, std::span<const LinkLoad>) {
  ORRERY_CHECK(false, "this network serves no fluids over links");
}

void Network::KeepUseLog(std::size_t) { ORRERY_CHECK(false, "this network sees no single links"); }

std::span<const BackendInfo> Backends() { return kBackends; }

bool SeesLinks(std::string_view backend) {
  return std::any_of(kBackends.begin(), kBackends.end(), [&](const BackendInfo& info) {
    return info.name == backend && info.sees_links;
  });
}

Result<std::unique_ptr<Network>> Create(std::string_view name, const Parameters& parameters) {
  std::array<std::string_view, kBackends.size()> valid;
  for (std::size_t i = 0; i < kBackends.size(); ++i) {
    if (kBackends[i].name == name) return kMake[i](parameters);
    valid[i] = kBackends[i].name;
  }
  return InvalidInput("{}", UnknownName("network", name, valid));
}

}  // namespace orrery::network
