#include "orrery/collective/playback/playback_uneven.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

constexpr std::int64_t kWhole = 2000, kMost = 8000;  // chunks
constexpr int kMostRanks = 128;
// Played of a message on average, at least; of more ranks messages multiplex better.
constexpr std::int64_t AtLeast(int ranks) { return ranks <= 64 ? 8 : 4; }

// What a chunk takes on its way, of all parts that go as one.
struct Chunk {
  std::int64_t bytes = 0;
  // Of NVLink's ports, of them on the way to a rail, of PCIe, of a NIC.
  SimTime near = 0, hop = 0, pcie = 0, far = 0;
  // From its start at a port to the next one: over NVLink, into the rail's GPU and out of it, over
  // PCIe, and from NIC to NIC.
  SimTime to_near = 0, to_rail = 0, to_nic_over_pcie = 0, to_far = 0;
};

// One part of a message.
struct Message {
  std::uint32_t chunks = 0;
  Chunk last;
  std::int64_t share = 0;  // bytes
};

// Sizes by Shares::parts.
class Messages {
 public:
  // `parts` of them go as one.
  Messages(const Plan& plan, const model::WhiteBox& box, const cluster::Spec& spec, int parts)
      : plan_(plan), box_(box), spec_(spec), parts_(parts), ranks_(plan.uneven.shares->ranks) {
    full_ = ChunkOf(plan.chunk_bytes);
    const std::size_t count = plan.uneven.shares->parts.size();
    messages_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t from = count == ranks_ ? 0 : i / ranks_, to = i % ranks_;
      if (plan.uneven.returned) std::swap(from, to);
      const model::Pieces pieces =
          model::CutMessage(plan, plan.uneven.Message(plan.bytes, from, to));
      Message& message = messages_[i];
      message.share = pieces.share;
      message.chunks = static_cast<std::uint32_t>(pieces.rounds) + (pieces.tail.slices > 0 ? 1 : 0);
      message.last = pieces.tail.slices > 0 ? ChunkOf(pieces.tail.bytes) : full_;
    }
  }
  const Message& Of(std::size_t from, std::size_t to) const {
    if (plan_.uneven.returned) std::swap(from, to);
    return messages_[messages_.size() == ranks_ ? to : from * ranks_ + to];
  }
  const Chunk& At(const Message& message, std::uint32_t number) const {
    return number + 1 < message.chunks ? full_ : message.last;
  }
  std::int64_t Chunks() const {
    std::int64_t all = 0;
    for (const Message& message : messages_) all += message.chunks;
    return messages_.size() == ranks_ ? all * (ranks_ - 1) : all;
  }

 private:
  Chunk ChunkOf(std::int64_t bytes) const {
    Chunk chunk;
    chunk.bytes = bytes;
    const std::int64_t wire = model::OnWire(plan_.protocol, bytes);
    const auto near = static_cast<double>(box_.intra.Wire(wire));
    const auto far = static_cast<double>(box_.inter.Wire(wire));
    chunk.near = RoundToPs(parts_ * near * box_.intra.per_byte);
    chunk.hop = RoundToPs(parts_ * far * box_.intra.per_byte);
    const double pcie = 1e12 / static_cast<double>(spec_.pcie_Bps);
    chunk.pcie = RoundToPs(parts_ * far * pcie);
    // PCIe may be slower than a NIC of its own, not than its share of one.
    const double nic = 1e12 / static_cast<double>(spec_.nic_reached_Bps());
    const bool shared = plan_.shape.nics < plan_.shape.ranks_per_domain;
    chunk.far = RoundToPs(parts_ * far * (shared ? nic : box_.inter.per_byte));
    const auto head = [](const model::Edge& edge, double bytes) {
      return std::min(edge.mtu, bytes) * edge.other_per_byte;
    };
    const double half = box_.intra.latency / 2;  // a link's
    chunk.to_near = RoundToPs(half + head(box_.intra, near));
    chunk.to_rail = RoundToPs(half + head(box_.intra, far));
    chunk.to_far = RoundToPs(box_.inter.latency + head(box_.inter, far));
    chunk.to_nic_over_pcie =
        RoundToPs(static_cast<double>(spec_.pcie_latency) + std::min(box_.inter.mtu, far) * pcie);
    return chunk;
  }

  const Plan& plan_;
  const model::WhiteBox& box_;
  const cluster::Spec& spec_;
  const int parts_;
  const std::size_t ranks_;
  Chunk full_;
  std::vector<Message> messages_;
};

// A round's message in one of its parts, on its channel: the same of all members.
struct Row {
  std::uint32_t round = 0;
  std::uint32_t groups = 0, places = 0;  // its distance: ranks further, and within a group
  std::uint32_t lane = 0;
  int streams = 0;
};

struct UnevenLane {
  std::uint32_t number = 0, chunk = 0;  // of its rows; of that one's chunks
  SimTime end = 0;                      // of its last step
  bool posted = false;                  // what it has sent has not come to a port
};

enum Port : std::uint8_t { kNvlinkOut, kNvlinkIn, kPcieOut, kNicOut, kNicIn };
constexpr std::uint32_t kStages = 5;

struct Connection {
  const Message* message = nullptr;
  std::uint32_t ring = 0, row = 0;  // of its last chunks' times
  std::uint16_t from = 0, to = 0;
  bool near = true, hops = false;
  std::array<std::uint32_t, kStages> passed{};  // chunks
  std::uint32_t arrived = 0, used = 0;
};

class Course {
 public:
  Course(const Plan& plan, const model::WhiteBox& box, const Messages& messages, int parts)
      : plan_(plan),
        box_(box),
        messages_(messages),
        rounds_(plan),
        ranks_(static_cast<std::uint32_t>(plan.shape.ranks)),
        per_domain_(static_cast<std::uint32_t>(plan.shape.ranks_per_domain)),
        nics_(static_cast<std::uint32_t>(
            std::clamp(plan.shape.nics, 1, plan.shape.ranks_per_domain))),
        lanes_(static_cast<std::uint32_t>(rounds_.channels / parts * p2p::kBatch)),
        window_(static_cast<std::uint32_t>(plan.credits)),
        // A GPU hands over where NCCL does so (all_to_all_uneven.cc).
        hands_over_(plan.pxn && plan.shape.domains > 1 && plan.shape.peer_path == 0),
        shares_nics_(nics_ < per_domain_ && plan.shape.nic_path == 0) {
    for (std::uint32_t q = 0; q < ranks_; ++q) {
      domain_.push_back(q / per_domain_);
      rail_.push_back(q % per_domain_ * nics_ / per_domain_);
    }
    AddRows(static_cast<std::uint32_t>(parts));
    AddConnections();
    senders_.resize(std::size_t{ranks_} * lanes_);
    receivers_.resize(senders_.size());
    ports_[kNvlinkOut].resize(ranks_);
    ports_[kNvlinkIn].resize(ranks_);
    ports_[kPcieOut].resize(ranks_);
    ports_[kNicOut].resize(std::size_t{ranks_ / per_domain_} * nics_);
    ports_[kNicIn].resize(ports_[kNicOut].size());
  }

  SimTime Run() {
    for (std::uint32_t lane = 0; lane < senders_.size(); ++lane) Send(lane);
    while (!events_.empty()) {
      const Event event = events_.front();
      std::pop_heap(events_.begin(), events_.end(), std::greater<>());
      events_.pop_back();
      Pass(event);
    }
    return end_;
  }

 private:
  // A chunk comes to a port.
  struct Event {
    SimTime time;
    std::uint32_t sequence, what;  // connection and stage
    bool operator>(const Event& o) const {
      return time != o.time ? time > o.time : sequence > o.sequence;
    }
  };

  // As Schedule::BuildRounds has them.
  void AddRows(std::uint32_t parts) {
    by_channel_.resize(lanes_ / p2p::kBatch);
    const auto channels = static_cast<std::uint32_t>(by_channel_.size());
    const std::uint32_t played = static_cast<std::uint32_t>(rounds_.parts) / parts;
    std::uint32_t round = 0;
    for (const int d : rounds_.GroupDistances()) {
      for (int l = 0; l < rounds_.group; ++l, ++round) {
        const auto base = static_cast<std::uint32_t>(rounds_.Base(static_cast<int>(round)));
        for (std::uint32_t part = 0; part < played; ++part) {
          const std::uint32_t channel = (base / parts + part) % channels;
          std::vector<std::uint32_t>& on = by_channel_[channel];
          const auto place = static_cast<std::uint32_t>(on.size() % p2p::kBatch);
          on.push_back(static_cast<std::uint32_t>(rows_.size()));
          rows_.push_back({round, static_cast<std::uint32_t>(d * rounds_.group),
                           static_cast<std::uint32_t>(l), channel * p2p::kBatch + place, 0});
        }
      }
    }
    for (const auto& on : by_channel_) {
      for (std::size_t i = 0; i < on.size(); ++i) {
        const std::size_t first = i / p2p::kBatch * p2p::kBatch;
        const auto share = static_cast<int>(std::min<std::size_t>(p2p::kBatch, on.size() - first));
        rows_[on[i]].streams = model::kStreams * share;
      }
    }
  }

  std::uint32_t To(std::uint32_t q, const Row& row) const {
    const auto group = static_cast<std::uint32_t>(rounds_.group);
    return (q / group * group + row.groups) % ranks_ + (q % group + row.places) % group;
  }
  std::uint32_t From(std::uint32_t q, const Row& row) const {
    const auto group = static_cast<std::uint32_t>(rounds_.group);
    return (q / group * group + ranks_ - row.groups) % ranks_ +
           (q % group + group - row.places) % group;
  }
  void AddConnections() {
    connections_.resize(rows_.size() * ranks_);
    std::uint32_t ring = 0;
    for (std::uint32_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].round == 0) continue;
      for (std::uint32_t q = 0; q < ranks_; ++q) {
        Connection& c = connections_[std::size_t{r} * ranks_ + q];
        const std::uint32_t to = To(q, rows_[r]);
        c.message = &messages_.Of(q, to);
        c.row = r;
        c.from = static_cast<std::uint16_t>(q);
        c.to = static_cast<std::uint16_t>(to);
        c.near = domain_[q] == domain_[to];
        c.hops = hands_over_ && !c.near && rail_[q] != rail_[to];
        c.ring = ring;
        ring += std::min(c.message->chunks, window_);
      }
    }
    arrived_.resize(ring);
    returned_.resize(ring);
  }

  std::size_t Slot(const Connection& c, std::uint32_t chunk) const {
    return c.ring + chunk % window_;  // of fewer chunks none comes round
  }
  SimTime Work(std::int64_t bytes, int streams) const {
    return RoundToPs(box_.sync + static_cast<double>(bytes) * box_.per_byte * streams);
  }
  // Where a lane stands, as an index into rows_; none: it is through.
  static constexpr std::uint32_t kThrough = ~0u;
  std::uint32_t RowOf(const UnevenLane& lane, std::uint32_t id) const {
    const std::vector<std::uint32_t>& on = by_channel_[id % lanes_ / p2p::kBatch];
    const std::uint32_t at = id % p2p::kBatch + lane.number * p2p::kBatch;
    return at < on.size() ? on[at] : kThrough;
  }

  // A lane's next chunk, once a credit for it is known.
  void Send(std::uint32_t id) {
    UnevenLane& lane = senders_[id];
    if (lane.posted) return;
    const std::uint32_t q = id / lanes_;
    for (;; ++lane.number, lane.chunk = 0) {
      const std::uint32_t r = RowOf(lane, id);
      if (r == kThrough) return;
      const Row& row = rows_[r];
      if (row.round == 0) {  // its own part: one copy
        const auto own = static_cast<double>(messages_.Of(q, q).share);
        lane.end += RoundToPs(own * box_.per_byte * row.streams);
        end_ = std::max(end_, lane.end);
        continue;
      }
      const std::uint32_t index = r * ranks_ + q;
      const Connection& c = connections_[index];
      if (lane.chunk == c.message->chunks) continue;
      if (lane.chunk >= window_) {
        if (c.used + window_ <= lane.chunk) return;
        lane.end = std::max(lane.end, returned_[Slot(c, lane.chunk)]);
      }
      lane.end += Work(messages_.At(*c.message, lane.chunk++).bytes, row.streams);
      end_ = std::max(end_, lane.end);
      lane.posted = true;
      const double post = c.near ? box_.intra.post : box_.inter.post;
      return Push(lane.end + RoundToPs(post), index, FirstOf(c));
    }
  }

  // All that has come to a lane.
  void Receive(std::uint32_t id) {
    UnevenLane& lane = receivers_[id];
    const std::uint32_t q = id / lanes_;
    for (;; ++lane.number, lane.chunk = 0) {
      const std::uint32_t r = RowOf(lane, id);
      if (r == kThrough) return;
      const Row& row = rows_[r];
      if (row.round == 0) continue;
      Connection& c = connections_[std::size_t{r} * ranks_ + From(q, row)];
      for (; lane.chunk < c.message->chunks; ++lane.chunk) {
        if (c.arrived <= lane.chunk) return;
        // Over NVLink the sender has written into the receiver's buffer.
        const std::int64_t copied = c.near ? 0 : messages_.At(*c.message, lane.chunk).bytes;
        lane.end = std::max(lane.end, arrived_[Slot(c, lane.chunk)]) + Work(copied, row.streams);
        end_ = std::max(end_, lane.end);
        ++c.used;
        if (c.message->chunks <= window_) continue;
        returned_[Slot(c, lane.chunk)] =
            lane.end + RoundToPs((c.near ? box_.intra.latency : box_.inter.latency) +
                                 (c.hops ? box_.intra.latency : 0));
        Send(c.from * lanes_ + row.lane);
      }
    }
  }

  void Push(SimTime time, std::uint32_t connection, Port stage) {
    events_.push_back({time, sequence_++, connection * kStages + stage});
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
  }

  Port FirstOf(const Connection& c) const { return c.near || c.hops ? kNvlinkOut : Leaves(); }
  Port Leaves() const { return shares_nics_ ? kPcieOut : kNicOut; }

  SimTime* PortOf(const Connection& c, Port stage) {
    const std::uint32_t here = domain_[c.from], rail = rail_[c.to];
    // The first GPU beside the rail's NIC.
    const auto beside = [&] {
      return here * per_domain_ + (rail * per_domain_ + nics_ - 1) / nics_;
    };
    std::uint32_t port = 0;
    switch (stage) {
      case kNvlinkOut:
        port = c.from;
        break;
      case kNvlinkIn:
        port = c.near ? c.to : beside();
        break;
      case kPcieOut:
        port = c.hops ? beside() : c.from;
        break;
      case kNicOut:
        port = here * nics_ + (plan_.pxn ? rail : rail_[c.from]);
        break;
      case kNicIn:
        port = domain_[c.to] * nics_ + rail;
        break;
    }
    return &ports_[stage][port];
  }

  void Pass(const Event& event) {
    const std::uint32_t index = event.what / kStages;
    const auto stage = static_cast<Port>(event.what % kStages);
    Connection& c = connections_[index];
    const Chunk& chunk = messages_.At(*c.message, c.passed[stage]++);
    SimTime* port = PortOf(c, stage);
    const SimTime start = std::max(event.time, *port);
    if (stage == FirstOf(c)) {
      const std::uint32_t lane = c.from * lanes_ + rows_[c.row].lane;
      senders_[lane].posted = false;
      Send(lane);
    }
    switch (stage) {
      case kNvlinkOut:
        *port = start + (c.near ? chunk.near : chunk.hop);
        return Push(start + (c.near ? chunk.to_near : chunk.to_rail), index, kNvlinkIn);
      case kNvlinkIn:
        *port = start + (c.near ? chunk.near : chunk.hop);
        if (c.near) return Arrive(&c, *port + RoundToPs(box_.intra.latency / 2));
        return Push(start + chunk.to_rail, index, Leaves());
      case kPcieOut:
        *port = start + chunk.pcie;
        return Push(start + chunk.to_nic_over_pcie, index, kNicOut);
      case kNicOut:
        *port = start + chunk.far;
        return Push(start + chunk.to_far - (shares_nics_ ? chunk.to_nic_over_pcie : 0), index,
                    kNicIn);
      case kNicIn:
        *port = start + chunk.far;
        return Arrive(&c, *port);
    }
  }

  void Arrive(Connection* c, SimTime time) {
    arrived_[Slot(*c, c->arrived++)] = time;
    Receive(c->to * lanes_ + rows_[c->row].lane);
  }

  const Plan& plan_;
  const model::WhiteBox& box_;
  const Messages& messages_;
  const p2p::Rounds rounds_;
  const std::uint32_t ranks_, per_domain_, nics_, lanes_, window_;
  const bool hands_over_;
  const bool shares_nics_;                    // else PCIe, which is faster, has the NIC's order
  std::vector<std::uint32_t> domain_, rail_;  // by member
  std::vector<Row> rows_;
  std::vector<std::vector<std::uint32_t>> by_channel_;  // rows
  std::vector<Connection> connections_;                 // by row and sender
  std::vector<SimTime> arrived_, returned_;             // of the last chunks, by connection
  std::vector<UnevenLane> senders_, receivers_;         // by member
  std::array<std::vector<SimTime>, kStages> ports_;     // when they are free
  std::vector<Event> events_;                           // a heap
  std::uint32_t sequence_ = 0;
  SimTime end_ = 0;
};

// How many parts of a message go as one: neighbouring channels must run equally many messages.
int PartsAsOne(const p2p::Rounds& rounds) {
  if (rounds.channels % rounds.parts != 0) return 1;
  std::vector<int> on(static_cast<std::size_t>(rounds.channels));
  for (int r = 0; r < rounds.ranks; ++r) {
    for (int part = 0; part < rounds.parts; ++part) {
      ++on[static_cast<std::size_t>((rounds.Base(r) + part) % rounds.channels)];
    }
  }
  const auto alike = [&](int parts) {
    for (std::size_t i = 0; i < on.size(); ++i) {
      if (on[i] != on[i - i % static_cast<std::size_t>(parts)]) return false;
    }
    return true;
  };
  int parts = rounds.parts;
  while (parts > 1 && !alike(parts)) parts /= 2;
  return parts;
}

SimTime Play(const Plan& plan, const model::WhiteBox& box, const cluster::Spec& spec, int parts) {
  const Messages messages(plan, box, spec, parts);
  return Course(plan, box, messages, parts).Run();
}

}  // namespace

SimTime PlayUneven(const Plan& plan, const cluster::Spec& spec) {
  if (plan.shape.ranks > kMostRanks) return 0;
  const model::WhiteBox box = model::MakeWhiteBox(plan, spec);
  const p2p::Rounds rounds(plan);
  const std::int64_t chunks = Messages(plan, box, spec, 1).Chunks();  // of a part
  if (chunks * rounds.parts <= kWhole) return Play(plan, box, spec, 1);
  const int parts = PartsAsOne(rounds);
  const std::int64_t played = rounds.parts / parts;
  const std::int64_t pairs = std::int64_t{plan.shape.ranks} * (plan.shape.ranks - 1);
  const std::int64_t most = std::max(kMost, AtLeast(plan.shape.ranks) * pairs * played);
  // No more than what two plays take.
  if (2 * chunks * played <= 3 * most) return Play(plan, box, spec, parts);
  // Chunks of a message of the mean size; those that are played end as it does, if it has many.
  const double mean = static_cast<double>(plan.bytes) / plan.shape.ranks / rounds.parts /
                      static_cast<double>(plan.chunk_bytes);
  const double first = mean * static_cast<double>(most) / static_cast<double>(chunks * played);
  const auto whole = [](double value) {
    return static_cast<double>(static_cast<std::int64_t>(value));
  };
  const double end = mean - whole(mean);
  const auto play = [&](double count) {
    Plan part = plan;
    part.bytes = static_cast<std::int64_t>(static_cast<double>(plan.bytes) * count / mean);
    return static_cast<double>(Play(part, box, spec, parts));
  };
  const double all = first >= 4 ? whole(first) + end : first;
  const double half = first >= 4 ? whole(first / 2) + end : first / 2;
  const double time = play(all);
  return RoundToPs(time + (time - play(half)) * (mean - all) / (all - half));
}

}  // namespace orrery::collective
