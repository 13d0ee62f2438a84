// The other reading of a plan: transfers at slice grain.
//
// A Schedule is the static part, one per (plan, members): the connections of every channel. At()
// gives any step of a member's lane in O(1), so that a collective of any size costs one counter per
// member and lane. How an executor runs it:
//
// A member's lane takes steps 0, 1, 2 … in order, from setup() after the member's own arrival on.
// Lanes wait for each other in nothing but links and messages.
//
// A step begins when the step before it has ended, the next message on recv_connection (in order)
// has arrived and send_connection has a credit, which it takes. It lasts `work`.
//
// At its end the message it consumed gives its credit back: the sender has it after the latencies
// of the way back (of the links, no bytes). Its own message of `bytes` starts `post` later on the
// network, from the device of `from` to the device of `to` over Cluster::Route with the
// connection's salt; the lane does not wait for that.
//
// A connection begins with credits() credits. A member is done when all its lanes are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "orrery/collective/algorithms/pat.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {

// A directed connection between two members on one channel.
struct Connection {
  std::uint16_t channel = 0;
  std::uint32_t from = 0, to = 0;  // indices into the group's members
  std::uint64_t salt = 0;          // of the route; NVLS: a part of it (cluster::kIntoSwitch ...)
};

// One action of a member on a lane.
struct Step {
  std::int32_t recv_connection = -1;  // index into Schedule::connections; -1: needs nothing
  std::int32_t send_connection = -1;  // -1: sends nothing
  std::int64_t bytes = 0;             // flags of LL and LL128 included, packet headers not
  SimTime work = 0;                   // copy or reduction: holds the lane
  SimTime post = 0;   // fence, flag, proxy: before the message leaves; holds nothing
  bool done = false;  // no further step; other fields void
};

// Where a member stands in a channel's tree. Indices into Schedule::connections; -1: none.
struct TreeNode {
  std::int32_t to_parent = -1, from_parent = -1;
  std::int32_t children = 0;
  std::int32_t from_child[3] = {-1, -1, -1};  // the local one first
  std::int32_t to_child[3] = {-1, -1, -1};    // in the same order
};

// NVLS, CollNet: where a member stands. Heads are the first `heads` places of a domain.
struct NvlsPlace {
  std::uint32_t domain = 0, place = 0;
  std::uint32_t size = 0;  // of the domain
};

// Whom a member's part cannot end without; others may come after it has ended.
enum class WaitsFor : std::uint8_t { kNobody, kFirst, kAll };  // kFirst: members[0]

// All-to-all: one of the messages that a channel runs, the same on every member.
struct PairWork {
  std::uint32_t round = 0, part = 0;
};

class Schedule {
 public:
  // REQUIRES: plan.shape is the shape of `members`; point-to-point: two members, shape as planned.
  // Broadcast, gather, scatter: members[0] is the root; point-to-point: members[0] sends to
  // members[1]. O(channels * members).
  Schedule(const Plan& plan, const cluster::Cluster& cluster, std::span<const DeviceId> members);

  int channels() const { return plan_.channels; }
  // Step sequences per member over all channels: channels for rings, twice that for trees (the up
  // and the down lane of channel c are 2c and 2c + 1), four times for NVLS (nvls.h), 5 or 3
  // times for CollNet (collnet.h); all-to-all, gather and scatter: lowering_all_to_all.cc.
  int lanes() const {
    if (model::IsExchange(plan_.collective)) return pair_lanes_;
    if (model::IsNvls(plan_)) return 4 * plan_.channels;
    if (model::IsCollNet(plan_)) {
      return (plan_.algorithm == Algorithm::kCollNetChain ? 3 : 5) * plan_.channels;
    }
    return plan_.algorithm == Algorithm::kTree ? 2 * plan_.channels : plan_.channels;
  }
  std::span<const Connection> connections() const { return connections_; }
  SimTime setup() const { return setup_; }  // from arrival to the first step
  // Even all-to-all: the order of its steps keeps the window (lowering_all_to_all.cc), twice as
  // many never run out.
  int credits() const {
    const bool even =
        plan_.collective == graph::Collective::kAllToAll && plan_.uneven.shares == nullptr;
    return even ? 2 * plan_.credits : plan_.credits;
  }
  const Plan& plan() const { return plan_; }
  // `credits`: of its connections. O(1); of an uneven all-to-all O(members²).
  WaitsFor PartnersOf(std::uint32_t member, std::int64_t credits) const;

  // The step number `index` (from 0) of a member on a lane. O(1), no state; of an uneven all-to-all
  // O(messages of the lane).
  Step At(std::uint32_t member, int lane, std::uint64_t index) const;

 private:
  void BuildRings(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  void ConnectTree(int channel, std::uint32_t parent, std::uint32_t child);
  void BuildTrees(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  Step RingStep(std::uint32_t member, int channel, std::uint64_t index) const;
  Step ChainStep(std::uint32_t member, int channel, std::uint64_t index) const;
  Step TreeStep(std::uint32_t member, int lane, std::uint64_t index) const;
  void BuildNvls(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  void ConnectHeads(int channel);
  // Where a lane of `slots` steps a round stands: the step's place in its round and the round's
  // bytes; nothing when its rounds are over.
  struct InRound {
    std::uint64_t slot = 0;
    std::int64_t data = 0;
  };
  std::optional<InRound> RoundAt(std::uint64_t index, std::uint64_t slots) const;
  Step NvlsStep(std::uint32_t member, int lane, std::uint64_t index) const;
  void ScatterStep(const NvlsPlace& place, int channel, std::uint64_t slot, std::int64_t data,
                   Step* step) const;
  void GatherStep(const NvlsPlace& place, int channel, std::uint64_t slot, std::int64_t data,
                  Step* step) const;
  void ReduceStep(const NvlsPlace& place, int channel, std::uint64_t slot, std::int64_t data,
                  Step* step) const;
  void BroadcastStep(const NvlsPlace& place, int channel, std::uint64_t slot, std::int64_t data,
                     Step* step) const;
  std::uint64_t NvlsSlots(const NvlsPlace& place, int channel, int lane) const;
  std::int32_t NvlsConnection(int channel, std::uint32_t domain, std::uint32_t head,
                              std::uint32_t place, bool down) const;
  void PlaceHeads(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  void ConnectFabric(const cluster::Cluster& cluster, std::span<const DeviceId> members,
                     int channel, std::span<const std::uint32_t> heads);
  void BuildCollNet(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  void BuildCollNetChain(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  std::int32_t FabricConnection(int channel, std::uint32_t head, std::uint32_t domain,
                                bool down) const;
  std::int32_t HeadConnection(int channel, const NvlsPlace& place, std::uint32_t head,
                              std::uint32_t other, bool down) const;
  std::uint64_t CollNetSlots(const NvlsPlace& place, int lane) const;
  void TurnStep(const NvlsPlace& place, int channel, int kind, const InRound& at,
                std::int64_t round, Step* step) const;
  Step CollNetStep(std::uint32_t member, int lane, std::uint64_t index) const;
  void SumStep(int channel, std::uint32_t head, std::uint64_t slot, Step* step) const;
  void CollNetChainStep(const NvlsPlace& place, int channel, int kind, std::uint64_t slot,
                        std::int64_t data, Step* step) const;
  void HeadsStep(const NvlsPlace& place, int channel, int kind, std::uint64_t slot,
                 std::int64_t data, Step* step) const;
  void BuildPat();
  Step PatStep(std::uint32_t member, int channel, std::uint64_t index) const;
  std::vector<std::uint32_t> BuildRounds(const cluster::Cluster& cluster,
                                         std::span<const DeviceId> members);
  void BuildRooted(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  Step RootedStep(std::uint32_t member, int lane, std::uint64_t index) const;
  Step RootedChunk(bool sends, std::size_t connection, std::uint64_t index, int share) const;
  std::uint64_t chunks() const {
    return static_cast<std::uint64_t>(pieces_.rounds) + (pieces_.tail.slices > 0 ? 1 : 0);
  }
  bool ExchangesWithAll() const;
  void BuildAllToAll(const cluster::Cluster& cluster, std::span<const DeviceId> members);
  std::uint32_t PeerOf(std::uint32_t q, std::uint32_t round) const;
  std::uint32_t SourceOf(std::uint32_t q, std::uint32_t round) const;
  Step AllToAllStep(std::uint32_t member, int lane, std::uint64_t index) const;
  Step UnevenStep(std::uint32_t member, int lane, std::uint64_t index) const;
  // Of a ring, chain or tree.
  std::int64_t MessageBytes(std::int64_t data, std::int32_t connection) const;
  SimTime Work(std::int64_t data, double streams, bool sync) const;
  SimTime Post(std::int32_t connection) const;

  Plan plan_;
  model::WhiteBox box_;
  model::Pieces pieces_;
  std::uint32_t ranks_ = 0;
  std::vector<Connection> connections_;
  std::vector<char> crosses_;  // by connection: leaves its NVLink domain
  // Rings: by channel * ranks + member; all-to-all: by member.
  std::vector<std::uint32_t> position_;
  std::vector<TreeNode> nodes_;    // trees: by channel * ranks + member
  std::vector<NvlsPlace> places_;  // NVLS, CollNet: by member; CollNetChain: by channel, too
  std::vector<std::vector<std::uint32_t>> domains_;  // NVLS: members by place
  std::vector<std::int32_t> first_of_domain_;        // NVLS: connections, within a channel
  std::int32_t channel_connections_ = 0;             // NVLS, CollNet: of one channel
  std::int32_t fabric_connections_ = 0;              // CollNet: the first, within a channel
  struct Shift {
    std::uint32_t groups = 0, place = 0;  // ranks further, and places further within a group
  };
  std::vector<Shift> round_shift_;                    // all-to-all: by round
  std::vector<std::vector<PairWork>> works_;          // all-to-all: by channel
  std::uint32_t group_ = 1;                           // all-to-all: ranks of a group
  std::size_t parts_ = 1;                             // all-to-all: of a message
  std::vector<std::uint32_t> round_of_, round_base_;  // gather, scatter: by member; by round
  int pair_lanes_ = 0;
  std::vector<pat::Action> actions_;  // PAT: of a loop, in order
  int dims_ = 0;                      // PAT
  SimTime setup_ = 0;
};

}  // namespace orrery::collective
