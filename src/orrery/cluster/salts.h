// Salts of Cluster::Route's, beside those that cluster.h names.
#pragma once

#include <cstdint>

namespace orrery::cluster {

// Between domains, begin with NVLink to the GPU on the destination's rail, where there is one,
// whatever the routing (NCCL's PXN).
inline constexpr std::uint64_t kByRail = ~std::uint64_t{3};

// Parts of a way through the fabric, as reduction and multicast in its switches take them (SHARP):
// from `from` up to its leaf, or to the switch where its way to `to` turns; and from there down to
// `to`. All of one `to` meet at one switch: the destination alone decides the way up, and the way
// down to `to` is that from `to` to `from` backwards. REQUIRES: Spec::sharp.
inline constexpr std::uint64_t kIntoLeaf = ~std::uint64_t{4};
inline constexpr std::uint64_t kIntoTop = ~std::uint64_t{5};
inline constexpr std::uint64_t kOutOfLeaf = ~std::uint64_t{6};
inline constexpr std::uint64_t kOutOfTop = ~std::uint64_t{7};

// Two connections of one channel between the same two GPUs of a domain: parts for a head, and what
// a head hands on. The way is the same.
inline constexpr std::uint64_t kToHead = ~std::uint64_t{8};
inline constexpr std::uint64_t kFromHead = ~std::uint64_t{9};

// All names are from here on: no number of a channel or queue pair is.
inline constexpr std::uint64_t kFirstName = ~std::uint64_t{15};
constexpr bool InFabric(std::uint64_t salt) { return salt >= kOutOfTop && salt <= kIntoLeaf; }
// No other way can stand for it: all that takes part meets at one switch.
constexpr bool HasOneWay(std::uint64_t salt) { return salt >= kFirstName && salt != kByRail; }

// Of a channel's connection: every channel has queue pairs of its own, hashed apart. Below
// kFirstName.
constexpr std::uint64_t QueuePair(std::uint16_t channel, std::uint32_t number) {
  return std::uint64_t{number} << 16 | channel;
}

}  // namespace orrery::cluster
