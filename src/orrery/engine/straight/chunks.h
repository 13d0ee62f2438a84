// A collective's chunks, step by step: what its members' lanes wait for, send and give back.
//
// The rules are those of collective/lowering/lowering.h. An Owner keeps the lanes, and says
//   Lane& lane(ref)               where a lane stands
//   void EndLane(ref)             it has no further step
//   void GiveBack(credit)         a credit leaves for the wire's sender
// and runs the events: those that it does not know itself it hands to TakeChunk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "orrery/des/event_queue.h"
#include "orrery/engine/straight/wiring.h"

namespace orrery::engine {

// The last three are the main loop's alone.
enum class What : std::uint8_t {
  kCredit,
  kWorkDone,
  kSend,
  kLanes,
  kPost,
  kWake,
  kGather,
  kCourseEnd
};

struct Event {
  SimTime time = 0;
  std::uint32_t rank = 0;
  What what = What::kWake;
  std::uint64_t key = 0;   // a lane, a stream, a wire, a meet or a wake's version
  std::int64_t bytes = 0;  // kSend
  friend bool operator<(const Event& a, const Event& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.what != b.what) return a.what < b.what;
    if (a.key != b.key) return a.key < b.key;
    return a.bytes < b.bytes;
  }
};

struct Lane {
  const Bound* bound = nullptr;
  std::uint32_t member = 0;
  int number = 0;  // within the schedule
  std::uint64_t index = 0;
  collective::Step step;
};

struct Credit {
  SimTime time = 0;
  std::uint32_t wire = 0;
};

template <class Owner>
class Chunks {
 public:
  void AcceptCredit(const Credit& c) {
    queue_.Push({c.time, wiring_.wires[c.wire].from, What::kCredit, c.wire});
  }
  network::Network& network() { return *network_; }
  std::uint64_t events() const { return events_run_; }
  SimTime next_time() { return std::min(queue_.NextTime(), network_->next_time()); }

 protected:
  Chunks(Wiring* wiring, std::unique_ptr<network::Network> network)
      : wiring_(*wiring),
        network_(std::move(network)),
        shares_(network_->name() == "flow-chunks" || network_->name() == "packet" ||
                network_->name() == "external") {}

  // Processes everything before `end`.
  void RunEvents(SimTime end) {
    for (SimTime next = next_time(); next < end; next = next_time()) {
      if (network_->next_time() <= next) {
        // As far as nothing starts, so that a network can work ahead of its next event.
        TakeDeliveries(std::max(next, std::min({queue_.NextTime(), end - 1, kMaxDuration})));
      } else {
        const Event e = queue_.Top();
        queue_.Pop();
        now_ = e.time;
        ++events_run_;
        owner().Take(e);
      }
    }
  }

  void TakeChunk(const Event& e) {
    switch (e.what) {
      case What::kWorkDone:
        return EndStep(RefOf(e));
      case What::kSend:
        return Send(static_cast<std::uint32_t>(e.key), e.bytes);
      case What::kCredit: {
        Wire& w = wiring_.wires[e.key];
        ++w.credits;
        if (w.sender_waits.rank != kNobody) TryStep(std::exchange(w.sender_waits, LaneRef{}));
        return;
      }
      default:
        return TryStep(RefOf(e));
    }
  }

  Wiring& wiring_;
  std::unique_ptr<network::Network> network_;
  des::EventQueue<Event> queue_;
  SimTime now_ = 0;
  std::uint64_t events_run_ = 0;

 private:
  Owner& owner() { return static_cast<Owner&>(*this); }

  static LaneRef RefOf(const Event& e) {
    return {e.rank, static_cast<std::uint8_t>(e.key >> 32), static_cast<std::uint8_t>(e.key >> 16),
            static_cast<std::uint16_t>(e.key)};
  }

  void Send(std::uint32_t wire, std::int64_t bytes) {
    Wire& w = wiring_.wires[wire];
    const std::uint32_t pair = w.sent % w.queue_pairs;
    const network::Transfer t{
        .id = Depart(wire),
        .from = wiring_.device(w.from),
        .to = wiring_.device(w.to),
        .bytes = bytes,
        .creator = wiring_.creator(w.from),
        .salt = w.queue_pairs == 1 ? w.salt : w.salt + cluster::QueuePair(0, pair),
        .connection = network::ConnectionOfWire(wire, pair)};
    network_->Start(now_, {&t, 1});
  }

  // Starts the lane's next step if its data and its credit are there; else it waits for the first
  // that is missing.
  void TryStep(const LaneRef& ref) {
    Lane& lane = owner().lane(ref);
    if (lane.step.done) return owner().EndLane(ref);
    const auto wire_of = [&](std::int32_t connection) {
      return connection < 0
                 ? nullptr
                 : &wiring_.wires[lane.bound->wire[static_cast<std::size_t>(connection)]];
    };
    Wire* in = wire_of(lane.step.recv_connection);
    Wire* out = wire_of(lane.step.send_connection);
    if (in != nullptr && in->ready == 0) {
      in->receiver_waits = ref;
      return;
    }
    if (out != nullptr && out->credits == 0) {
      out->sender_waits = ref;
      return;
    }
    if (in != nullptr) --in->ready;
    if (out != nullptr) --out->credits;
    queue_.Push({now_ + lane.step.work, ref.rank, What::kWorkDone, ref.key()});
  }

  void EndStep(const LaneRef& ref) {
    Lane& lane = owner().lane(ref);
    const collective::Step step = lane.step;
    if (step.recv_connection >= 0) {
      const std::uint32_t id = lane.bound->wire[static_cast<std::size_t>(step.recv_connection)];
      owner().GiveBack({now_ + wiring_.wires[id].credit_latency, id});
    }
    if (step.send_connection >= 0) {
      const std::uint32_t id = lane.bound->wire[static_cast<std::size_t>(step.send_connection)];
      queue_.Push({now_ + step.post, ref.rank, What::kSend, id, step.bytes});
    }
    ++lane.index;
    lane.step = lane.bound->schedule->At(lane.member, lane.number, lane.index);
    TryStep(ref);
  }

  void TakeDeliveries(SimTime time) {
    deliveries_.clear();
    const SimTime reached = network_->AdvanceUntil(time, &deliveries_);
    if (deliveries_.empty()) return;
    now_ = reached;
    std::sort(deliveries_.begin(), deliveries_.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    for (const network::Completion& c : deliveries_) {
      ++events_run_;
      if (shares_) {
        Land(c.id);
      } else {
        ++wiring_.wires[c.id].landed;
        Receive(wiring_.wires[c.id]);
      }
    }
  }

  void Receive(Wire& w) {
    ++w.ready;
    if (w.receiver_waits.rank != kNobody) TryStep(std::exchange(w.receiver_waits, LaneRef{}));
  }

  // The number of a message in the network: its wire's where links are FIFOs; one of its own where
  // several messages of a wire share a link or its queue pairs take several paths.
  network::FlightId Depart(std::uint32_t wire) {
    const std::uint32_t number = wiring_.wires[wire].sent++;
    if (!shares_) return wire;
    if (free_.empty()) {
      free_.push_back(static_cast<network::FlightId>(flying_.size()));
      flying_.push_back({});
    }
    const network::FlightId id = free_.back();
    free_.pop_back();
    flying_[id] = {wire, number};
    return id;
  }

  // A short message may land before a longer one ahead of it, and is received after that.
  void Land(network::FlightId id) {
    early_.push_back(flying_[id]);
    free_.push_back(id);
    Wire& w = wiring_.wires[flying_[id].wire];
    const std::uint32_t wire = flying_[id].wire;
    for (;;) {
      const auto next = std::find_if(early_.begin(), early_.end(), [&](const Flying& f) {
        return f.wire == wire && f.number == w.landed;
      });
      if (next == early_.end()) return;
      early_.erase(next);
      ++w.landed;
      Receive(w);
    }
  }

  struct Flying {
    std::uint32_t wire = 0, number = 0;  // of the wire's messages
  };
  std::vector<network::Completion> deliveries_;
  const bool shares_;           // the network shares links and keeps no order
  std::vector<Flying> flying_;  // by flight
  std::vector<Flying> early_;   // landed before one ahead of them; few
  std::vector<network::FlightId> free_;
};

}  // namespace orrery::engine
