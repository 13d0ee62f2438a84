#include "orrery/network/links.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/network/backends.h"
#include "orrery/network/owners.h"
#include "orrery/network/wire.h"

namespace orrery::network {

std::unique_ptr<Network> MakeLinks() { return std::make_unique<Links>(); }

Status Links::SetupLinks(const cluster::Cluster& cluster,
                         std::span<const std::uint32_t> partition_of_domain,
                         std::uint32_t partition) {
  *this = Links();
  ORRERY_ASSIGN_OR_RETURN(const Owners owners, FindOwners(cluster, partition_of_domain));
  cluster_ = &cluster;
  partition_ = partition;
  partition_of_domain_.assign(partition_of_domain.begin(), partition_of_domain.end());
  lookahead_ = owners.lookahead;
  const std::span<const cluster::Link> links = cluster.links();
  links_.resize(links.size());
  statistics_.resize(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    links_[i].bandwidth_Bps = links[i].bandwidth_Bps;
    links_[i].latency = links[i].latency;
    links_[i].mtu_bytes = links[i].mtu_bytes;
    links_[i].owner = owners.link[i];
  }
  const bool whole = OnePartition(partition_of_domain);
  adaptive_ = cluster.spec().topology.routing == cluster::Routing::kAdaptive;
  if (adaptive_ && !whole) {
    return InvalidInput("adaptive routing sees the whole network: one partition (--threads 1)");
  }
  schedule_ = LinkSchedule(cluster);
  failures_ = Failures(cluster);
  if (failures_.any() && !whole) {
    return InvalidInput(
        "perturb.links: a way round a link that fails needs the whole network: one partition "
        "(--threads 1)");
  }
  for (const LinkSchedule::Change& change : schedule_.changes()) {
    links_[change.link.index()].changes = true;
  }
  return {};
}

std::uint32_t Links::PathOf(const Transfer& transfer) {
  if (failures_.any() && !adaptive_) {
    if (failures_.Advance(messages_.now())) detours_.clear();
    const std::uint32_t own = paths_.Find(*cluster_, transfer.from, transfer.to, transfer.salt);
    if (!failures_.blocked(paths_.path(own))) return own;
    const auto [at, fresh] = detours_.try_emplace(own, own);
    if (!fresh) return at->second;
    const Status status = failures_.Route(transfer.from, transfer.to, transfer.salt, &route_);
    if (!status.ok() && status_.ok()) status_ = status;
    if (status.ok() && !failures_.blocked(route_)) at->second = paths_.Add(route_);
    return at->second;
  }
  if (!adaptive_) return paths_.Find(*cluster_, transfer.from, transfer.to, transfer.salt);
  return paths_.FindLeast(
      *cluster_, transfer.from, transfer.to, transfer.salt, [&](std::span<const LinkId> path) {
        SimTime longest = 0;
        for (const LinkId id : path)
          longest = std::max(longest, links_[id.index()].free - messages_.now());
        return longest;
      });
}

std::uint32_t Links::NewMessage(const Transfer& transfer, std::uint64_t sequence) {
  const std::uint32_t id = messages_.Add(transfer, sequence);
  Message& m = messages_[id];
  m.wire = WireBytes(*cluster_, transfer.from, transfer.to, transfer.bytes, transfer.salt);
  m.path = PathOf(transfer);
  m.hop = 0;
  return id;
}

void Links::Start(SimTime now, std::span<const Transfer> transfers) {
  ORRERY_CHECK(cluster_ != nullptr, "SetupLinks comes first");
  messages_.Start(now, transfers, [&](const Transfer& transfer, std::uint64_t sequence) {
    const std::uint32_t id = NewMessage(transfer, sequence);
    messages_[id].tail = now;  // all of it lies ready
    messages_.Push(now, id);
  });
}

// The message's head stands before its next link at `time`. Messages come here in FIFO order.
void Links::Arrive(SimTime time, std::uint32_t id) {
  Message& m = messages_[id];
  if (failures_.any() && GoRound(time, id)) return;
  const std::span<const LinkId> path = paths_.path(m.path);
  const std::uint32_t number = path[m.hop].value;
  LinkState& link = links_[number];
  ORRERY_CHECK(link.owner == partition_, "a transfer starts in the partition of its sender");
  if (link.wire != m.wire) {
    link.wire = m.wire;
    link.head = TransferTime(HeadBytes(link.mtu_bytes, m.wire), link.bandwidth_Bps);
    link.whole = TransferTime(m.wire, link.bandwidth_Bps);
  }
  const SimTime begin = std::max(time, link.free);
  statistics_[number].bytes += m.wire;
  SimTime head_out = begin + link.head;
  if (link.changes) {
    head_out = Serve(path[m.hop], &link, m, begin);
  } else {
    link.free = std::max(begin + link.whole, m.tail + link.head);
    statistics_[number].busy += link.whole;
    if (log_.on()) log_.AddBytes(number, begin, begin + link.whole, m.wire);
  }
  // The link never returns: nor do the message and what queues behind it.
  if (head_out == kNever || link.free == kNever) return;
  m.tail = link.free + link.latency;
  ++m.hop;
  if (m.hop < path.size()) {
    PassOn(head_out + link.latency, id, links_[path[m.hop].index()].owner);
  } else {
    PassOn(m.tail, id, partition_of_domain_[cluster_->nvlink_domain(m.transfer.to)]);
  }
}

// Gives the message another path from here on if its next link is down, or sees to it that it comes
// again when the link goes down before the message has passed: then true.
bool Links::GoRound(SimTime time, std::uint32_t id) {
  Message& m = messages_[id];
  if (failures_.Advance(time)) detours_.clear();
  std::span<const LinkId> path = paths_.path(m.path);
  if (failures_.down(path[m.hop])) {
    const std::uint32_t vertex = cluster_->links()[path[m.hop].index()].from;
    const Transfer& t = m.transfer;
    const Status status =
        failures_.RouteFrom(vertex, path.subspan(m.hop), t.from, t.to, t.salt, &route_);
    if (!status.ok()) {
      if (status_.ok()) status_ = status;
      return true;
    }
    if (failures_.down(route_.front())) return false;  // it waits for the link to return
    m.path = paths_.Add(route_);
    m.hop = 0;
    path = paths_.path(m.path);
  }
  LinkState& link = links_[path[m.hop].index()];
  if (!link.changes) return false;
  const auto changes = schedule_.of(path[m.hop]);
  const auto fails = std::ranges::find_if(changes, [&](const LinkSchedule::Change& change) {
    return change.time > time && change.capacity_Bps == 0;
  });
  if (fails == changes.end()) return false;
  const SimTime begin = std::max(time, link.free);
  if (ServedBy(changes, link.bandwidth_Bps, begin, m.wire) <= fails->time) return false;
  const std::uint32_t vertex = cluster_->links()[path[m.hop].index()].from;
  if (failures_.MustWait(fails->time, vertex, path.subspan(m.hop), m.transfer.to,
                         m.transfer.salt)) {
    return false;  // what has passed by then stays
  }
  link.free = std::max(link.free, fails->time);  // nobody passes it before
  messages_.Push(fails->time, id);
  return true;
}

// Arrive's rule on a link whose bandwidth changes: when the head has passed; the link is free when
// the message has.
SimTime Links::Serve(LinkId id, LinkState* link, const Message& m, SimTime begin) {
  if (begin == kNever) return kNever;
  const auto changes = schedule_.of(id);
  const std::int64_t head = HeadBytes(link->mtu_bytes, m.wire);
  const auto served = [&](SimTime from, std::int64_t bytes) {
    return ServedBy(changes, link->bandwidth_Bps, from, bytes);
  };
  const SimTime whole = served(begin, m.wire);
  link->free = std::max(whole, served(m.tail, head));
  if (whole != kNever) {
    statistics_[id.index()].busy += whole - begin;
    if (log_.on()) log_.AddBytes(id.index(), begin, whole, m.wire);
  }
  return served(begin, head);
}

// Sends the message to its next hop, here or in another partition.
void Links::PassOn(SimTime time, std::uint32_t id, std::uint32_t owner) {
  if (owner == partition_) return messages_.Push(time, id);
  const Message& m = messages_[id];
  messages_.Leave({time, owner, m.hop, m.transfer, m.sequence, m.tail}, id);
}

SimTime Links::AdvanceUntil(SimTime t, std::vector<Completion>* done) {
  return messages_.AdvanceUntil(t, done, [&](std::uint32_t id) {
    const Message& m = messages_[id];
    if (m.hop == paths_.path(m.path).size()) return true;
    Arrive(messages_.now(), id);
    return false;
  });
}

void Links::Deliver(const RemoteHop& hop) {
  ORRERY_CHECK(hop.partition == partition_, "a hop enters the partition it names");
  const std::uint32_t id = NewMessage(hop.transfer, hop.sequence);
  messages_[id].hop = hop.next_hop;
  messages_[id].tail = hop.tail;
  messages_.Push(hop.time, id);
}

}  // namespace orrery::network
