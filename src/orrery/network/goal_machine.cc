#include "orrery/network/goal_machine.h"

#include <algorithm>

#include "orrery/base/int128.h"
#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/des/event_queue.h"
#include "orrery/network/goal_matching.h"

namespace orrery::network {
namespace {

using formats::GoalSchedule;
using Kind = GoalSchedule::Kind;

constexpr std::uint64_t kNobody = ~std::uint64_t{0};

class Machine {
 public:
  Machine(const GoalSchedule& schedule, const LogGops& parameters)
      : s_(schedule),
        p_(parameters),
        cpus_(static_cast<std::size_t>(schedule.cpus)),
        nics_(static_cast<std::size_t>(schedule.nics)),
        matching_(schedule),
        cpu_(schedule.ranks() * cpus_),
        nic_(schedule.ranks() * nics_) {
    run_.ranks.resize(s_.ranks());
    open_.reserve(s_.operations());
    for (std::size_t op = 0; op < s_.operations(); ++op) open_.push_back(s_.ops[op].open);
    state_.assign(s_.operations(), State::kWaits);
    left_ = s_.operations();
  }

  Result<GoalRun> Run() {
    for (std::uint32_t rank = 0; rank < s_.ranks(); ++rank) {
      for (std::uint32_t op = s_.first_op[rank]; op < s_.first_op[rank + 1]; ++op) {
        if (open_[op] == 0) freed_.push_back({rank, op, 0});
      }
      PostFreed();
    }
    while (!events_.empty() && !too_long_) {
      const Event event = events_.Top();
      events_.Pop();
      Handle(event);
      PostFreed();
    }
    if (too_long_) {
      return Infeasible("the schedule runs longer than {}; are sizes or G in the right unit?",
                        HumanTime(kMaxDuration));
    }
    GoalMatching::Left left;
    if (left_ > 0 || matching_.FirstLeft(&left)) return Stuck();
    for (std::size_t rank = 0; rank < s_.ranks(); ++rank) {
      SimTime& finish = run_.ranks[rank].finish;
      for (std::size_t c = 0; c < cpus_; ++c) {
        finish = std::max(finish, cpu_[rank * cpus_ + c].free);
      }
      run_.finish = std::max(run_.finish, finish);
    }
    return std::move(run_);
  }

 private:
  enum class State : std::uint8_t { kWaits, kPosted, kDone };
  enum class Step : std::uint8_t {
    kOp,       // the operation begins
    kMessage,  // the send's message stands before its receiver
    kTakeIn    // the receive copies its message in (no bandwidth at the receiver)
  };
  struct Event {
    SimTime time = 0;
    std::uint64_t order = 0;  // of its creation; kept while it waits
    std::uint32_t op = 0;
    std::uint32_t rank = 0;  // of the operation
    std::uint32_t send = 0;  // kTakeIn: the message's
    std::uint32_t source = 0;
    Step step = Step::kOp;
    friend bool operator<(const Event& a, const Event& b) { return a.order < b.order; }
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return b < a; }
  };
  struct Cpu {
    SimTime free = 0;
    std::uint64_t next = kNobody;  // first of those that wait for it: it stands in the queue
    std::vector<Event> waiting;    // the others, a heap
  };
  struct Nic {
    SimTime send_free = 0, receive_free = 0;
  };
  struct Freed {
    std::uint32_t rank = 0, op = 0;
    SimTime ready = 0;
  };

  SimTime Bytes(std::int64_t size, std::int64_t rate_as) const {
    if (size <= 1 || rate_as == 0) return 0;
    const Uint128 as = static_cast<Uint128>(size - 1) * static_cast<Uint128>(rate_as);
    const Uint128 ps = (as + 999'999) / 1'000'000;
    return ps > static_cast<Uint128>(kMaxDuration) ? kMaxDuration : static_cast<SimTime>(ps);
  }
  Cpu& cpu(std::uint32_t rank, std::uint8_t number) { return cpu_[rank * cpus_ + number]; }
  Nic& nic(std::uint32_t rank, std::uint8_t number) { return nic_[rank * nics_ + number]; }

  void Push(Event event, SimTime time) {
    event.time = time;
    if (time > kMaxDuration) {
      too_long_ = true;
      return;
    }
    events_.Push(event);
  }

  // True if `event` may hold `c` now; else it waits. Of those that wait only the first stands in
  // the queue.
  bool TakeCpu(const Event& event, Cpu* c) {
    if (c->free <= event.time) return true;
    if (c->next == kNobody || c->next >= event.order) {
      c->next = event.order;
      Push(event, c->free);
    } else {
      c->waiting.push_back(event);
      std::push_heap(c->waiting.begin(), c->waiting.end(), Later());
    }
    return false;
  }
  // `event` waits for `c` no longer: it has it until `free`, or waits for a nic instead.
  void LeaveQueue(const Event& event, Cpu* c, SimTime free) {
    c->free = free;
    if (c->next != event.order) return;
    c->next = kNobody;
    if (c->waiting.empty()) return;
    std::pop_heap(c->waiting.begin(), c->waiting.end(), Later());
    const Event first = c->waiting.back();
    c->waiting.pop_back();
    c->next = first.order;
    Push(first, std::max(event.time, free));
  }

  void Finish(std::uint32_t rank, std::uint32_t op, SimTime time) {
    state_[op] = State::kDone;
    --left_;
    run_.ranks[rank].finish = std::max(run_.ranks[rank].finish, time);
    run_.fingerprint += HashCombine(op, static_cast<std::uint64_t>(time));
    if (time >= kMaxDuration) too_long_ = true;
    Release(rank, op, time, false);
  }
  void Release(std::uint32_t rank, std::uint32_t op, SimTime time, bool start) {
    for (const std::uint32_t edge : s_.edges_of(op)) {
      if (((edge & GoalSchedule::kStartEdge) != 0) != start) continue;
      const std::uint32_t to = s_.first_op[rank] + (edge & ~GoalSchedule::kStartEdge);
      if (ready_.size() <= to) ready_.resize(s_.operations(), 0);
      ready_[to] = std::max(ready_[to], time);
      if (--open_[to] == 0) freed_.push_back({rank, to, ready_[to]});
    }
  }

  void PostFreed() {
    if (freed_.size() > 1) {
      std::sort(freed_.begin(), freed_.end(), [&](const Freed& a, const Freed& b) {
        if (a.rank != b.rank) return a.rank < b.rank;
        const Kind x = s_.ops[a.op].kind, y = s_.ops[b.op].kind;
        return x != y ? x < y : a.op < b.op;
      });
    }
    for (const Freed& f : freed_) {
      const GoalSchedule::Op& op = s_.ops[f.op];
      SimTime time = std::max(f.ready, cpu(f.rank, op.cpu).free);
      if (op.kind == Kind::kSend) time = std::max(time, nic(f.rank, op.nic).send_free);
      Push({.order = order_++, .op = f.op, .rank = f.rank}, time);
    }
    freed_.clear();
  }

  void Handle(const Event& event) {
    ++run_.events;
    if (event.step == Step::kMessage) return Arrive(event);
    if (event.step == Step::kTakeIn) return TakeIn(event);
    switch (s_.ops[event.op].kind) {
      case Kind::kSend:
        return Send(event);
      case Kind::kRecv:
        return Receive(event);
      case Kind::kCalc:
        return Calc(event);
    }
  }

  void Calc(const Event& event) {
    const GoalSchedule::Op& op = s_.ops[event.op];
    Cpu& c = cpu(event.rank, op.cpu);
    if (!TakeCpu(event, &c)) return;
    // Sizes of a schedule are bounded, so that this stays within the type.
    const SimTime time = std::min(op.size, kMaxDuration / kNanosecond) * kNanosecond;
    run_.ranks[event.rank].calc += time;
    Release(event.rank, event.op, event.time, true);
    LeaveQueue(event, &c, event.time + time);
    Finish(event.rank, event.op, event.time + time);
  }

  void Send(const Event& event) {
    const GoalSchedule::Op& op = s_.ops[event.op];
    Cpu& c = cpu(event.rank, op.cpu);
    if (!TakeCpu(event, &c)) return;
    Nic& n = nic(event.rank, op.nic);
    if (n.send_free > event.time) {
      LeaveQueue(event, &c, c.free);
      return Push(event, n.send_free);
    }
    const SimTime gap = Bytes(op.size, p_.G_as), copy = Bytes(op.size, p_.O_as);
    const SimTime held = p_.o + copy;
    run_.ranks[event.rank].send += held;
    ++run_.messages;
    run_.bytes += op.size;
    n.send_free = event.time + p_.g + gap;
    state_[event.op] = State::kPosted;
    Release(event.rank, event.op, event.time, true);
    Event message = event;
    message.order = order_++;
    message.step = Step::kMessage;
    const SimTime whole = p_.receiver_bandwidth ? 0 : copy + gap;
    Push(message, event.time + p_.o + p_.L + whole);
    LeaveQueue(event, &c, event.time + held);
    if (op.size <= p_.S) Finish(event.rank, event.op, event.time + p_.o);
  }

  void Receive(const Event& event) {
    const GoalSchedule::Op& op = s_.ops[event.op];
    state_[event.op] = State::kPosted;
    Release(event.rank, event.op, event.time, true);
    GoalMatching::Item message;
    const GoalMatching::Item own{.op = event.op, .source = op.peer, .tag = op.tag};
    if (!matching_.Receive(event.rank, own, &message)) return;
    ++run_.unexpected;
    Meet(event.rank, event.op, message.source, message.op, event.time, message.ready);
  }

  // The message of `send` and `receive` have met at `now`; it is taken in at `ready`.
  void Meet(std::uint32_t rank, std::uint32_t receive, std::uint32_t source, std::uint32_t send,
            SimTime now, SimTime ready) {
    const bool late = s_.ops[send].size > p_.S;
    if (s_.ops[receive].size < s_.ops[send].size) ++run_.truncated;
    if (!p_.receiver_bandwidth) {
      Push({.order = order_++,
            .op = receive,
            .rank = rank,
            .send = send,
            .source = source,
            .step = Step::kTakeIn},
           std::max(now, ready));
      return;
    }
    if (late) Finish(source, send, now);
    Finish(rank, receive, std::max(now, ready));
  }

  void Arrive(const Event& event) {
    const GoalSchedule::Op& op = s_.ops[event.op];
    const std::uint32_t to = op.peer;
    Nic& n = nic(to, op.nic);
    SimTime ready = event.time + p_.g;
    if (p_.receiver_bandwidth) {
      Cpu& c = cpu(to, op.cpu);
      if (!TakeCpu(event, &c)) return;
      if (n.receive_free > event.time) {
        LeaveQueue(event, &c, c.free);
        return Push(event, n.receive_free);
      }
      const SimTime gap = Bytes(op.size, p_.G_as);
      const SimTime held = p_.o + std::max(Bytes(op.size, p_.O_as), gap);
      run_.ranks[to].receive += held;
      n.receive_free = event.time + p_.g + gap;
      ready = event.time + held;
      LeaveQueue(event, &c, ready);
    } else {
      if (n.receive_free > event.time) return Push(event, n.receive_free);
      n.receive_free = ready;
    }
    GoalMatching::Item receive;
    const GoalMatching::Item own{
        .ready = ready, .op = event.op, .source = event.rank, .tag = op.tag};
    if (!matching_.Message(to, own, &receive)) return;
    Meet(to, receive.op, event.rank, event.op, event.time, ready);
  }

  void TakeIn(const Event& event) {
    Cpu& c = cpu(event.rank, s_.ops[event.op].cpu);
    if (!TakeCpu(event, &c)) return;
    const SimTime held = p_.o + Bytes(s_.ops[event.send].size, p_.O_as);
    run_.ranks[event.rank].receive += held;
    LeaveQueue(event, &c, event.time + held);
    if (s_.ops[event.send].size > p_.S) Finish(event.source, event.send, event.time + held);
    Finish(event.rank, event.op, event.time + held);
  }

  std::string Describe(std::uint32_t op) const {
    const GoalSchedule::Op& o = s_.ops[op];
    if (o.kind == Kind::kCalc) return fmt::format("calc {} ({})", o.size, s_.Place(op));
    const bool receive = o.kind == Kind::kRecv;
    const auto any = [](std::uint32_t value) {
      return value == GoalSchedule::kAny ? std::string("any") : fmt::format("{}", value);
    };
    return fmt::format("{} {}b {} {} tag {} ({})", Name(o.kind), o.size, receive ? "from" : "to",
                       any(o.peer), any(o.tag), s_.Place(op));
  }

  Status Stuck() const {
    GoalMatching::Left left;
    if (!matching_.FirstLeft(&left)) {
      return Infeasible("{} operations never become ready", left_);
    }
    std::size_t waits = 0;
    for (const State state : state_) waits += state == State::kWaits ? 1 : 0;
    const std::string others =
        waits > 0 ? fmt::format("; {} operations wait behind what never ends", waits) : "";
    if (left.message) {
      return Infeasible("rank {} never receives what rank {} sends: {}{}", left.rank,
                        left.item.source, Describe(left.item.op), others);
    }
    return Infeasible("deadlock: rank {} waits for ever at {}; no message that fits comes{}",
                      left.rank, Describe(left.item.op), others);
  }

  const GoalSchedule& s_;
  const LogGops& p_;
  const std::size_t cpus_, nics_;
  GoalMatching matching_;
  std::vector<Cpu> cpu_;
  std::vector<Nic> nic_;
  std::vector<std::uint32_t> open_;
  std::vector<SimTime> ready_;
  std::vector<State> state_;
  std::vector<Freed> freed_;
  des::EventQueue<Event> events_;
  std::uint64_t order_ = 0;
  std::size_t left_ = 0;
  bool too_long_ = false;
  GoalRun run_;
};

}  // namespace

Result<GoalRun> RunGoal(const formats::GoalSchedule& schedule, const LogGops& parameters) {
  return Machine(schedule, parameters).Run();
}

}  // namespace orrery::network
