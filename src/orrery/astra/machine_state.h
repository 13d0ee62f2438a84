// Internal to the machine: its state, and the parts of its code that several files share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "orrery/astra/greedy.h"
#include "orrery/astra/logical.h"
#include "orrery/astra/machine.h"
#include "orrery/astra/mailbox.h"
#include "orrery/astra/memory_bus.h"
#include "orrery/astra/network.h"
#include "orrery/astra/time_queue.h"

namespace orrery::astra {

inline constexpr std::uint32_t kNobody = 0xFFFFFFFFu;
inline constexpr Tick kNever = ~Tick{0};

// Traces' tags lie below kCollectiveTag, those of collectives from there on; a hand-shake has the
// tag of its message and kHandShakeTag.
inline constexpr std::uint32_t kCollectiveTag = 500'000'000;
inline constexpr std::uint32_t kHandShakeTag = 1'000'000'000;

// A place in a pool whose free places are known.
template <class T>
std::uint32_t TakePlace(std::vector<T>* pool, std::vector<std::uint32_t>* free) {
  if (free->empty()) {
    pool->emplace_back();
    return static_cast<std::uint32_t>(pool->size() - 1);
  }
  const std::uint32_t place = free->back();
  free->pop_back();
  return place;
}

class Machine {
 public:
  Machine(const MachineInputs& in, bool fold);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  Status Run();
  bool tied() const { return tied_; }
  MachineResult Finished() const;

 private:
  // A message on an aware network.
  struct Message {
    std::uint32_t box = 0, to = 0;
    std::uint32_t device = 0;               // where it is
    std::uint32_t behind = Network::kNone;  // who waits behind it for its link
    Handler sent;
  };
  struct Rendezvous {
    bool send = false;
    std::uint32_t rank = 0, peer = 0, tag = 0, offset = 0;
    std::uint64_t bytes = 0;
    Handler handler;
  };
  struct Event {
    enum class Kind : std::uint8_t { kRank, kArrive, kReceived, kHop, kLinkFree };
    Kind kind = Kind::kRank;
    Handler::Kind hears = Handler::Kind::kNone;  // kArrive: the sender; kReceived
    std::uint32_t a = 0;                         // rank, box, message or link
    std::uint32_t hears_a = 0, hears_b = 0;
    Handler handler() const { return {hears, hears_a, hears_b}; }
  };
  // What a rank has scheduled for itself.
  struct Local {
    enum class Kind : std::uint8_t { kHandOver, kNode, kMemory, kBroadcast, kCustom, kBus };
    Kind kind = Kind::kNode;
    bool reduces = false;  // kHandOver: passes over memory are still to come
    std::uint32_t a = 0;   // stream, node, collective or the bus's end
    std::uint32_t b = 0;   // kCustom: node; kBus: step
    std::uint64_t bytes = 0;
  };
  struct MoreLocal {
    Local local;
    std::uint32_t next = kNobody;
  };
  struct Phase {
    std::uint8_t dimension = 0;
    Collective type = Collective::kAllReduce;
    Implementation implementation;
    Ring ring;
    std::uint64_t bytes = 0, after = 0;
    std::int32_t queue = 0;
    bool clockwise = true;
    bool root_last = true;  // which of the two trees
    const Program* custom = nullptr;
    std::uint32_t place = 0;  // of the rank in the ring
  };
  enum class TreeState : std::uint8_t {
    kBegin,
    kTwoChildren,
    kOneChild,
    kToParent,
    kFromParent,
    kToChildren,
    kEnd,
  };
  // Halving-doubling's partner and message, now and at the next step.
  struct Halving {
    std::uint32_t distance = 1;
    double factor = 2;
    std::uint64_t bytes = 0;
  };
  // A phase under way. What every message of a ring touches stands first, in one line of the cache.
  struct alignas(64) Work {
    std::int64_t steps = 0;        // messages still to send
    std::int64_t later_left = 0;   // inserts of this round with reduction
    std::uint64_t bytes = 0;       // of a message
    std::uint32_t first_left = 0;  // inserts of this round without
    std::uint32_t packets = 0;     // handed over or on the way to be, not sent
    std::uint32_t free = 0;        // handed over
    std::uint32_t parallel = 1, received = 0;
    std::uint32_t out = kNobody, in = kNobody;  // the boxes of a ring's neighbours
    std::uint32_t rank = 0, size = 1;           // of the ring
    Algorithm algorithm = Algorithm::kRing;
    Collective type = Collective::kAllReduce;
    bool reducing = false;  // an all-reduce's first half
    bool fast = false;
    // Others.
    std::uint32_t send_place = 0, receive_place = 0;  // direct: partners of the next message
    Halving insert, send;
    TreePlace tree;
    TreeState state = TreeState::kBegin;
    bool first_reduced = false;
  };
  struct Stream {
    Work work;
    std::uint32_t rank = 0, collective = 0, tag = 0;
    std::int64_t priority = 0;
    std::vector<Phase> phases;
    std::size_t next = 0;  // phase; the one under way is next - 1
    std::int32_t queue = -1;
    bool initialized = false;
    std::vector<std::uint32_t> custom_open;
    std::uint32_t custom_running = 0, custom_left = 0;
    const Phase& phase() const { return phases[next - 1]; }
  };
  struct Queue {
    std::vector<std::uint32_t> streams;  // those that run stand in front
    std::size_t running = 0;
    // Folded: what came and went at the last instant at which something did.
    Tick came_at = kNever, went_at = kNever;
    bool came_new = false;  // of a collective that began
    std::uint32_t came = kNobody;
    std::int64_t started = 0;  // the lowest priority that went's place was given to
    bool gave = false;
  };
  struct Level {
    int next = 0, first = 0, last = 0;
  };
  struct CollectiveRun {
    std::uint32_t rank = 0, node = 0;
    std::int64_t streams = 0, finished = 0;
  };
  using MinHeap = std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>>;
  // What a rank does at one instant: nearly always one thing.
  struct Timed {
    Tick time = kNever;
    Local first;
    std::uint32_t more = kNobody, last = kNobody;  // of more_locals_
  };
  // What a rank has scheduled: nearly always for one instant.
  struct Pending {
    Timed next;  // kNever: nothing
    std::vector<Timed> others;
  };
  struct Rank {
    const Program* program = nullptr;
    std::vector<std::uint32_t> open;
    std::array<MinHeap, kUnits> ready;
    std::array<std::uint32_t, kUnits> running{};
    std::uint32_t running_memory = 0, running_communication = 0;
    std::size_t left = 0, ready_count = 0;
    bool finished = false;
    std::vector<Queue> queues;
    std::vector<Level> levels;
    std::int64_t priority = 0;
    std::uint32_t streams = 0;  // so far, of all ranks
    std::map<std::uint32_t, std::uint32_t> group_streams;
    std::uint32_t tree_turn[kCollectives][8] = {};
    int round_robin = 0;
    RankTimes times;
    Tick counted = 0;  // until when `times` counts
    Tick node_ended = kNever;
    std::vector<Tick> began;  // by node, of a watched rank
  };

  // machine.cc: events and messages
  Tick now() const { return queue_.now(); }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  MemoryBus::Hooks BusHooks(std::uint32_t rank);
  void Schedule(std::uint32_t rank, Tick delay, const Local& local);
  static Timed* TimedAt(Pending* pending, Tick time);
  void RunRank(std::uint32_t rank);
  void RunLocal(std::uint32_t rank, const Local& local);
  void Hear(const Handler& handler);
  void Arrive(std::uint32_t box, const Handler& sent);
  void Transfer(std::uint32_t box, const Handler& sent);
  void Post(bool met, const Handler& handler);
  void SendOn(std::uint32_t message);
  void TakeLink(std::uint32_t number, std::uint32_t message);
  void Transmit(std::uint32_t number, std::uint32_t message);
  void FreeLink(std::uint32_t number);
  void Send(std::uint32_t rank, std::uint32_t to, std::uint64_t bytes, std::uint32_t tag,
            std::uint32_t offset, const Handler& handler);
  void Receive(std::uint32_t rank, std::uint32_t from, std::uint64_t bytes, std::uint32_t tag,
               std::uint32_t offset, const Handler& handler);
  void SendNow(std::uint32_t rank, std::uint32_t to, std::uint64_t bytes, std::uint32_t tag,
               std::uint32_t offset, const Handler& handler);
  void ReceiveNow(std::uint32_t rank, std::uint32_t from, std::uint64_t bytes, std::uint32_t tag,
                  std::uint32_t offset, const Handler& handler);
  MailKey KeyOf(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, std::uint32_t tag,
                std::uint32_t offset) const {
    // Folded, what has one offset is alike: the rank's own message comes back to it.
    return fold_ ? MailKey{bytes, tag, offset, 0} : MailKey{bytes, tag, from, to};
  }

  // machine_nodes.cc: a rank's program
  void Start(std::uint32_t rank);
  void EndNode(std::uint32_t rank, std::uint32_t node);
  static void MakeReady(Rank* rank, const std::vector<std::uint32_t>& freed);
  void IssueReady(std::uint32_t rank);
  void Issue(std::uint32_t rank, std::uint32_t node);
  void BeginBroadcast(std::uint32_t rank, std::uint32_t node);
  void Release(std::uint32_t rank, std::uint32_t node, std::vector<std::uint32_t>* freed);
  void Count(Rank* rank) const;
  void Access(std::uint32_t rank, std::uint32_t node);
  void MemoryDone(std::uint32_t rank);
  std::string Stuck() const;

  // machine_collectives.cc: chunks and queues
  void BeginCollective(std::uint32_t rank, std::uint32_t node);
  struct Layout {  // a collective's logical dimensions
    std::vector<Implementation> implementations;
    std::vector<Ring> rings;
    bool world = true;
  };
  bool AddPhases(std::uint32_t rank, const Layout& layout, Collective of, std::uint64_t bytes,
                 const std::vector<int>& order, unsigned involved, std::vector<Phase>* phases);
  const Layout* LayoutOf(std::uint32_t rank, const Node& node);
  Phase MakePhase(std::uint32_t rank, const Layout& layout, Collective of, Collective type, int d,
                  std::uint64_t bytes, std::pair<int, bool> queue);
  std::pair<int, bool> NextQueue(Rank* rank, int level) const;
  std::pair<int, bool> FirstQueue(Rank* rank, int level) const;
  std::pair<int, bool> LastQueue(Rank* rank, int level) const;
  std::int64_t PriorityOf(Rank* rank, const Node& node) const;
  std::vector<int> OrderOf(std::uint32_t rank, const Node& node, const Layout& layout,
                           std::uint64_t wanted, std::uint64_t* left, std::uint64_t* chunk);
  void BeginCustom(std::uint32_t rank, std::uint32_t node, const std::string& prefix);
  void AddStream(std::uint32_t rank, std::uint32_t collective, const Node& node,
                 std::int64_t priority, std::vector<Phase> phases);
  void Proceed(std::uint32_t id);
  void EndCollective(std::uint32_t collective);
  void Insert(Queue* queue, std::uint32_t id);
  void StartWaiting(std::uint32_t rank, std::int32_t queue);
  void NoteCame(Queue* queue, std::uint32_t stream, bool fresh);
  void NoteWent(Queue* queue, std::uint32_t stream);
  void NoteGiven(Queue* queue, std::size_t first);

  // machine_algorithms.cc: phases
  void Init(std::uint32_t stream);
  void KeepBoxes(std::uint32_t stream);
  void DropBoxes(Work* work);
  void HandedOver(std::uint32_t stream);
  void Received(std::uint32_t stream);
  void InsertPacket(std::uint32_t stream);
  void SendNext(std::uint32_t stream);
  void EndIfDone(std::uint32_t stream);
  // A hand-over between an NPU and its memory: on the memory bus it has a direction, and may go
  // back before it is done.
  struct Way {
    bool to_memory = false, back = false;
  };
  void HandOver(std::uint32_t stream, std::uint64_t bytes, bool reduces, Way way);
  void EndHandOver(std::uint32_t rank, const Local& local);
  void TreeStep(std::uint32_t stream, bool received);
  void TreeSend(const Stream& s, std::int64_t place);
  void TreeReceive(std::uint32_t stream, std::int64_t place);
  void CustomIssue(std::uint32_t stream, std::uint32_t node);
  void CustomEnd(std::uint32_t stream, std::uint32_t node);
  static void Step(const Phase& phase, Halving* h);
  std::uint32_t Partner(const Stream& s, const Halving& h) const;

  const MachineInputs in_;
  const SystemConfig& system_;
  const bool fold_;
  const std::size_t npus_;
  Network network_;
  TimeQueue<Event> queue_;
  Mailbox mailbox_;
  std::vector<Rank> ranks_;
  std::vector<Pending> pending_;  // by rank
  std::vector<MoreLocal> more_locals_;
  std::vector<std::uint32_t> free_more_locals_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_messages_;
  std::vector<Stream> streams_;
  std::vector<std::uint32_t> free_streams_;
  std::vector<CollectiveRun> collectives_;
  std::vector<std::uint32_t> free_collectives_;
  std::vector<Rendezvous> rendezvous_;
  std::vector<std::uint32_t> free_rendezvous_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Layout> layouts_;  // by collective and group
  std::optional<GreedyScheduler> greedy_;
  Tick last_collective_ = 0;
  struct Controller {
    bool busy = false;
    std::deque<std::pair<std::uint32_t, std::uint32_t>> waiting;  // rank, node
  };
  std::vector<Controller> controllers_;
  std::vector<std::unique_ptr<MemoryBus>> buses_;  // by rank, with model-shared-bus
  std::vector<NodeTime> nodes_;
  std::uint64_t events_ = 0, sent_ = 0, bytes_ = 0;
  bool tied_ = false;
  Status status_;
};

}  // namespace orrery::astra
