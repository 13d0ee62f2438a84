#include "orrery/collective/algorithms/all_to_all.h"

#include <algorithm>
#include <array>

#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

// Messages of one size, a part of each, as one kind of port sees them: NVLink those that stay in a
// domain, the NIC those that leave it.
struct Flow {
  model::Pieces pieces;
  double load = 0;     // through the busiest port: as many as these would make it as busy
  double at_once = 0;  // as many as are under way with the last one
  double handed = 0;   // of `load`, what PXN hands over
};

// What goes through the busiest ports. Uneven messages are taken twice, which is right where one
// bounds them: as the largest, under way with as many as are like them, and as their mean; and each
// once more in full chunks only, since a little more does not make a message sooner.
struct Traffic {
  std::array<Flow, 4> near, far;
  int sizes = 1;
  double stays = 0, handed = 0;  // over NVLink: near[0] or, between domains, far[0]; and by PXN
  double channel = 0;            // bytes that the busiest channel runs
  double mean_local = 0, mean_handed = 0, mean_remote = 0;  // of a member, in near[0] and far[0]
};

Traffic EvenTraffic(const Plan& plan, double parts) {
  const GroupShape& shape = plan.shape;
  const double p = shape.ranks_per_domain;
  const int nics = std::max(1, shape.nics);
  const auto sharers = static_cast<double>(std::max(1, (shape.ranks_per_domain + nics - 1) / nics));
  Traffic t;
  t.stays = t.mean_local = p - 1;
  // The smallest domain has most to send and to receive; of uneven ones all but one are taken to be
  // full.
  t.mean_remote = std::min(shape.ranks - 1.0, (shape.domains - 1) * p);
  // A rail's NIC is beside one GPU of the domain: the others hand their messages over.
  if (plan.pxn && shape.domains > 1 && p > 1 && shape.peer_path == 0) {
    t.handed = t.mean_handed = t.mean_remote * (p - 1) / p;
  }
  const model::Pieces pieces = model::Cut(plan);
  const double near = t.stays * parts, far = t.mean_remote * parts * sharers;
  t.near[0] = {pieces, near, near, 0};
  t.far[0] = {pieces, far, far, t.handed * parts * sharers};
  return t;
}

Flow InFullChunks(Flow flow) {
  if (flow.pieces.rounds > 0) flow.pieces.tail = {};
  return flow;
}

Traffic UnevenTraffic(const Plan& plan, double parts, int batches) {
  const Uneven& u = plan.uneven;
  const bool net = plan.shape.domains > 1;
  const auto over = [](double bytes, double unit) { return unit > 0 ? bytes / unit : 0; };
  const auto flow = [&](double size, double bytes, double handed, double count) {
    Flow f;
    f.pieces = model::CutMessage(plan, static_cast<std::int64_t>(size * parts + 0.5));
    f.load = over(bytes, size) * parts;
    f.at_once = std::min(f.load, count * parts);
    f.handed = over(handed, size) * parts;
    return f;
  };
  // Where places run several batches, one of them.
  const double near = net ? u.largest_local : u.place / batches;
  const double far = u.place_remote / batches;
  Traffic t;
  t.sizes = 4;
  t.near = {flow(near, u.local, 0, u.local_large),
            flow(over(u.local, u.local_count), u.local, 0, u.local_count),
            {},
            {}};
  t.far = {flow(far, u.remote, u.hops, u.remote_large),
           flow(over(u.remote, u.remote_count), u.remote, u.hops, u.remote_count),
           {},
           {}};
  for (std::size_t i = 0; i < 2; ++i) {
    t.near[i + 2] = InFullChunks(t.near[i]);
    t.far[i + 2] = InFullChunks(t.far[i]);
  }
  t.stays = over(u.stays, net ? far : near);
  t.handed = over(u.handed, far);
  t.channel = u.channel;
  t.mean_local = over(u.mean_local, near);
  t.mean_handed = over(u.mean_handed, far);
  t.mean_remote = over(u.mean_remote, far);
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
  double load = 0;     // messages at the port
  double at_once = 0;  // with the last one
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
  double Longest(Wait wait, double work, double count) const {
    const auto with_hop = [&](double messages) {
      return std::max(wait(messages) - hop, handed > 0 ? wait(messages * handed / load) : 0);
    };
    if (channels == nullptr) return with_hop(count);
    double longest = 0, part = 0;
    for (int s = p2p::kBatch; s > 0; --s) {
      const double with = channels->with[static_cast<std::size_t>(s)];
      part += with;
      if (with > 0) longest = std::max(longest, with_hop(count * part) - work * (1 - s / share));
    }
    return longest;
  }
  // `delay`: of the last chunk from the end of its work to its arrival, alone; `full_more`: of a
  // full one, so much more; `copies`: what is received is copied; serials: of a full chunk and of
  // the last one at the port.
  double Time(double delay, double full_more, bool copies, double full_serial,
              double last_serial) const {
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
        Longest([&](double messages) { return messages * each; }, bytes(first, Work(first)), load);
    const double first_serial = pieces.rounds > 0 ? full_serial : last_serial;
    const double waits =
        Longest([&](double messages) { return Queue(messages, tail, full_serial, last_serial); },
                rounds * bytes(pieces.full, full) + bytes(pieces.tail, tail), at_once);
    double time = lanes + std::max(delay + waits, (ahead - 1) * box.sync) + receive;
    time = std::max(time, Work(first) + delay + port - last_serial + receive);
    // A small last chunk comes with the full one before it.
    if (rounds > 0 && tail > 0) {
      const double queues =
          Longest([&](double messages) { return std::max(0.0, messages - 1) * full_serial; },
                  rounds * bytes(pieces.full, full), at_once);
      time = std::max(time, rounds * full + delay + full_more + queues + box.sync + receive);
    }
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

// A plan's times over one kind of port or the other.
class Reading {
 public:
  Reading(const Plan& plan, const model::WhiteBox& box)
      : plan_(plan),
        box_(box),
        rounds_(plan),
        channels_(ChannelsOf(rounds_)),
        batches_((channels_.most + p2p::kBatch - 1) / p2p::kBatch),
        share_(std::min(channels_.most, p2p::kBatch)) {}

  int batches() const { return batches_; }
  int most() const { return channels_.most; }
  double parts() const { return rounds_.parts; }

  std::int64_t Wire(const model::Chunk& chunk) const {
    return model::OnWire(plan_.protocol, chunk.bytes);
  }
  double Serial(const model::Edge& edge, const model::Chunk& chunk) const {
    return chunk.slices > 0 ? edge.Serial(Wire(chunk)) : 0;
  }
  // What PXN hands over is in the NIC's packets on NVLink too.
  double HopSerial(const model::Chunk& chunk) const {
    return chunk.slices > 0
               ? static_cast<double>(box_.inter.Wire(Wire(chunk))) * box_.intra.per_byte
               : 0;
  }
  static const model::Chunk& Last(const model::Pieces& pieces) {
    return pieces.tail.slices > 0 ? pieces.tail : pieces.full;
  }
  double Delay(const model::Edge& edge, const Flow& flow) const {
    return edge.Delay(Wire(Last(flow.pieces)));
  }

  // In so many batches, one behind the other. `hop`: later comes what PXN hands over.
  double Time(const Flow& flow, double delay, bool copies, const model::Edge& edge, int count,
              double hop) const {
    const model::Pieces& pieces = flow.pieces;
    const double full = Serial(edge, pieces.full), last = Serial(edge, Last(pieces));
    const double more = edge.Delay(Wire(pieces.full)) - edge.Delay(Wire(Last(pieces)));
    Batch one{.pieces = pieces,
              .box = box_,
              .share = share_,
              .load = flow.load / count,
              .at_once = flow.at_once / count,
              .credits = static_cast<double>(plan_.credits),
              .handed = flow.handed / count,
              .hop = hop,
              .channels = batches_ == 1 ? &channels_ : nullptr};
    double time = 0;
    if (count > 1) time = (count - 1) * one.Time(delay, more, copies, full, last);
    one.share = channels_.most - (batches_ - 1) * p2p::kBatch;
    return time + one.Time(delay, more, copies, full, last);
  }

  // Where NVLink carries so much to other rails that it is the slower port.
  double HandedOver(const Flow& far, double nvlink, double delay) const {
    const model::Pieces& pieces = far.pieces;
    const Batch batch{.pieces = pieces, .box = box_, .share = share_};
    return batch.Work(pieces.rounds > 0 ? pieces.full : pieces.tail) + nvlink + delay +
           batch.Work(Last(pieces));
  }

  // Bytes of one message, all its parts, on a port.
  double PortBytes(const model::Pieces& pieces, const model::Edge& edge) const {
    const auto of = [&](const model::Chunk& chunk) {
      return chunk.slices > 0 ? static_cast<double>(edge.Wire(Wire(chunk))) : 0;
    };
    return parts() * (static_cast<double>(pieces.rounds) * of(pieces.full) + of(pieces.tail));
  }

 private:
  const Plan& plan_;
  const model::WhiteBox& box_;
  p2p::Rounds rounds_;
  Channels channels_;
  int batches_;
  double share_;
};

}  // namespace

Cost AllToAllCost(const Plan& plan, const cluster::Spec& spec) {
  if (plan.uneven.priced_even > 0) {
    Plan even = plan;
    even.bytes = plan.uneven.priced_even;
    even.uneven = {};
    return AllToAllCost(even, spec);
  }
  const model::WhiteBox box = model::MakeWhiteBox(plan, spec);
  Cost cost;
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(box.setup);
    return cost;
  }
  const bool net = plan.shape.domains > 1;
  const bool uneven = plan.uneven.shares != nullptr;
  const Reading reading(plan, box);
  const double parts = reading.parts();
  const Traffic t =
      uneven ? UnevenTraffic(plan, parts, reading.batches()) : EvenTraffic(plan, parts);
  const model::Pieces& pieces = (net ? t.far : t.near)[0].pieces;
  const auto rounds = static_cast<double>(pieces.rounds);
  const auto over_nvlink = [&](const model::Chunk& chunk) {
    return parts *
           (t.stays * reading.Serial(box.intra, chunk) + t.handed * reading.HopSerial(chunk));
  };
  const double nvlink = rounds * over_nvlink(pieces.full) + over_nvlink(pieces.tail);
  const double nic = t.far[0].load * (rounds * reading.Serial(box.inter, pieces.full) +
                                      reading.Serial(box.inter, pieces.tail));
  auto total = static_cast<double>(plan.uneven.played);
  for (int i = 0; i < t.sizes && plan.uneven.played == 0; ++i) {
    const Flow& near = t.near[static_cast<std::size_t>(i)];
    const Flow& far = t.far[static_cast<std::size_t>(i)];
    if (near.load > 0) {
      total = std::max(total, reading.Time(near, reading.Delay(box.intra, near), false, box.intra,
                                           net ? 1 : reading.batches(), 0));
    }
    if (far.load > 0) {
      const double hop = far.handed > 0 ? box.intra.latency : 0;
      const double delay = reading.Delay(box.inter, far) + hop;
      total = std::max(total, reading.Time(far, delay, true, box.inter, reading.batches(), hop));
      if (i == 0) total = std::max(total, reading.HandedOver(far, nvlink, delay));
    }
  }
  const double channel = uneven ? t.channel : static_cast<double>(pieces.share) * reading.most();
  const double bytes = channel * box.per_byte * model::kStreams;
  cost.transfer = RoundToPs(std::min(total, std::max({bytes, nvlink, nic})));
  cost.fixed = RoundToPs(box.setup + total) - cost.transfer;
  cost.member.nvlink_out = cost.member.nvlink_in = static_cast<std::int64_t>(
      t.mean_local * reading.PortBytes(t.near[0].pieces, box.intra) +
      (net ? t.mean_handed * reading.PortBytes(t.far[0].pieces, box.inter) : 0));
  cost.member.nic_out = cost.member.nic_in = static_cast<std::int64_t>(
      net ? t.mean_remote * reading.PortBytes(t.far[0].pieces, box.inter) : 0);
  return cost;
}

}  // namespace orrery::collective
