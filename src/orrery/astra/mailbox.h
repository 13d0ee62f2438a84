// Where messages meet receives: the n-th message of one (tag, source, destination, bytes) that
// arrives meets the n-th receive. A size that differs waits for ever, as in ASTRA-sim.
//
// Messages of one key take one way, so that they arrive in the order of sending: a box for each key
// counts what has come and what waits. A phase that always sends to one neighbour keeps its boxes,
// and finds them without a search. An open-addressed table of boxes; O(1) a call, 64 bytes a key in
// use.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "orrery/base/rng.h"

namespace orrery::astra {

struct MailKey {
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0, from = 0, to = 0;
  friend bool operator==(const MailKey&, const MailKey&) = default;
};

// Who hears of a message's end.
struct Handler {
  enum class Kind : std::uint8_t { kNone, kNode, kStream, kCustom, kRendezvous };
  Kind kind = Kind::kNone;
  std::uint32_t a = 0, b = 0;  // rank, node; stream; stream, node; rendezvous
  friend bool operator==(const Handler&, const Handler&) = default;
};

class Mailbox {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  Mailbox() : slots_(1024, kNone) {}

  // The box of a key, for a message that is sent to it, or a phase that keeps it.
  std::uint32_t Open(const MailKey& key) {
    const std::uint32_t box = BoxOf(key);
    ++boxes_[box].uses;
    return box;
  }
  void Keep(std::uint32_t box) { ++boxes_[box].uses; }
  void Drop(std::uint32_t box) {
    --boxes_[box].uses;
    Tidy(box);
  }
  // How long a message of this key is on its way; kUnknown until it is set.
  std::uint64_t& delay(std::uint32_t box) { return boxes_[box].delay; }
  const MailKey& key(std::uint32_t box) const { return boxes_[box].key; }

  // A message has come. True: a receive waited for it, whose handler is written.
  bool Arrive(std::uint32_t box, Handler* receiver) {
    Box& b = boxes_[box];
    --b.uses;
    if (b.waiting == 0) {
      ++b.arrived;
      return false;
    }
    *receiver = b.handler;
    if (--b.waiting == 0 && b.crowded) NextInCrowd(box);
    Tidy(box);
    return true;
  }
  // A receive is posted. True: a message had come, and is taken; else it waits.
  bool Receive(std::uint32_t box, const Handler& handler) {
    Box& b = boxes_[box];
    if (b.arrived > 0) {
      --b.arrived;
      Tidy(box);
      return true;
    }
    if (b.waiting == 0) b.handler = handler;
    if (b.crowded || !(b.handler == handler)) {
      b.crowded = true;
      crowds_[box].push_back(handler);
    } else {
      ++b.waiting;
    }
    return false;
  }
  bool Receive(const MailKey& key, const Handler& handler) { return Receive(BoxOf(key), handler); }

 private:
  // In one line of the cache.
  struct alignas(64) Box {
    MailKey key;
    std::uint64_t delay = kUnknown;
    std::uint32_t uses = 0;     // messages on their way, and phases that keep it
    std::uint32_t arrived = 0;  // messages that no receive has met
    std::uint32_t waiting = 0;  // receives, all of `handler`
    Handler handler;
    bool crowded = false;  // behind them wait receives of others
  };

  std::size_t Home(const MailKey& key) const {
    const std::uint64_t ends = (std::uint64_t{key.from} << 32) | key.to;
    return static_cast<std::size_t>(
               Mix64(Mix64(ends) + key.bytes + (std::uint64_t{key.tag} << 40))) &
           (slots_.size() - 1);
  }
  std::size_t Find(const MailKey& key) const {
    std::size_t at = Home(key);
    while (slots_[at] != kNone && !(boxes_[slots_[at]].key == key)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }
  std::uint32_t BoxOf(const MailKey& key) {
    std::size_t at = Find(key);
    if (slots_[at] != kNone) return slots_[at];
    if (2 * ++used_ > slots_.size()) {
      Grow();
      at = Find(key);
    }
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(boxes_.size()));
      boxes_.emplace_back();
    }
    slots_[at] = free_.back();
    free_.pop_back();
    boxes_[slots_[at]] = {.key = key};
    return slots_[at];
  }
  void NextInCrowd(std::uint32_t box) {
    Box& b = boxes_[box];
    std::deque<Handler>& crowd = crowds_[box];
    b.handler = crowd.front();
    for (; !crowd.empty() && crowd.front() == b.handler; crowd.pop_front()) ++b.waiting;
    b.crowded = !crowd.empty();
    if (!b.crowded) crowds_.erase(box);
  }
  void Tidy(std::uint32_t box) {
    const Box& b = boxes_[box];
    if (b.uses == 0 && b.arrived == 0 && b.waiting == 0) Erase(box);
  }
  // Closes the gap, so that no search ends at it too early.
  void Erase(std::uint32_t box) {
    std::size_t gap = Find(boxes_[box].key);
    free_.push_back(box);
    --used_;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = (gap + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
      const std::size_t home = Home(boxes_[slots_[at]].key);
      if (((at - home) & mask) < ((at - gap) & mask)) continue;
      slots_[gap] = slots_[at];
      gap = at;
    }
    slots_[gap] = kNone;
  }
  void Grow() {
    std::vector<std::uint32_t> old(2 * slots_.size(), kNone);
    old.swap(slots_);
    for (const std::uint32_t box : old) {
      if (box != kNone) slots_[Find(boxes_[box].key)] = box;
    }
  }

  std::vector<std::uint32_t> slots_;  // box, by hash of its key
  std::vector<Box> boxes_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::uint32_t, std::deque<Handler>> crowds_;
  std::size_t used_ = 0;
};

}  // namespace orrery::astra
