// The machine of services.h. Names and order of events are those of general/machine.h, whose
// comments say why.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "orrery/des/event_queue.h"
#include "orrery/engine/general/account.h"
#include "orrery/engine/message_paths.h"
#include "orrery/engine/services/services.h"

namespace orrery::engine::services {

class Machine {
 public:
  Machine(const Inputs& inputs, const graph::Requests& requests, const graph::Services& services,
          network::Network* network, Sink* sink);

  Status Run();
  // After Run.
  void Fill(Record* record);

 private:
  enum class Step : std::uint8_t {
    kArrive,   // a request's time has come; the next behind it is known then
    kBegin,    // a node begins
    kPost,     // a message leaves its sender's processor
    kMessage,  // a message stands before its receiver
    kTakeIn,   // the receive has its message
  };
  struct Event {
    SimTime time = 0;
    std::uint64_t key = 0;   // order of its creation, and the step in the low 3 bits
    SimTime since = 0;       // when it began to wait
    std::uint32_t live = 0;  // kArrive: the request
    std::uint32_t node = 0;  // kMessage: the send
    Step step() const { return static_cast<Step>(key & 7); }
    std::uint64_t order() const { return key >> 3; }
    friend bool operator<(const Event& x, const Event& y) { return x.key < y.key; }
  };
  struct Turn {
    SimTime since = kNever;
    std::uint64_t order = ~std::uint64_t{0};
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  struct Cpu {
    SimTime free = 0;
    Turn next;                   // of the first that waits: it stands in the queue
    std::vector<Event> waiting;  // the others, a heap
  };
  struct Host {
    Cpu service, stack;
    general::Account account;
    SimTime calc = 0, send = 0, receive = 0, end = 0;
    std::uint64_t hash = 0;
    std::uint32_t ops = 0;  // of its program, so far
    SimTime at = 0;         // graph::DelayBefore
  };
  enum class Receive : std::uint8_t { kNotPosted, kPosted, kCame, kHeldBack };
  struct NodeState {
    SimTime ready = 0;  // of a receive that is posted: since when
    SimTime came = 0;   // of a receive's message that came first: when it has been taken in
    std::uint32_t op = 0;
    std::uint32_t open = 0;
    std::uint32_t flight = 0;  // of a send; of a receive whose message is held back
    Receive receive = Receive::kNotPosted;
  };
  // A shape as the machine reads it.
  struct Shape {
    std::vector<std::vector<std::uint32_t>> edges;  // to nodes that a node leads to
    std::vector<std::uint32_t> begins, roots;       // roots: receives that wait for nothing
    std::vector<NodeState> fresh;
  };
  // A request under way.
  struct Live {
    std::uint32_t request = 0;
    std::uint32_t left = 0;  // nodes
    const graph::Shape::Node* steps = nullptr;
    const Shape* shape = nullptr;
    const std::uint32_t* hosts = nullptr;
    std::vector<NodeState> nodes;
  };
  struct Flight {
    std::uint32_t live = 0, node = 0;  // the send
    SimTime start = 0;
  };
  struct Freed {
    std::uint32_t live = 0, node = 0;
  };

  static const graph::Shape::Node& node_of(const Live& l, std::uint32_t node) {
    return l.steps[node];
  }
  static std::uint32_t rank_of(const Live& l, std::uint32_t node) {
    return l.hosts[node_of(l, node).host];
  }
  Host& host_of(const Live& l, std::uint32_t node) { return hosts_[rank_of(l, node)]; }
  Event Make(Step step, std::uint32_t live, std::uint32_t node) {
    return {0, (order_++ << 3) | static_cast<std::uint64_t>(step), 0, live, node};
  }
  void MakeShapes();
  void MakeLists();
  void AddTimes();
  void Push(Event event, SimTime time) {
    event.time = time;
    if (time > kMaxDuration) {
      too_long_ = true;
    } else {
      queue_.Push(event);
    }
  }
  bool TakeCpu(const Event& event, Cpu* c);
  void LeaveQueue(const Event& event, Cpu* c, SimTime free);
  std::uint32_t LiveOf(std::uint32_t request);
  std::uint32_t NewLive(std::uint32_t request);
  void StartList(std::uint32_t first, SimTime now);
  void PushArrival(std::uint32_t request, SimTime now, std::uint64_t order);
  void Arrive(const Event& event);
  void Count(std::uint32_t rank, std::uint32_t op, SimTime start, SimTime end);
  void Finish(std::uint32_t live, std::uint32_t node, SimTime start, SimTime end);
  void Follow(std::uint32_t request, SimTime end);
  void PostFreed(SimTime now);
  void PostOne(Freed f, SimTime now, bool last);
  void Next(const Event& event, SimTime time, SimTime now);
  void Handle(const Event& event);
  void Begin(const Event& event);
  void Send(const Event& event);
  void Work(const Event& event);
  void PostReceive(const Event& event);
  void Post(const Event& event);
  void Start(std::uint32_t flight, SimTime now);
  void Land(std::uint32_t flight, SimTime now, bool last);
  void Message(const Event& event);
  void EndReceive(std::uint32_t live, std::uint32_t node, SimTime end);
  void TakeIn(const Event& event);
  SimTime HeldFor(std::int64_t bytes) const;
  bool eager(std::int64_t bytes) const { return bytes <= loggops_.S; }

  const Inputs& inputs_;
  const graph::Requests& requests_;
  const graph::Services& services_;
  network::Network& network_;
  Sink* const sink_;
  const network::LogGops loggops_;
  MessagePaths paths_;
  std::vector<Shape> shapes_;
  std::vector<Host> hosts_;  // by rank
  // Requests that begin by their time, each client's (by rank) or each mount's, and those that
  // begin behind another: lists in the order of requests.
  static constexpr std::uint32_t kNone = graph::Request::kNone;
  std::vector<std::uint32_t> next_, first_behind_;  // by request
  std::vector<std::uint32_t> first_of_;             // by rank
  std::vector<std::uint32_t> live_of_;              // by request, of those made so far
  std::vector<Live> live_;
  std::vector<std::uint32_t> free_live_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_flights_;
  std::vector<Freed> freed_;
  std::vector<network::Completion> done_;
  des::EventQueue<Event> queue_;
  std::uint64_t order_ = 0, events_ = 0, messages_ = 0, unexpected_ = 0;
  std::int64_t bytes_ = 0;
  bool works_ = false;  // anything takes time that is given
  bool too_long_ = false;
};

}  // namespace orrery::engine::services
