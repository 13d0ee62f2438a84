// The general machine: runs any program, by one rule. A node (flat_program.h) is ready when nothing
// that leads to it is outstanding; a ready node begins when what it holds is free.
//
// What the rule leaves open is settled here:
//   - Nodes that become ready at one instant are taken in the order of rank, kind (sends, receives,
//     work, …) and place in their program. Who waits for a processor is served in the order in
//     which it began to wait; who waits for a stream in that stream's order.
//   - An operation whose end is known when it begins, since nothing can slow it, at once releases
//     what waits for its end: a chain of such operations costs no event. Kernels beside
//     communication are timed by interference class, as the fast machine does (work.h).
//   - A collective's members meet in their order per communicator, messages by MPI's rule
//     (matching.h). How a communication proceeds is the transport's, or LogGOPS's with joint
//     endpoints (joint.cc).
//
// Cost: one event a node that must wait for its time, one a processor it waits for; 16 bytes a node
// and rank. No allocation per event.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/huge_pages.h"
#include "orrery/des/event_queue.h"
#include "orrery/engine/general/account.h"
#include "orrery/engine/general/flat_program.h"
#include "orrery/engine/general/matching.h"
#include "orrery/engine/general/op_costs.h"
#include "orrery/engine/general/peers.h"
#include "orrery/engine/general/transport.h"

namespace orrery::engine::general {

// What processors did on a rank.
struct Held {
  SimTime calc = 0, send = 0, receive = 0;
};

struct RankProgram {
  const FlatProgram* flat = nullptr;
  int iterations = 1;
  bool background = false;                                // the run does not wait for its end
  const std::vector<const BlockCosts*>* costs = nullptr;  // by call of the program
};

struct MachineInputs {
  const Inputs* inputs = nullptr;
  const Options* options = nullptr;
  PriceCache* prices = nullptr;
  std::vector<RankProgram> programs;  // by rank
  std::vector<double> speed;          // by rank
  std::vector<SimTime> delay;         // by rank
  bool joint = false;                 // LogGOPS with joint endpoints, no transport
  bool closed_form_in_domains = false;
  network::LogGops loggops;  // joint; else o, O and S for raw messages
  Transport* transport = nullptr;
  Sink* sink = nullptr;
};

class Machine {
 public:
  explicit Machine(const MachineInputs& in);

  Status Run();

  // After Run. Whether the rank came to the iteration's end before the run stopped.
  bool over(std::size_t rank, int iteration) const {
    return ranks_[rank].left[static_cast<std::size_t>(iteration)] == 0;
  }
  SimTime end(std::size_t rank, int iteration) const {
    return ranks_[rank].ends[static_cast<std::size_t>(iteration)];
  }
  Breakdown breakdown(std::size_t rank) const { return ranks_[rank].parts; }
  const Held& held(std::size_t rank) const { return ranks_[rank].held; }
  std::uint64_t hash(std::size_t rank) const { return ranks_[rank].hash; }
  std::int64_t processors() const { return static_cast<std::int64_t>(cpus_each_); }
  std::uint64_t events() const { return events_; }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t unexpected() const { return unexpected_; }
  std::uint64_t truncated() const { return truncated_; }
  // The first receive of them. REQUIRES: truncated() > 0.
  std::string first_truncated() const {
    return Describe(first_truncated_.first, first_truncated_.second);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  enum class Step : std::uint8_t {
    kBegin,    // the node begins
    kEnd,      // a kernel that others may slow ends
    kPost,     // a message of a processor leaves it
    kMessage,  // a message stands before its receiver
    kTakeIn,   // the receive copies its message in
    kWindow,   // the last iteration's window begins
    kMember,   // a member's part of a measured communication ends
  };
  struct Event {
    SimTime time = 0;
    std::uint64_t key = 0;   // order of its creation, kept while it waits; low 3 bits: the step
    std::uint32_t node = 0;  // kMessage: the send
    std::uint32_t rank = 0;  // of the node
    // kMessage: the receiver; kTakeIn: the send; kEnd: version; kMember: the meeting
    std::uint32_t a = 0;
    // kTakeIn: the sender; kMessage: the meeting, if one is under way; kBegin: 1 with its stream;
    // kMember: the member
    std::uint32_t b = 0;
    Step step() const { return static_cast<Step>(key & 7); }
    std::uint64_t order() const { return key >> 3; }
    friend bool operator<(const Event& x, const Event& y) { return x.key < y.key; }
  };
  struct Turn {
    SimTime since = kNever;
    std::uint64_t order = ~std::uint64_t{0};
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  // Messages that wait for one processor and one interface at once: none can have both before those
  // that were made earlier. Only the first tries (joint.cc).
  struct Line {
    std::uint16_t nic = 0;
    bool arrives = false;                     // messages that come; else sends
    std::uint64_t first = ~std::uint64_t{0};  // order of the first that tries
    std::vector<Event> waiting;               // behind it, a heap
  };
  struct Cpu {
    SimTime free = 0;
    Turn next;                   // of the first that waits: it stands in the queue
    std::vector<Event> waiting;  // the others, a heap
    std::vector<Line> lines;     // joint endpoints
  };
  struct Nic {
    SimTime send_free = 0, receive_free = 0;
    Cpu whole;  // by work that holds it, both ways
  };
  struct NodeState {
    SimTime ready = 0;
    std::uint32_t open = 0;
  };
  struct Freed {
    std::uint32_t rank = 0, node = 0;
    SimTime ready = 0;
  };
  // A kernel that communication may slow.
  struct Running {
    std::uint32_t node = 0, version = 0;
    SimTime start = 0, time = 0, elapsed = 0;  // the position holds at `time`
    interference::Class counted = 0;
  };
  // What a rank begins at time 0, as far as nothing else is queued in between.
  struct FirstEvents {
    std::uint32_t rank = 0;
    std::uint64_t order = 0;  // of the next
    std::size_t begin = 0;    // the next in first_nodes_, up to the next rank's
  };
  // A stream that is not in order of issue.
  struct Queue {
    bool busy = false;
    std::vector<Event> waiting;
  };
  struct Rank {
    // What every operation touches stands together.
    const FlatProgram* flat = nullptr;
    std::size_t first = 0;  // of its node states
    std::uint64_t hash = 0;
    SimTime* ends = nullptr;        // by iteration
    std::uint32_t* left = nullptr;  // nodes, by iteration
    Held held;
    const RankProgram* program = nullptr;
    std::uint8_t in_flight[2] = {0, 0};  // by class bit
    interference::Class beside = 0;
    std::vector<Running> running;
    std::vector<std::pair<std::uint32_t, Queue>> queues;  // by stream
    Account account;
    Breakdown before{}, parts{};
  };
  struct GroupState {
    std::vector<std::uint32_t> next;  // collectives so far, by member
    std::deque<std::uint32_t> open;   // meetings that are not complete
    std::uint32_t base = 0;           // number of the first of them
    std::uint16_t shape = 0;
    bool in_domain = false;  // all members share an NVLink domain
  };

  // machine.cc
  const Node& node_of(std::uint32_t rank, std::uint32_t node) const {
    return ranks_[rank].flat->node(node);
  }
  NodeState& state(std::uint32_t rank, std::uint32_t node) {
    return states_[ranks_[rank].first + node];
  }
  const graph::Op& op_of(const Node& n) const { return graph_.blocks[n.block].ops[n.op]; }
  const graph::Comm& comm_of(const Node& n) const {
    return graph_.blocks[n.block].comms[op_of(n).index];
  }
  const graph::Binding& binding(std::uint32_t rank) const { return graph_.bindings[rank]; }
  std::int64_t AmountOf(std::uint32_t rank, const Node& n) const {
    return n.amount.slot < 0 ? n.amount.value : graph_.number(binding(rank), n.amount);
  }
  const OpCost& CostOf(std::uint32_t rank, const Node& n) const {
    const RankProgram& program = *ranks_[rank].program;
    return (*program.costs)[program.flat->instance(n).number]->ops[n.op];
  }
  Cpu& cpu(std::uint32_t rank, std::uint16_t number) { return cpus_[rank * cpus_each_ + number]; }
  Nic& nic(std::uint32_t rank, std::uint16_t number) {
    return nics_[HostOf(rank) * nics_each_ + number];
  }
  // Joint endpoints: the host that shares its interfaces among its ranks.
  std::size_t HostOf(std::uint32_t rank) const {
    return hosts_ranks_ == 1 ? rank : rank / hosts_ranks_;
  }
  bool Near(std::uint32_t a, std::uint32_t b) const {
    return hosts_ranks_ > 1 && HostOf(a) == HostOf(b);
  }
  Event Make(Step step, std::uint32_t rank, std::uint32_t node, std::uint32_t a = 0,
             std::uint32_t b = 0) {
    return {0, (order_++ << 3) | static_cast<std::uint64_t>(step), node, rank, a, b};
  }
  void PostRoots();
  Event NextEvent();
  void Push(Event event, SimTime time);
  SimTime Since(const Event& event) const;
  bool Before(const Event& x, const Event& y) const {
    return Turn{Since(x), x.order()} < Turn{Since(y), y.order()};
  }
  bool TakeCpu(const Event& event, Cpu* c);
  void LeaveQueue(const Event& event, Cpu* c, SimTime free);
  void Started(std::uint32_t rank, std::uint32_t node, SimTime time) {
    Release(rank, node, time, true);
  }
  void Finish(std::uint32_t rank, std::uint32_t node, SimTime start, SimTime end);
  void Release(std::uint32_t rank, std::uint32_t node, SimTime time, bool start);
  void PostFreed();
  void FetchAhead(const Freed& f, const Node& n) const;
  void PostOne(const Freed& f, bool last);
  void Handle(const Event& event);
  void Begin(const Event& event);
  void BeginWork(const Event& event, const Node& n);
  bool TakeHeld(Event event, const Node& n, SimTime time);
  void RunKernel(std::uint32_t rank, std::uint32_t node, SimTime now);
  void EndKernel(const Event& event);
  void ChangeClass(std::uint32_t rank, SimTime now, interference::Class bits, int delta);
  bool IsSlowed(const Node& n) const { return slowed_ && n.kind == NodeKind::kWork && !n.timed; }
  void Worked(std::uint32_t rank, std::uint32_t node, SimTime start, SimTime end);
  SimTime DurationOf(std::uint32_t rank, const Node& n);
  bool EnterStream(const Event& event, const Node& n);
  void LeaveStream(std::uint32_t rank, const Node& n, SimTime now);
  void Emit(std::uint32_t rank, const Node& n, SimTime start, SimTime end, SimTime waited,
            std::int64_t bytes, std::string_view detail);
  void CoverKernel(std::uint32_t rank, const Node& n, SimTime start, SimTime end, SimTime alone);

  // meetings.cc
  void MakeGroups();
  std::uint32_t PeerOf(std::uint32_t rank, const Node& n) const {
    return peers_.Of(rank, comm_of(n));
  }
  void FailNoPeer(std::uint32_t rank, std::uint32_t node);
  std::uint16_t PairShape(std::uint32_t a, std::uint32_t b);
  std::uint32_t NewMeeting(std::uint32_t rank, const graph::Comm& comm, std::int64_t bytes,
                           std::uint16_t shape, std::uint16_t group_shape);
  void PostCollective(std::uint32_t rank, std::uint32_t node, const Node& n, SimTime now);
  std::uint32_t NewPair(std::uint32_t rank, const Node& n, std::uint32_t from, std::uint32_t to);
  void JoinPair(std::uint32_t id, std::uint32_t member, std::uint32_t node, SimTime now);
  void CheckPair(std::uint32_t id, std::uint32_t rank, const Node& n);
  void PostNccl(const Event& event, const Node& n, std::uint32_t peer);
  void PostSend(const Event& event, const Node& n);
  void PostReceive(const Event& event, const Node& n);
  void Join(std::uint32_t id, std::uint32_t member, SimTime now);
  void BeginWhoCan(std::uint32_t id, std::uint32_t member, SimTime now);
  void BeginMember(std::uint32_t id, std::uint32_t member, SimTime now);
  void BeginAccount(std::uint32_t id, std::uint32_t member, SimTime now);
  void Slow(std::uint32_t id, std::uint32_t member, SimTime now, int delta);
  std::size_t RoleOf(const Meeting& meeting, std::uint32_t member) const;
  bool Measured(const graph::Comm& comm) const {
    return comm.measured.value >= 0 && in_.options->measured_communication;
  }
  // REQUIRES: Measured(comm).
  SimTime MeasuredTime(std::uint32_t rank, const graph::Comm& comm) const {
    return std::min<SimTime>(graph_.number(binding(rank), comm.measured), kMaxDuration);
  }
  void RunMeasured(std::uint32_t id, SimTime now);
  void EndMeeting(const Transport::Ended& ended, SimTime now);
  void EndMember(std::uint32_t id, std::uint32_t member, SimTime now);
  graph::GroupSlot RoleOf(const graph::Comm& comm, std::uint32_t rank) const;
  void PostRaw(std::uint32_t rank, std::uint32_t node, const Node& n, SimTime now);
  std::uint32_t NewRaw(std::uint32_t rank, std::uint32_t node, std::uint32_t to, std::int64_t size,
                       SimTime now);
  void StartRaw(std::uint32_t id, SimTime now);
  void EndRaw(std::uint32_t id, SimTime now);
  void ArriveRaw(const Event& event);
  void EndReceive(std::uint32_t rank, std::uint32_t node, std::int64_t bytes, SimTime end);
  void TakeInRaw(const Event& event);
  // A receive takes a message of `bytes`, all of it, also where it asked for fewer.
  void CheckLength(std::uint32_t rank, std::uint32_t receive, std::int64_t bytes) {
    if (AmountOf(rank, node_of(rank, receive)) >= bytes) return;
    if (truncated_++ == 0) first_truncated_ = {rank, receive};
  }
  bool eager(std::int64_t bytes) const { return bytes <= in_.loggops.S; }

  // joint.cc
  void JointSend(const Event& event, const Node& n);
  void JointReceive(const Event& event, const Node& n);
  void JointArrive(const Event& event);
  void JointTakeIn(const Event& event);
  void JointCame(const Event& event, const Node& n, SimTime ready);
  bool LineUp(const Event& event, const Node& n, Cpu* c);
  void LeaveLine(const Event& event, const Node& n, Cpu* c, SimTime free);
  void JointMeet(std::uint32_t rank, std::uint32_t receive, std::uint32_t source,
                 std::uint32_t send, SimTime now, SimTime ready);

  // near.cc
  void NearSend(const Event& event, const Node& n, std::uint32_t to);
  void NearArrive(const Event& event, const Node& n);
  void NearTakeIn(const Event& event);
  SimTime Copy(std::uint32_t rank, std::int64_t size, SimTime start);

  // report.cc
  std::string Describe(std::uint32_t rank, std::uint32_t number) const;
  std::string NeverPosted(const Matching::Left& left) const;
  Status Stuck() const;
  void Fail(Status status) {
    if (error_.ok()) error_ = std::move(status);
  }

  const MachineInputs in_;
  const graph::Graph& graph_;
  Transport* const transport_;
  bool slowed_ = false;  // communication may slow kernels
  double host_scale_ = 1;
  SimTime launch_ = 0;
  std::vector<Rank> ranks_;
  std::vector<SimTime> ends_;  // of all ranks and iterations
  std::vector<std::uint32_t> lefts_;
  SimTime now_ = 0;
  std::vector<NodeState, HugePages<NodeState>> states_;
  std::size_t cpus_each_ = 0, nics_each_ = 0;
  std::uint32_t hosts_ranks_ = 1;     // joint endpoints: ranks of a host
  std::vector<SimTime> memory_free_;  // by host
  std::vector<Cpu> cpus_;
  std::vector<Nic> nics_;
  const Peers peers_;
  Matching matching_;
  std::vector<GroupState> groups_;
  std::vector<Meeting> meetings_;
  std::vector<std::uint32_t> free_meetings_;
  std::vector<Transport::Ended> ended_;
  std::vector<Freed> freed_;
  des::EventQueue<Event> queue_;
  std::vector<FirstEvents> first_;  // by rank that has any
  std::vector<std::uint32_t> first_nodes_;
  std::size_t first_rank_ = 0;
  bool starting_ = false, stops_ = false;
  std::uint64_t order_ = 0, left_ = 0, events_ = 0;
  std::uint64_t messages_ = 0, unexpected_ = 0, truncated_ = 0;
  std::pair<std::uint32_t, std::uint32_t> first_truncated_;
  std::int64_t bytes_ = 0;
  bool too_long_ = false;
  Status error_;
};

}  // namespace orrery::engine::general
