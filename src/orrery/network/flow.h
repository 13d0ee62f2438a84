// `flow`: every flow in flight has its weighted max-min fair rate on the links it crosses.
//
// Model. A transfer takes the path that the cluster's routing gives it (among equal ones by a hash
// of its ends and its salt) and competes on every link of it with its wire bytes (wire.h); a fluid
// over links names its loads itself. Rates follow max_min.h's integer rule and hold until the next
// start or end. A flow waits half of its fixed time before it competes and half after its last
// byte; a transfer's fixed time is Uncontended() less its wire bytes over the least bandwidth, so
// that alone it takes exactly Uncontended().
//
// Assumptions. Rates settle at once: no queues, no transients of congestion control; links are
// shared ideally, whatever the packets do. Packet headers are in the wire bytes.
//
// Exactness. Served bytes are kept in byte·10⁻¹²/256 (128 bits): rate · ps, exactly. An end is the
// first whole ps at which nothing is left. What an instant's starts and ends lead to is a function
// of who is in flight alone (max_min.h), so neither batches nor their order change a time, and the
// incremental solver gives what the full one gives.
//
// Equal flows (same loads, weight and cap) are one class: what each member has been served since
// the class began is one number, a member ends when that has grown by its bytes. All classes with
// the same bottleneck have the same level, so what they are served is one number, too (meter.h): a
// change of level touches no flow.
//
// A flow that has every link of its path to itself has the least of their capacities, and the
// solver hears of it when another comes to one of them.
//
// Messages of one connection go in order (connections.h): only the first that has bytes left
// competes, so a connection is one flow however many messages it has posted. Those that name no
// connection have one of their own.
//
// With adaptive routing a transfer takes, of 16 paths, the one whose most loaded link has the
// fewest flights for its bandwidth when the transfer starts, and keeps it; then the order of a
// batch counts.
//
// Links that change during the run (link_schedule.h) have their new capacity from that instant on.
// Transfers go round links that are down (failures.h); one in flight takes what it has left along.
//
// Statistics. Bytes are wire bytes of all that started; busy is the time in which a link had a
// flow.
//
// Cost. A flow: two heap entries, one solve a start and one an end (less where several share an
// instant), a division of 128 by 64 bits for every bottleneck whose level or first end changed.
// Memory: 40 bytes a flow in flight, 240 a class, 24 for each of its loads and up to 60 more where
// the class shares no cell of the solver there, 64 a bottleneck; classes are kept for when they
// come again.
#pragma once

#include <map>
#include <unordered_map>

#include "orrery/base/int128.h"
#include "orrery/network/connections.h"
#include "orrery/network/failures.h"
#include "orrery/network/finish_heap.h"
#include "orrery/network/link_schedule.h"
#include "orrery/network/max_min.h"
#include "orrery/network/meter.h"
#include "orrery/network/network.h"
#include "orrery/network/path_cache.h"

namespace orrery::network {

class Flow final : public Network {
 public:
  explicit Flow(std::string_view name = "flow") : name_(name) {}
  std::string_view name() const override { return name_; }
  Status SetupLinks(const cluster::Cluster& cluster,
                    std::span<const std::uint32_t> partition_of_domain,
                    std::uint32_t partition) override;
  void Start(SimTime now, std::span<const Transfer> transfers) override;
  void Start(SimTime now, std::span<const LinkFluid> fluids,
             std::span<const LinkLoad> loads) override;
  std::uint32_t Know(std::span<const LinkLoad> loads, std::uint32_t weight,
                     std::int64_t cap_Bps) override;
  SimTime next_time() const override;
  SimTime AdvanceUntil(SimTime t, std::vector<Completion>* done) override;
  std::span<const PortStatistics> statistics() override;
  void KeepUseLog(std::size_t steps) override { log_ = UseLog(use_.size(), steps); }
  UseLog* use_log() override { return &log_; }
  void Move(SimTime now, FlightId id, std::span<const LinkLoad> loads) override;
  std::uint32_t flights(LinkId link) const override { return use_[link.index()].flights; }
  Status status() const override { return status_; }

  // Port fluids are refused: BackendInfo::fluids is false.
  Status SetupPorts(std::span<const std::int64_t> capacity_Bps) override;
  void Start(SimTime now, std::span<const Fluid> fluids, std::span<const PortLoad> loads) override;
  // One logical process: nothing crosses.
  void TakeRemote(std::vector<RemoteHop>*) override {}
  void Deliver(const RemoteHop& hop) override;
  SimTime lookahead() const override { return kNever; }

  // A link gets another capacity from `now` on.
  void SetCapacity(SimTime now, LinkId link, std::int64_t bandwidth_Bps);
  // For tests and benches: every solve takes all classes, none is left to itself.
  void set_always_full(bool value) {
    solver_.set_always_full(value);
    MeetAll();
  }
  const MaxMin::Counters& counters() const { return solver_.counters(); }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  struct Flight {
    std::int64_t bytes = 0;
    SimTime after = 0;
    std::uint32_t group = kNone;  // class
    bool active = false;
  };
  struct Member {
    Uint128 end = 0;  // of Group::served, when it has nothing left
    FlightId id = 0;
    friend bool operator<(const Member& a, const Member& b) {  // earliest on top
      return a.end != b.end ? a.end > b.end : a.id > b.id;
    }
  };
  struct Group {
    Uint128 served = 0;  // to each member since the class began, until `base` or, alone, until `at`
    Uint128 base = 0;    // of its meter
    SimTime at = 0;
    std::int64_t alone = 0;  // rate of one flow with all links to itself; 0: the solver's
    std::int64_t bytes = 0;  // of all its flows, where whole
    std::uint32_t next_same_hash = kNone;
    std::uint32_t meter = kNone;  // its bottleneck as of the last solve
    bool whole = false;           // each of its links carries all bytes of a flow
    bool lone = false;            // nobody else is on its links: the solver does not know of it
    std::vector<Member> members;  // a heap
  };
  // What a path adds to a transfer, kept with its class.
  struct Path {
    std::uint32_t group = kNone;
    std::int64_t least_Bps = 0;
    std::int64_t wire = -1;  // size for which `fixed` holds
    SimTime fixed = 0;       // Uncontended() less the wire bytes at the least bandwidth
  };
  struct LinkUse {
    std::int64_t bytes = 0;
    SimTime busy = 0;  // less the time at which the classes left 0, while there are any
    std::uint32_t classes = 0;
    std::uint32_t flights = 0;   // started and not yet through; adaptive routing only
    std::uint32_t lone = kNone;  // the class that has it to itself
  };

  void Advance(SimTime now);
  void ApplyChanges();
  void Wait(FlightId id, SimTime before, SimTime after, std::int64_t bytes, std::uint32_t group,
            std::uint64_t connection);
  std::uint32_t PathOf(const Transfer& transfer);
  void SetFixedTime(std::uint32_t number, std::int64_t wire);
  std::uint32_t FindGroup(std::span<const MaxMin::Load> loads, std::uint32_t weight,
                          std::int64_t cap_Bps);
  std::uint32_t RoundFailures(const Transfer& transfer, std::uint32_t number);
  void MakePath(std::uint32_t number);
  void MoveTransfers();
  void MoveTo(FlightId id, std::uint32_t group);
  void CountUse(std::uint32_t group, std::int64_t bytes, int flights);
  bool HasLeft(FlightId id);
  Uint128 TakeOut(FlightId id);
  void Enter(FlightId id);
  void EnterFreed();
  void Depart(FlightId id) { leaving_.Set(id, order_.Leave(id, now_ + flights_[id].after)); }
  void Join(FlightId id, Uint128 left);
  void Leave(std::uint32_t id);
  bool Occupy(std::uint32_t id);
  void Vacate(std::uint32_t id);
  void Meet(std::uint32_t id);
  void MeetAll();
  void Serve(std::uint32_t id);
  void Log(std::uint32_t id);
  void PlaceEnd(std::uint32_t id);
  void Withdraw(std::uint32_t id);
  void MarkStale(std::uint32_t meter);
  void Settle();
  static SimTime EndAt(SimTime from, const Uint128& left, std::int64_t level);
  void SetEnd(std::uint32_t number);
  void TakeEnds();
  bool TakeInstant(std::vector<Completion>* done);

  std::string_view name_;  // of the back end: "flow-chunks" differs in what it is asked to serve
  const cluster::Cluster* cluster_ = nullptr;
  SimTime now_ = 0;
  LinkSchedule schedule_;
  std::size_t next_change_ = 0;
  Failures failures_;
  Status status_;
  std::vector<Transfer> transfers_;                 // by FlightId, where links may go down
  std::map<std::uint32_t, std::uint32_t> detours_;  // now, by the number of the blocked path
  std::vector<LinkId> route_;                       // scratch
  std::size_t in_flight_ = 0;
  bool alone_ = false;  // classes may be left to themselves: capacities stay as they are
  bool adaptive_ = false;
  MaxMin solver_;
  PathCache paths_;
  std::vector<Path> path_;                                     // by path number
  std::vector<Group> groups_;                                  // by class of the solver
  std::vector<Flight> flights_;                                // by FlightId
  std::unordered_map<std::uint64_t, std::uint32_t> group_of_;  // by hash: first of a chain
  FinishHeap waiting_;                                         // flights that do not compete yet
  std::vector<Meter> meters_;                                  // by bottleneck of the solver
  Meter::Places places_;                                       // by class
  FinishHeap ends_;       // meters, by the end of their first class's first member
  FinishHeap lone_ends_;  // classes that have their links to themselves
  FinishHeap leaving_;    // flights that compete no more
  Connections order_;
  std::vector<std::uint32_t> stale_;  // meters whose first end must be computed again
  std::vector<bool> is_stale_;        // by meter
  MaxMin::Changes changes_;
  std::vector<MaxMin::Load> scratch_;
  std::vector<LinkUse> use_;  // by link
  UseLog log_;                // off unless asked for
  std::vector<PortStatistics> statistics_;
};

}  // namespace orrery::network
