// Who is simulated: every rank, or one rank for each class of ranks that provably behave alike.
//
// Folding is the coarsest equitable partition over ranks, groups and shared NICs: start
// from (job, program, speed, delay), refine by the colours of the groups behind a rank's slots, of
// its peers and of its NIC, until nothing splits. Members of a class then see equal arrivals at
// every meeting, so one stands for all; a NIC port carries as many copies of a class's flow as it
// has members there. Cost: O(ranks · slots) a round, two or three rounds for regular plans.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orrery/engine/engine.h"
#include "orrery/engine/prices.h"
#include "orrery/graph/verify/straight.h"
#include "orrery/network/network.h"

namespace orrery::engine {

inline constexpr std::uint32_t kNobody = 0xFFFFFFFFu;

struct alignas(128) SimRank {  // what the main loop reads comes first: one cache line
  std::uint32_t variant = 0;   // into Layout::variants
  std::uint32_t nvlink_port = 0, nic_port = 0;  // the out port; the in port follows
  std::uint32_t nic_copies = 1;
  bool private_nic = false;  // no other rank of the run sits next to its NIC
  std::array<std::uint32_t, graph::kGroupSlots> meet{};  // kNobody: no group
  RankId rank;                                           // the class's lowest
  std::uint32_t size = 1;
  std::uint32_t logical_rank = 0;
  SimTime delay = 0;
  std::array<std::array<std::uint32_t, graph::kStraightTags>, graph::kPeerSlots> send{},
      receive{};  // meets
};

// A program as one kind of rank runs it.
struct Variant {
  ProgramId program;
  JobId job;
  View view;
  std::vector<const BlockPrice*> blocks;  // by BlockId; null where not called
};

// Where simulated ranks come together: a group of classes, or a pair for one direction and tag.
struct MeetInfo {
  std::uint32_t first = 0, count = 0;  // into Layout::participants; a pair: sender, receiver
  bool pair = false;
  GroupId group;                   // one of those that it stands for
  RankId from, to;                 // a pair's
  std::uint8_t slot = 0, tag = 0;  // of the sender
};

struct Layout {
  std::vector<SimRank> ranks;
  std::vector<std::uint32_t> class_of;  // by RankId: index into ranks; empty when unfolded
  std::vector<Variant> variants;
  std::vector<double> paces;  // of kernels, by program (rank_noise.h); empty: all are 1
  std::vector<MeetInfo> meets;
  std::vector<std::uint32_t> participants;  // simulated ranks
  std::vector<std::int64_t> port_capacity_Bps;
  int streams = 1;       // of a rank, compute (0) among them
  bool gathers = false;  // groups of one variant take blocks together (BlockPrice::meets)
  // Where GPUs share a PCIe tree: a port for each of its links from first_pcie_port on, in the
  // order of the cluster's (Cluster::first_pcie_link()).
  std::uint32_t first_pcie_port = kNobody;

  std::span<const std::uint32_t> members(std::uint32_t meet) const {
    return {participants.data() + meets[meet].first, meets[meet].count};
  }
  std::uint32_t sim_of(RankId rank) const {
    return class_of.empty() ? static_cast<std::uint32_t>(rank.index()) : class_of[rank.index()];
  }
};

// Where the rank meets others for this communication; kNobody: nobody is bound to its slot.
inline std::uint32_t MeetOf(const SimRank& rank, const graph::Comm& comm) {
  const auto slot = static_cast<std::size_t>(comm.peer.slot());
  if (comm.collective == graph::Collective::kSend) return rank.send[slot][comm.tag];
  if (comm.collective == graph::Collective::kRecv) return rank.receive[slot][comm.tag];
  return rank.meet[static_cast<std::size_t>(comm.group)];
}

// Which end of a pair it is: bit 0 the sender, bit 1 the receiver; 0: no pair.
inline std::uint8_t EndOf(const graph::Comm& comm) {
  if (comm.collective == graph::Collective::kSend) return 1;
  return comm.collective == graph::Collective::kRecv ? 2 : 0;
}

// Who is a rank by itself: all of them; one of each class; all, but groups whose members are of one
// variant take blocks together where nothing else can touch them.
enum class Folding : std::uint8_t { kNone, kClasses, kGathers };
Result<Layout> BuildLayout(const Inputs& inputs, const Options& options, Folding folding,
                           PriceCache* prices);
// Ranks and their ports alone, unfolded: for the general machine.
Layout BuildPorts(const Inputs& inputs, PriceCache* prices);
// Folded by classes that the caller found, numbered in order of their lowest rank. Nothing is
// priced as alone in its class: a block has the price that it has unfolded.
Result<Layout> BuildLayout(const Inputs& inputs, const Options& options,
                           std::vector<std::uint32_t> class_of, PriceCache* prices);

}  // namespace orrery::engine
