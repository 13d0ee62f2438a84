// Broadcast and point-to-point: what flows one way (formula.h).
#include "orrery/collective/formula/formula.h"

#include <algorithm>

namespace orrery::collective {

using model::Chunk;
using model::Edge;

// Broadcast: the ring cut open at the root.
Terms Formula::Chain() const {
  const double hops = plan_.shape.ranks - 1;
  const double crossings = ChainCrossings();
  const auto way = [&](std::int64_t data) {
    return crossings * (net() ? Delay(box_.inter, data) : 0) + hops * Work(data, model::kStreams) +
           std::max(0.0, hops - crossings) * Delay(box_.intra, data);
  };
  const double nvlink_channels = ppn() > 1 ? plan_.channels : 0;
  // The root is first in its domain on the first NIC's channels: those cross once less than others.
  const double longest = crossings < plan_.shape.domains
                             ? NicChannels()
                             : CeilDiv(plan_.channels - 1, std::max(1, plan_.shape.nics));
  return Stream(nvlink_channels, net() ? NicChannels() : 0, net() ? longest : 0, hops, way, 0);
}

// One hop. Over NVLink the sender writes into the receiver's buffer: the receiver only takes note.
Terms Formula::PointToPoint() const {
  const Edge& edge = net() ? box_.inter : box_.intra;
  const auto receive = [&](std::int64_t data) {
    return net() ? Work(data, model::kStreams) : box_.sync;
  };
  const auto way = [&](std::int64_t data) { return Delay(edge, data) + receive(data); };
  const std::int64_t slice = (pieces_.rounds > 0 ? pieces_.full : pieces_.tail).slice;
  const double saved = Work(slice, model::kStreams) - receive(slice);
  const double channels = plan_.channels;
  return Stream(net() ? 0 : channels, net() ? channels : 0, net() ? channels : 0, 1, way, saved);
}

// Chunks one after the other through `hops` connections, `way` from the first one's end of work on
// to the last member's end, less than its own lane; `saved` of each work of the last member.
// `together`: of the channels at one NIC, those that go the longest way.
template <class Way>
Terms Formula::Stream(double nvlink_channels, double nic_channels, double together, double hops,
                      Way way_of, double saved) const {
  const Edge& edge = net() ? box_.inter : box_.intra;
  struct Piece {
    double lane = 0, nvlink = 0, nic = 0, turns = 0, slices = 0, bytes = 0;
  };
  const auto piece_of = [&](const Chunk& chunk, double times) {
    Piece piece;
    if (chunk.slices == 0 || times == 0) return piece;
    piece.lane = times * LaneWork(chunk);
    piece.nvlink = times * nvlink_channels * Serial(box_.intra, chunk);
    piece.nic = times * nic_channels * Serial(box_.inter, chunk);
    piece.slices = times * chunk.slices;
    piece.turns = piece.slices * (2 * Work(chunk.slice, model::kStreams) - saved +
                                  Delay(edge, chunk.slice) + back());
    piece.bytes = times * Bytes(chunk);
    return piece;
  };
  const Piece full = piece_of(pieces_.full, static_cast<double>(pieces_.rounds));
  const Piece tail = piece_of(pieces_.tail, 1);
  const Chunk& first = full.slices > 0 ? pieces_.full : pieces_.tail;
  const std::int64_t message = model::OnWire(plan_.protocol, first.slice);
  const double work = Work(first.slice, model::kStreams);
  const double way = way_of(first.slice);
  // Behind the first hop a smaller last chunk waits for the full one before it.
  const double last =
      hops > 1 ? way : way_of((tail.slices > 0 ? pieces_.tail : pieces_.full).last());
  const double hop = 2 * work - saved + Delay(edge, first.slice);
  const double nvlink_serial = box_.intra.Serial(message);
  const double nic_serial = box_.inter.Serial(message);
  // Channels begin together at the root's NVLink and come one message apart to its NICs, in turn.
  const double turns = std::max(0.0, std::min<double>(plan_.shape.nics, nvlink_channels) - 1);
  const double queue = std::max(std::max(0.0, nvlink_channels - 1) * nvlink_serial,
                                turns * nvlink_serial + std::max(0.0, together - 1) * nic_serial);
  const double slices = full.slices + tail.slices;
  const double turn = (full.turns + tail.turns) / slices;
  const double lane = full.lane + tail.lane;
  Terms terms;
  terms.total = std::max(
      lane + way + queue,
      Credit(turn, slices, std::max(lane / slices, turn / plan_.credits)) + way - hop + work);
  // `start`: the first message's work ends, at the port or one before it; `less`: of the way.
  const auto port = [&](double start, double channels, double serial, double in_full,
                        double in_tail, double less) {
    if (channels <= 0) return;
    terms.total = std::max(terms.total, start + in_full + in_tail - serial + last - less);
    if (full.slices == 0 || tail.slices == 0) return;
    // From the second hop on, channels come one message apart: the tail of the first ones is ready
    // before the last one's full slice, and goes ahead of it.
    double ahead = 0;
    const double short_work = tail.lane / tail.slices;
    for (int i = 1; hops > 1 && i <= pieces_.tail.slices; ++i) {
      ahead += std::max(0.0, channels - 1 - i * short_work / serial);
    }
    ahead *= in_tail / (channels * tail.slices);
    terms.total = std::max(terms.total, start + in_full - serial + ahead + way - less + tail.lane);
  };
  port(work, nvlink_channels, nvlink_serial, full.nvlink, tail.nvlink, 0);
  const double first_nic = work + turns * nvlink_serial;
  if (together < nic_channels) {
    const double share = together / nic_channels;
    const double less = Delay(box_.inter, first.slice) - Delay(box_.intra, first.slice);
    port(first_nic, together, nic_serial, full.nic * share, tail.nic * share, 0);
    port(first_nic, nic_channels, nic_serial, full.nic, tail.nic, less);
  } else {
    port(first_nic, nic_channels, nic_serial, full.nic, tail.nic, 0);
  }
  terms.transfer =
      std::max({full.bytes + tail.bytes, full.nvlink + tail.nvlink, full.nic + tail.nic});
  return terms;
}

}  // namespace orrery::collective
