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

Traffic TrafficOf(const GroupShape& shape) {
  Traffic t;
  const double p = shape.ranks_per_domain;
  t.local = p - 1;
  // The smallest domain has most to send and to receive; of uneven ones all but one are taken to be
  // full.
  t.remote = std::min(shape.ranks - 1.0, (shape.domains - 1) * p);
  // A rail's NIC is beside one GPU of the domain: the others hand their messages over.
  if (shape.domains > 1 && p > 1) t.hops = t.remote * (p - 1) / p;
  return t;
}

// The most messages that a channel runs, its own part's copy among them. O(channels).
int MostMessages(const p2p::Rounds& rounds) {
  constexpr int kMost = 64;
  std::array<int, kMost> begin{};  // bases on a channel
  const int channels = std::min(rounds.channels, kMost);
  for (int c = 0; c < channels; ++c) begin[static_cast<std::size_t>(c)] = rounds.BasesOn(c);
  int sum = 0, most = 0;
  for (int c = 0; c < rounds.parts; ++c) sum += begin[static_cast<std::size_t>(c)];
  for (int c = 0; c < channels; ++c) {
    most = std::max(most, sum);
    sum += begin[static_cast<std::size_t>((c + rounds.parts) % channels)] -
           begin[static_cast<std::size_t>(c)];
  }
  return most * rounds.per_base();
}

// Messages that a rank has under way at a time, each on its own lane, from the first send to the
// last receipt; the names are formula.h's.
struct Batch {
  const model::Pieces& pieces;
  const model::WhiteBox& box;
  double share = 1;    // messages of the busiest CTA
  double mean = 1;     // and of all: those of others are ahead at the port
  double at_once = 0;  // messages at the port
  double credits = 1;

  double Work(const model::Chunk& chunk) const {
    return box.sync + static_cast<double>(chunk.bytes) * box.per_byte * model::kStreams * share;
  }
  double chunks() const {
    return static_cast<double>(pieces.rounds) + (pieces.tail.slices > 0 ? 1 : 0);
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
    const double ahead_by = lanes * (1 - mean / share);
    // A short last chunk stands behind the full ones before it.
    const double behind = tail > 0 && rounds > 0 ? at_once * full_serial - tail : 0;
    const double queue = std::max(0.0, at_once - 1) * last_serial + std::max(0.0, behind);
    const double port =
        at_once * (rounds * full_serial + (pieces.tail.slices > 0 ? last_serial : 0));
    const double first_serial = pieces.rounds > 0 ? full_serial : last_serial;
    const double waits = std::max(0.0, queue - ahead_by);
    double time = lanes + std::max(delay + waits, (ahead - 1) * box.sync) + receive;
    time = std::max(time, Work(first) * mean / share + delay + port - last_serial + receive);
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
  const Traffic t = TrafficOf(shape);
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
  const int messages = MostMessages(rounds);
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
  const double used = std::min(rounds.channels, rounds.bases() * rounds.parts);
  const double each = static_cast<double>(rounds.ranks * rounds.parts) / used;
  Batch batch{pieces, box, static_cast<double>(std::min(messages, p2p::kBatch)),
              1,      0,   static_cast<double>(plan.credits)};
  batch.mean = batches == 1 ? each : batch.share;
  const double share_last = messages - (batches - 1) * p2p::kBatch;
  double total = 0;
  const auto add = [&](double at_port, double delay, bool copies, const model::Edge& edge,
                       int count) {
    double time = 0;
    Batch one = batch;
    one.at_once = at_port / count;
    if (count > 1) {
      time = (count - 1) * one.Time(delay, copies, serial(edge, pieces.full), serial(edge, last));
    }
    one.share = share_last;
    one.mean = batches == 1 ? each : share_last;
    time += one.Time(delay, copies, serial(edge, pieces.full), serial(edge, last));
    total = std::max(total, time);
  };
  if (t.local > 0) {
    add(t.local * parts, box.intra.Delay(wire(last)), false, box.intra, net ? 1 : batches);
  }
  if (t.remote > 0) {
    const double hop = t.hops > 0 ? box.intra.latency : 0;
    add(t.remote * parts * sharers, box.inter.Delay(wire(last)) + hop, true, box.inter, batches);
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
