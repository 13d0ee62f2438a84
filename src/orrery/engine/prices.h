// Blocks with their prices: what the engine reads instead of kernels.
//
// A BlockPrice is a block as one kind of rank meets it: same kernels at the rank's speed, same
// shapes of the groups behind its slots. It is a list of items (work, communication, wait, host
// sync or pace). Where every communication of a block meets nobody else (all members in one class,
// over NVLink alone, on one stream, waited for inside the block), the whole block is `inlinable`:
// its course relative to its start is fixed, and a run of n such calls costs O(1).
//
// Fingerprint: each item adds K·(m·t + o) modulo 2^64 for its start t, with K an odd number made
// from (call, layer) and (m, o) the item's own. The form is linear in t, so that a whole run of
// calls adds in O(1) what its items would add one by one.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/engine/engine.h"
#include "orrery/interference/interference.h"
#include "orrery/interference/learned.h"

namespace orrery::engine {

inline constexpr int kClasses = interference::kClasses;

struct KernelPrice {
  std::array<SimTime, kClasses> duration{};  // by interference class
  SimTime host = 0;                          // host time to issue it, and what the host did before
  std::uint32_t op = 0;                      // index into Block::ops
};

struct CommPrice {
  collective::Cost cost;             // of the whole group; a non-blocking one slowed by compute
  interference::Class beside = 0;    // class that it puts compute into; 0 when blocking
  bool nvlink = false, nic = false;  // ports it uses
  std::uint64_t digest = 0;          // of collective, type and bytes: members must agree
  graph::Comm comm;
  std::uint32_t op = 0;
  int plan = -1;  // PriceCache::plan; -1: a group of one
};

enum class ItemKind : std::uint8_t { kWork, kComm, kWait, kHostSync, kHostPace };
struct Item {
  ItemKind kind = ItemKind::kWork;
  bool blocking = false;                 // kComm
  std::uint8_t stream = 0;               // kComm
  bool optimizer = false;                // kWork: for the breakdown
  bool shares = false;                   // kComm: runs beside kernels and slows them or their ports
  bool local = false;                    // kComm: a copy between device and host
  bool one_way = true;                   // kComm: no two parts use one port
  std::uint16_t parts = 0;               // kComm: those of `count` that have a partner
  std::int16_t event = graph::kNoEvent;  // kWait, non-blocking kComm
  std::uint32_t first = 0, count = 0;    // kernels or comms
  SimTime host = 0;                      // host time of the whole item
  SimTime lag = 0;  // kWork: the GPU waits for no launch if host + lag <= start
  std::array<SimTime, kClasses> duration{};  // kWork; of a copy [0]
  std::uint64_t key = 0;                     // odd; contribution K·(key·start + digest)
  std::uint64_t digest = 0;
};

// No kernel, communication or iteration of a rank may take longer (28 hours): what does comes from
// a rate or a size that is none, and sums of it would leave SimTime.
inline constexpr double kLongest_s = 1e5;

// Kernels between communications and waits are one piece, as is each of those.
inline constexpr std::size_t kMostItems = 0xFFFF;

struct BlockPrice {
  double seconds = 0;  // kernels and communications one after another
  std::vector<Item> items;
  std::vector<KernelPrice> kernels;
  std::vector<CommPrice> comms;  // by index into Block::comms
  // The whole block, when inlinable: if the members of `meets` begin it together.
  bool inlinable = false;
  graph::GroupSlot meets = graph::GroupSlot::kCount;  // that its communications meet; kCount: none
  SimTime duration = 0, host = 0, lag = 0;
  std::uint64_t m = 0, o = 0;                  // Σ of its items' linear forms, offsets included
  Breakdown parts{};                           // sums to `duration`
  std::int64_t nvlink_out = 0, nvlink_in = 0;  // bytes through the rank's ports
  SimTime nvlink_busy = 0;
  // Kernel time by provenance and Σ time·spread, for the result.
  std::array<SimTime, compute::kProvenances> provenance{};
  double spread_ps = 0;
};

// Weights of a layer's repeat index in the fingerprint, with prefix sums of B and l·B.
struct LayerWeights {
  LayerWeights();
  std::uint64_t weight(std::size_t l) const { return sum[l + 1] - sum[l]; }
  // As often as a call can repeat its block.
  static constexpr std::size_t kMax = std::numeric_limits<decltype(graph::Call::repeat)>::max();
  std::array<std::uint64_t, kMax + 1> sum{}, moment{};
};
const LayerWeights& Weights();
constexpr std::uint64_t CallWeight(std::uint32_t call) { return Mix64(call + 1) | 1; }

// How one kind of rank sees its slots: the key of its prices.
struct View {
  double speed = 1;
  std::array<std::uint16_t, graph::kGroupSlots> shape{};  // PriceCache::shape ids; 0: no group
  std::array<std::uint16_t, graph::kPeerSlots> peer{};    // shape of the pair
  std::uint16_t alone = 0;  // slots whose group is of one kind: one class, or one variant
  static_assert(graph::kGroupSlots <= 16);
  std::uint8_t own_peers = 0;  // peer slots behind which is the rank's own class
  std::uint64_t Key() const;
  friend bool operator==(const View&, const View&) = default;
};

// Refuses a communication that takes kLongest_s or more.
Status CheckDuration(const CommPrice& comm);

class PriceCache {
 public:
  // `slowdown`: how kernels slow beside communication; null: the constant model.
  PriceCache(const compute::CostModel& compute, const collective::Planner& planner,
             std::shared_ptr<const interference::Learned> slowdown = nullptr);

  std::uint16_t ShapeId(const collective::GroupShape& shape);
  const collective::GroupShape& shape(std::uint16_t id) const { return shapes_[id]; }
  // The price of a block in a view; stable address. `shares`: of its graph.
  Result<const BlockPrice*> Find(const graph::Block& block, const View& view,
                                 std::span<const graph::Shares> shares);
  // What one communication of `bytes` costs a group of that shape (a pair's, for a message, of a
  // communicator of `group_shape`); all of *price but its digest. Shape 0: nobody, and no plan.
  Status PriceComm(const graph::Comm& comm, std::int64_t bytes, std::uint16_t shape,
                   std::uint16_t group_shape, const graph::Shares* shares, CommPrice* price);
  // What the members of a collective, or both ends of a message, agree on.
  static std::uint64_t DigestOf(const graph::Comm& comm, std::int64_t bytes,
                                const graph::Shares* shares);
  // Of a rank of speed 1, nothing beside them.
  SimTime KernelTime(const graph::Block& block);
  const collective::Plan& plan(int id) const { return plans_[static_cast<std::size_t>(id)]; }

 private:
  Result<int> PlanId(graph::Collective collective, std::int64_t bytes, std::uint16_t shape,
                     std::uint16_t communicator, bool copies);
  Result<int> UnevenPlanId(const graph::Comm& comm, std::uint16_t shape,
                           const graph::Shares& shares);
  int AddPlan(std::uint64_t key, const collective::Plan& plan);
  Status PriceComms(const graph::Block& block, const View& view,
                    std::span<const graph::Shares> shares, BlockPrice* price);

  const compute::CostModel* compute_;
  const collective::Planner* planner_;
  std::shared_ptr<const interference::Learned> slowdown_;  // prices outlive the job that read it
  std::vector<collective::GroupShape> shapes_;
  std::vector<collective::Plan> plans_;
  std::vector<collective::Cost> costs_;  // by plan id
  // Those of plans, by content: graphs come and go.
  std::unordered_map<std::uint64_t, std::unique_ptr<const graph::Shares>> shares_;
  std::unordered_map<std::uint64_t, int> plan_ids_;
  std::unordered_map<std::uint64_t, std::unique_ptr<BlockPrice>> blocks_;
  std::unordered_map<std::uint64_t, SimTime> kernel_times_;  // by content
};

}  // namespace orrery::engine
