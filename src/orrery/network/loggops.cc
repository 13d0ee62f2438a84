#include "orrery/network/loggops.h"

#include <algorithm>
#include <limits>

#include "orrery/base/check.h"
#include "orrery/base/int128.h"
#include "orrery/network/backends.h"
#include "orrery/network/owners.h"
#include "orrery/network/wire.h"

namespace orrery::network {
namespace {

constexpr std::int64_t kAttosecondsPerPs = 1'000'000;

// `bytes` times a duration a byte, rounded up to a whole ps once.
SimTime PerByte(std::int64_t bytes, std::int64_t attoseconds) {
  const auto product = static_cast<Uint128>(bytes) * static_cast<Uint128>(attoseconds);
  return static_cast<SimTime>((product + kAttosecondsPerPs - 1) / kAttosecondsPerPs);
}

}  // namespace

std::unique_ptr<Network> MakeLogGops(const Parameters& parameters) {
  return std::make_unique<LogGopsNetwork>(parameters.loggops);
}

Status LogGopsNetwork::SetupLinks(const cluster::Cluster& cluster,
                                  std::span<const std::uint32_t> partition_of_domain,
                                  std::uint32_t partition) {
  *this = LogGopsNetwork(parameters_);
  cluster_ = &cluster;
  partition_ = partition;
  partition_of_domain_.assign(partition_of_domain.begin(), partition_of_domain.end());
  processor_.resize(cluster.devices());
  port_out_.resize(cluster.links().size());
  port_in_.resize(cluster.links().size());
  statistics_.resize(cluster.links().size());
  if (OnePartition(partition_of_domain)) return {};
  ORRERY_RETURN_IF_ERROR(CheckPorts());
  // No less than the latencies on the way: a credit that goes back takes these alone.
  ORRERY_ASSIGN_OR_RETURN(const Owners owners, FindOwners(cluster, partition_of_domain));
  lookahead_ = owners.lookahead;
  if (parameters_.L) lookahead_ = std::min(lookahead_, parameters_.o + *parameters_.L);
  if (lookahead_ > 0) return {};
  return InvalidInput(
      "loggops.L is 0, and so is loggops.o: partitions need a latency between them; "
      "use --threads 1");
}

// A NIC's port has one owner.
Status LogGopsNetwork::CheckPorts() const {
  if (cluster_->direct() || cluster_->nics() == 0) return {};
  std::vector<std::uint32_t> owner(cluster_->nics(), kNone);
  for (std::size_t d = 0; d < cluster_->devices(); ++d) {
    const std::uint32_t own = partition_of_domain_[cluster_->nvlink_domain(DeviceId(d))];
    std::uint32_t& nic = owner[cluster_->nic(DeviceId(d)).index()];
    if (nic != kNone && nic != own) {
      return InvalidInput(
          "network 'loggops': NVLink domains that share a NIC are one partition; "
          "use --threads 1");
    }
    nic = own;
  }
  return {};
}

std::uint32_t LogGopsNetwork::NewMessage(const Transfer& transfer, std::uint64_t sequence) {
  const std::uint32_t id = messages_.Add(transfer, sequence);
  Message& m = messages_[id];
  m.wire = WireBytes(*cluster_, transfer.from, transfer.to, transfer.bytes, transfer.salt);
  m.path = paths_.Find(*cluster_, transfer.from, transfer.to, transfer.salt);
  if (m.path >= path_.size() || path_[m.path].least_Bps == 0) MakePath(transfer, m.path);
  return id;
}

// Ports: the first and the last link of the path that are not PCIe, nor NVLink of a path that
// leaves the domain. Of a path inside a host over PCIe the GPUs' own links.
void LogGopsNetwork::MakePath(const Transfer& transfer, std::uint32_t number) {
  if (number >= path_.size()) path_.resize(std::size_t{number} + 1);
  Path& path = path_[number];
  const bool leaves =
      cluster_->nvlink_domain(transfer.from) != cluster_->nvlink_domain(transfer.to);
  path.named = leaves && parameters_.named();
  path.least_Bps = std::numeric_limits<std::int64_t>::max();
  for (const LinkId id : paths_.path(number)) {
    const cluster::Link& link = cluster_->links()[id.index()];
    path.least_Bps = std::min(path.least_Bps, link.bandwidth_Bps);
    const bool pcie = cluster::IsLocal(link.kind) && link.kind != cluster::LinkKind::kNvlink;
    if (pcie && (leaves || link.kind != cluster::LinkKind::kPcie)) continue;
    if (leaves && link.kind == cluster::LinkKind::kNvlink && !cluster_->direct()) continue;
    if (path.out == kNone) path.out = id.value;
    path.in = id.value;
  }
}

// The path's LogGOPS for messages of so many wire bytes.
void LogGopsNetwork::SetTimes(std::uint32_t number, std::int64_t wire) {
  Path& path = path_[number];
  if (path.wire == wire) return;
  path.wire = wire;
  path.bytes_G = TransferTime(wire, path.least_Bps);
  path.flight = PathTime(*cluster_, paths_.path(number), wire) - path.bytes_G;
  if (!path.named) return;
  const std::int64_t rest = std::max<std::int64_t>(wire - 1, 0);
  if (parameters_.G_as) path.bytes_G = PerByte(rest, *parameters_.G_as);
  path.bytes_O = PerByte(rest, parameters_.O_as);
  path.o = parameters_.o;
  path.g = parameters_.g;
  path.flight = path.o + parameters_.L.value_or(path.flight);
}

void LogGopsNetwork::Push(SimTime time, std::uint32_t id, Stage stage) {
  messages_[id].stage = stage;
  messages_.Push(time, id);
}

// Takes the resource from now or from when it is free; when it begins.
SimTime LogGopsNetwork::Hold(std::vector<SimTime>* free, std::size_t which, SimTime length) const {
  const SimTime begin = std::max(messages_.now(), (*free)[which]);
  (*free)[which] = begin + length;
  return begin;
}

void LogGopsNetwork::Start(SimTime now, std::span<const Transfer> transfers) {
  ORRERY_CHECK(cluster_ != nullptr, "SetupLinks comes first");
  messages_.Start(now, transfers, [&](const Transfer& transfer, std::uint64_t sequence) {
    Push(now, NewMessage(transfer, sequence), Stage::kSender);
  });
}

// The message has come to its stage now.
void LogGopsNetwork::Take(std::uint32_t id) {
  Message& m = messages_[id];
  SetTimes(m.path, m.wire);
  const Path& path = path_[m.path];
  if (path.out == kNone) return Push(messages_.now(), id, Stage::kDone);  // to itself
  const SimTime processor = path.o + path.bytes_O, port = path.g + path.bytes_G;
  switch (m.stage) {
    case Stage::kSender:
      if (processor > 0) {
        return Push(Hold(&processor_, m.transfer.from.index(), processor), id, Stage::kPortOut);
      }
      return LeavePort(id, path);
    case Stage::kPortOut:
      return LeavePort(id, path);
    case Stage::kPortIn: {
      // One link both ways: into a switch, or out of it, alone.
      const SimTime taken = path.in == path.out ? messages_.now() : Hold(&port_in_, path.in, port);
      if (path.in != path.out) {
        statistics_[path.in].bytes += m.wire;
        statistics_[path.in].busy += port;
      }
      if (processor > 0) return Push(taken, id, Stage::kReceiver);
      return Push(taken + path.bytes_G, id, Stage::kDone);
    }
    case Stage::kReceiver: {
      const SimTime begin = Hold(&processor_, m.transfer.to.index(), processor);
      return Push(begin + path.o + std::max(path.bytes_O, path.bytes_G), id, Stage::kDone);
    }
    case Stage::kDone:
      break;
  }
  ORRERY_CHECK(false, "a complete message has no stage to come");
}

// Through the port out, and on to the receiver, here or in another partition.
void LogGopsNetwork::LeavePort(std::uint32_t id, const Path& path) {
  Message& m = messages_[id];
  const SimTime begin = Hold(&port_out_, path.out, path.g + path.bytes_G);
  statistics_[path.out].bytes += m.wire;
  statistics_[path.out].busy += path.g + path.bytes_G;
  const SimTime arrival = begin + path.flight;
  const std::size_t domain = cluster_->nvlink_domain(m.transfer.to);
  const std::uint32_t owner =
      domain < partition_of_domain_.size() ? partition_of_domain_[domain] : 0;
  if (owner == partition_) return Push(arrival, id, Stage::kPortIn);
  messages_.Leave({arrival, owner, 0, m.transfer, m.sequence, arrival}, id);
}

SimTime LogGopsNetwork::AdvanceUntil(SimTime t, std::vector<Completion>* done) {
  return messages_.AdvanceUntil(t, done, [&](std::uint32_t id) {
    if (messages_[id].stage == Stage::kDone) return true;
    Take(id);
    return false;
  });
}

void LogGopsNetwork::Deliver(const RemoteHop& hop) {
  ORRERY_CHECK(hop.partition == partition_, "a hop enters the partition it names");
  Push(hop.time, NewMessage(hop.transfer, hop.sequence), Stage::kPortIn);
}

}  // namespace orrery::network
