// The ways of queue pairs through the fabric, as numbers of links end to end in one array.
//
// A flow's ways share its first and last link's NICs; way 0 is the cluster's own route for the
// connection, the others are those of other hashes, computed when first used. Links inside a host
// (NVLink, PCIe) are kept apart: packets begin and end at NICs (hosts.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/network/packet/packet.h"

namespace orrery::network::packet {

class Paths {
 public:
  struct alignas(32) Way {
    std::uint32_t first = 0;                    // in the array
    std::uint32_t link = 0;                     // its first
    std::array<std::uint16_t, kSlots> slots{};  // as Packet has them
    std::uint8_t hops = 0;                      // 0: not computed
  };

  static constexpr std::size_t kMostHops = 255;  // of a way: Packet::hop counts them
  // Fails where a node has more links than Packet::slots can number.
  Status Setup(const cluster::Cluster& cluster);
  // Before arrays move `settle` is called, so that nobody reads them. All ways of a flow are
  // computed when it is added, where `at_once`: then nothing is written while ways are looked up.
  void Share(std::function<void()> settle, bool at_once) {
    settle_ = std::move(settle);
    at_once_ = at_once;
  }
  // A flow's number: room for `ways` ways. REQUIRES: the route leaves the host, by kMostHops links
  // at most.
  std::uint32_t Add(DeviceId from, DeviceId to, std::uint64_t salt, int ways);
  const Way& way(std::uint32_t flow, std::uint32_t entropy) {
    const Flow& f = flows_[flow];
    Way& way = ways_[f.first_way + entropy % f.ways];
    if (way.hops == 0) Compute(f, entropy % f.ways, &way);
    return way;
  }
  int ways(std::uint32_t flow) const { return static_cast<int>(flows_[flow].ways); }
  // Back from the receiving NIC to the sending one.
  const Way& back(std::uint32_t flow) const { return flows_[flow].back; }
  // Links inside the sending and the receiving host.
  std::span<const std::uint32_t> before(std::uint32_t flow) const {
    return {links_.data() + flows_[flow].before, flows_[flow].befores};
  }
  std::span<const std::uint32_t> after(std::uint32_t flow) const {
    return {links_.data() + flows_[flow].after, flows_[flow].afters};
  }
  std::uint32_t link(std::uint32_t place) const { return links_[place]; }
  // Of a link: which of those that leave the same node it is, from 0 on.
  std::uint16_t slot(std::uint32_t link) const { return slot_of_[link]; }
  // The packet goes this way: its path and its slots.
  static void Send(const Way& way, Packet* packet) {
    packet->path = way.first;
    packet->hops = way.hops;
    packet->slots = way.slots;
  }
  void FetchAhead(std::uint32_t flow, std::uint32_t entropy) const {
    const Flow& f = flows_[flow];
    __builtin_prefetch(&ways_[f.first_way + entropy % f.ways]);
  }

 private:
  struct Flow {
    DeviceId from, to;
    std::uint64_t salt = 0;
    std::uint32_t first_way = 0, ways = 1;
    std::uint32_t before = 0, after = 0;
    std::uint8_t befores = 0, afters = 0;
    Way back;
  };
  template <class T>
  void MakeRoom(std::vector<T>* array, std::size_t more) const {
    if (array->size() + more <= array->capacity()) return;
    if (settle_) settle_();
    array->reserve(std::max(2 * array->capacity(), array->size() + more));
  }
  void Compute(const Flow& flow, std::uint32_t entropy, Way* way);
  Way AddFabricPart(std::span<const LinkId> route);

  const cluster::Cluster* cluster_ = nullptr;
  std::vector<Flow> flows_;
  std::vector<Way> ways_;
  std::vector<std::uint32_t> links_;
  std::vector<std::uint16_t> slot_of_;  // by link
  std::vector<LinkId> route_;           // scratch
  std::function<void()> settle_;
  bool at_once_ = false;
};

}  // namespace orrery::network::packet
