// The messages under way in a network that moves them one by one, and the clock that they share.
//
// `Message` has the members `transfer` and `sequence`; what else it knows is its network's
// business. A message has a number while it is under way; numbers are reused, and a message that
// gets one keeps what the last one left in its other members. Messages of one instant go by
// (creator, creator's sequence).
//
// Cost: a radix-heap push and pop an event; nothing is allocated once the slab has grown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/des/event_queue.h"
#include "orrery/network/network.h"

namespace orrery::network {

template <class Message>
class Messages {
 public:
  SimTime now() const { return now_; }
  SimTime next_time() const { return events_.NextTime(); }
  Message& operator[](std::uint32_t id) { return slab_[id]; }

  std::uint32_t Add(const Transfer& transfer, std::uint64_t sequence) {
    std::uint32_t id = static_cast<std::uint32_t>(slab_.size());
    if (free_.empty()) {
      slab_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    slab_[id].transfer = transfer;
    slab_[id].sequence = sequence;
    return id;
  }
  // The message comes up at `time`.
  void Push(SimTime time, std::uint32_t id) {
    const Message& m = slab_[id];
    events_.Push({time, m.sequence, m.transfer.creator, id});
  }
  // The message goes on in another partition.
  void Leave(const RemoteHop& hop, std::uint32_t id) {
    remote_.push_back(hop);
    free_.push_back(id);
  }

  // Numbers the transfers and calls begin(transfer, sequence) for each.
  template <class Begin>
  void Start(SimTime now, std::span<const Transfer> transfers, const Begin& begin) {
    ORRERY_CHECK(now >= now_, "a start in the past");
    now_ = now;
    for (const Transfer& transfer : transfers) {
      ORRERY_CHECK(transfer.bytes >= 0, "a transfer moves bytes >= 0");
      if (transfer.creator >= sequences_.size()) {
        sequences_.resize(std::size_t{transfer.creator} + 1);
      }
      begin(transfer, sequences_[transfer.creator]++);
    }
  }
  // Network::AdvanceUntil; step(id) takes the message that comes up one step on, or says true if it
  // is complete.
  template <class Step>
  SimTime AdvanceUntil(SimTime t, std::vector<Completion>* done, const Step& step) {
    ORRERY_CHECK(t >= now_, "time goes forward");
    const std::size_t before = done->size();
    for (SimTime next = events_.NextTime(); next <= t; next = events_.NextTime()) {
      if (next > now_ && done->size() > before) return now_;
      if (next == kNever) break;
      now_ = next;
      const std::uint32_t id = events_.Top().message;
      events_.Pop();
      if (!step(id)) continue;
      done->push_back({now_, slab_[id].transfer.id});
      free_.push_back(id);
    }
    if (done->size() == before) now_ = t;
    return now_;
  }
  void TakeRemote(std::vector<RemoteHop>* out) {
    out->insert(out->end(), remote_.begin(), remote_.end());
    remote_.clear();
  }

 private:
  struct Event {
    SimTime time = 0;
    std::uint64_t sequence = 0;
    std::uint32_t creator = 0;
    std::uint32_t message = 0;
    friend bool operator<(const Event& a, const Event& b) {
      return a.creator != b.creator ? a.creator < b.creator : a.sequence < b.sequence;
    }
  };

  SimTime now_ = 0;
  std::vector<Message> slab_;
  std::vector<std::uint32_t> free_;       // numbers
  std::vector<std::uint64_t> sequences_;  // next, by creator
  des::EventQueue<Event> events_;
  std::vector<RemoteHop> remote_;
};

}  // namespace orrery::network
