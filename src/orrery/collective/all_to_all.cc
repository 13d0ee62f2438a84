#include "orrery/collective/all_to_all.h"

#include <algorithm>
#include <array>

#include "orrery/collective/p2p_rounds.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

// Messages of one rank, and what of them takes a way round.
struct Traffic {
  double local = 0, remote = 0;  // messages to ranks of the own domain, and to others
  double hops = 0;               // of the remote ones, those that PXN carries over NVLink first
};

Traffic TrafficOf(const GroupShape& shape, bool pxn) {
  Traffic t;
  const double p = shape.ranks_per_domain;
  t.local = p - 1;
  // The smallest domain has most to send and to receive; of uneven ones all but one are taken to be
  // full.
  t.remote = std::min(shape.ranks - 1.0, (shape.domains - 1) * p);
  // A rail's NIC is beside one GPU of the domain: the others hand their messages over.
  if (pxn && shape.domains > 1 && p > 1 && shape.peer_path == 0) t.hops = t.remote * (p - 1) / p;
  return t;
}

// Messages of a rank by how many its channel runs, its own part's copy among them: a CTA's messages
// share it, those of CTAs with few come to the port before the others.
struct Channels {
  int most = 0;
  std::array<double, p2p::kBatch + 1> with{};  // of all messages, those of CTAs with so many
};

// O(channels).
Channels ChannelsOf(const p2p::Rounds& rounds) {
  constexpr int kMost = 64;
  std::array<int, kMost> begin{};  // bases on a channel
  const int channels = std::min(rounds.channels, kMost);
  for (int c = 0; c < channels; ++c) begin[static_cast<std::size_t>(c)] = rounds.BasesOn(c);
  int sum = 0, all = 0;
  Channels result;
  for (int c = 0; c < rounds.parts; ++c) sum += begin[static_cast<std::size_t>(c)];
  for (int c = 0; c < channels; ++c) {
    const int messages = sum * rounds.per_base();
    result.most = std::max(result.most, messages);
    result.with[static_cast<std::size_t>(std::min(messages, p2p::kBatch))] += messages;
    all += messages;
    sum += begin[static_cast<std::size_t>((c + rounds.parts) % channels)] -
           begin[static_cast<std::size_t>(c)];
  }
  for (double& with : result.with) with /= std::max(1, all);
  return result;
}

// Messages that a rank has under way at a time, each on its own lane, from the first send to the
// last receipt; the names are formula.h's.
struct Batch {
  const model::Pieces& pieces;
  const model::WhiteBox& box;
  double share = 1;    // messages of the busiest CTA
  double at_once = 0;  // messages at the port
  double credits = 1;
  double handed = 0;                   // of the messages at the port, those that PXN hands to it
  double hop = 0;                      // how much later
  const Channels* channels = nullptr;  // where there is one batch: its CTAs

  double Work(const model::Chunk& chunk) const {
    return box.sync + static_cast<double>(chunk.bytes) * box.per_byte * model::kStreams * share;
  }
  double chunks() const {
    return static_cast<double>(pieces.rounds) + (pieces.tail.slices > 0 ? 1 : 0);
  }
  // Before the last of so many messages' last chunk; a short one stands behind full ones.
  double Queue(double messages, double tail, double full_serial, double last_serial) const {
    const double behind = tail > 0 && pieces.rounds > 0 ? messages * full_serial - tail : 0;
    return std::max(0.0, messages - 1) * last_serial + std::max(0.0, behind);
  }
  // The longest wait of `wait(messages)` at the port, for all messages or for those of CTAs with at
  // least so many, which come later: `work` is that of the busiest. Those that PXN hands to it come
  // a hop later, which is in every message's own way.
  template <class Wait>
  double Longest(Wait wait, double work) const {
    const auto with_hop = [&](double messages) {
      return std::max(wait(messages) - hop, handed > 0 ? wait(messages * handed / at_once) : 0);
    };
    if (channels == nullptr) return with_hop(at_once);
    double longest = 0, part = 0;
    for (int s = p2p::kBatch; s > 0; --s) {
      const double with = channels->with[static_cast<std::size_t>(s)];
      part += with;
      if (with > 0) longest = std::max(longest, with_hop(at_once * part) - work * (1 - s / share));
    }
    return longest;
  }
  // `delay`: of the last chunk from the end of its work to its arrival, alone; `copies`: what is
  // received is copied; serials: of a full chunk and of the last one at the port.
  double Time(double delay, bool copies, double full_serial, double last_serial) const {
    const model::Chunk& last = pieces.tail.slices > 0 ? pieces.tail : pieces.full;
    const model::Chunk& first = pieces.rounds > 0 ? pieces.full : pieces.tail;
    const double rounds = static_cast<double>(pieces.rounds);
    const double full = rounds > 0 ? Work(pieces.full) : 0;
    const double tail = pieces.tail.slices > 0 ? Work(pieces.tail) : 0;
    const double receive = copies ? Work(last) : box.sync;
    const double ahead = std::min(chunks(), credits);
    const double lanes = rounds * full + tail;
    const double queue = Queue(at_once, tail, full_serial, last_serial);
    const auto bytes = [&](const model::Chunk& chunk, double work) {
      return chunk.slices > 0 ? work - box.sync : 0;
    };
    const double each = rounds * full_serial + (pieces.tail.slices > 0 ? last_serial : 0);
    const double port =
        Longest([&](double messages) { return messages * each; }, bytes(first, Work(first)));
    const double first_serial = pieces.rounds > 0 ? full_serial : last_serial;
    const double waits =
        Longest([&](double messages) { return Queue(messages, tail, full_serial, last_serial); },
                rounds * bytes(pieces.full, full) + bytes(pieces.tail, tail));
    double time = lanes + std::max(delay + waits, (ahead - 1) * box.sync) + receive;
    time = std::max(time, Work(first) + delay + port - last_serial + receive);
    // A chunk leaves when the one a buffer before it has come from the other side.
    const auto turns = static_cast<double>(static_cast<std::int64_t>((chunks() - 1) / credits));
    if (turns > 0) {
      const double turn = Work(first) + delay + std::max(0.0, at_once - 1) * first_serial;
      const double rest = chunks() - turns * credits;
      time =
          std::max(time, turns * turn + (rest - 1) * full + Work(last) + delay + queue + receive);
    }
    return time;
  }
};

}  // namespace

Cost AllToAllCost(const Plan& plan, const cluster::Spec& spec) {
  const GroupShape& shape = plan.shape;
  const model::WhiteBox box = model::MakeWhiteBox(plan, spec);
  Cost cost;
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(box.setup);
    return cost;
  }
  const Traffic t = TrafficOf(shape, plan.pxn);
  const bool net = shape.domains > 1;
  const p2p::Rounds rounds(plan);
  const model::Pieces pieces = model::Cut(plan);
  const model::Chunk& last = pieces.tail.slices > 0 ? pieces.tail : pieces.full;
  const auto wire = [&](const model::Chunk& chunk) {
    return model::OnWire(plan.protocol, chunk.bytes);
  };
  const auto serial = [&](const model::Edge& edge, const model::Chunk& chunk) {
    return chunk.slices > 0 ? edge.Serial(wire(chunk)) : 0;
  };
  const double parts = rounds.parts;
  const auto sharers =
      static_cast<double>(std::max(1, shape.ranks_per_domain / std::max(1, shape.nics)));
  const Channels channels = ChannelsOf(rounds);
  const int messages = channels.most;
  const int batches = (messages + p2p::kBatch - 1) / p2p::kBatch;
  // What PXN hands over is in the NIC's packets on NVLink too.
  const auto hop_serial = [&](const model::Chunk& chunk) {
    return chunk.slices > 0 ? static_cast<double>(box.inter.Wire(wire(chunk))) * box.intra.per_byte
                            : 0;
  };
  const auto over_nvlink = [&](const model::Chunk& chunk) {
    return parts * (t.local * serial(box.intra, chunk) + t.hops * hop_serial(chunk));
  };
  const auto rounds_count = static_cast<double>(pieces.rounds);
  const double nvlink = rounds_count * over_nvlink(pieces.full) + over_nvlink(pieces.tail);
  const double nic =
      t.remote * parts * sharers *
      (rounds_count * serial(box.inter, pieces.full) + serial(box.inter, pieces.tail));
  Batch batch{pieces, box, static_cast<double>(std::min(messages, p2p::kBatch)),
              1,      0,   static_cast<double>(plan.credits)};
  if (batches == 1) batch.channels = &channels;
  const double share_last = messages - (batches - 1) * p2p::kBatch;
  double total = 0;
  const auto add = [&](double at_port, double delay, bool copies, const model::Edge& edge,
                       int count, double handed, double hop) {
    double time = 0;
    Batch one = batch;
    one.at_once = at_port / count;
    one.handed = handed / count;
    one.hop = hop;
    if (count > 1) {
      time = (count - 1) * one.Time(delay, copies, serial(edge, pieces.full), serial(edge, last));
    }
    one.share = share_last;
    time += one.Time(delay, copies, serial(edge, pieces.full), serial(edge, last));
    total = std::max(total, time);
  };
  if (t.local > 0) {
    add(t.local * parts, box.intra.Delay(wire(last)), false, box.intra, net ? 1 : batches, 0, 0);
  }
  if (t.remote > 0) {
    const double hop = t.hops > 0 ? box.intra.latency : 0;
    add(t.remote * parts * sharers, box.inter.Delay(wire(last)) + hop, true, box.inter, batches,
        t.hops * parts * sharers, hop);
    // Where NVLink carries so much to other rails that it is the slower port.
    total = std::max(total, batch.Work(pieces.rounds > 0 ? pieces.full : pieces.tail) + nvlink +
                                box.inter.Delay(wire(last)) + hop + batch.Work(last));
  }
  const double bytes =
      static_cast<double>(pieces.share) * messages * box.per_byte * model::kStreams;
  cost.transfer = RoundToPs(std::min(total, std::max({bytes, nvlink, nic})));
  cost.fixed = RoundToPs(box.setup + total) - cost.transfer;
  const auto port_bytes = [&](const model::Edge& edge) {
    const auto of = [&](const model::Chunk& chunk) {
      return chunk.slices > 0 ? static_cast<double>(edge.Wire(wire(chunk))) : 0;
    };
    return parts * (rounds_count * of(pieces.full) + of(pieces.tail));
  };
  cost.member.nvlink_out = cost.member.nvlink_in = static_cast<std::int64_t>(
      t.local * port_bytes(box.intra) + (net ? t.hops * port_bytes(box.inter) : 0));
  cost.member.nic_out = cost.member.nic_in =
      static_cast<std::int64_t>(net ? t.remote * port_bytes(box.inter) : 0);
  return cost;
}

}  // namespace orrery::collective
