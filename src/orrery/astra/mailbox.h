// Which receive meets which message: the n-th sent meets the n-th received of one (tag, source,
// destination, bytes). A size that differs waits for ever, as in ASTRA-sim.
//
// Of one key there are never both messages and receives that wait. An open-addressed table; O(1) a
// call, 32 bytes a key in use.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/base/rng.h"

namespace orrery::astra {

struct MailKey {
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0, from = 0, to = 0;
  friend bool operator==(const MailKey&, const MailKey&) = default;
};

class Mailbox {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  Mailbox() : slots_(1024), next_(0) {}

  // Takes the first that waits under `key` if it is a message (`message`) or a receive; kNone: none
  // does.
  std::uint32_t Take(const MailKey& key, bool message) {
    const std::size_t at = Find(key);
    if (slots_[at].head == kNone || slots_[at].messages != message) return kNone;
    const std::uint32_t taken = slots_[at].head;
    slots_[at].head = next_[taken];
    if (slots_[at].head == kNone) Erase(at);
    return taken;
  }
  // `item`: a number of the caller's, that waits once at most.
  void Leave(const MailKey& key, bool message, std::uint32_t item) {
    if (item >= next_.size()) next_.resize(item + item / 2 + 64, kNone);
    next_[item] = kNone;
    std::size_t at = Find(key);
    if (slots_[at].head != kNone) {
      next_[slots_[at].tail] = item;
      slots_[at].tail = item;
      return;
    }
    if (2 * ++used_ > slots_.size()) {
      Grow();
      at = Find(key);
    }
    slots_[at] = {key, item, item, message};
  }

 private:
  struct Slot {
    MailKey key;
    std::uint32_t head = kNone, tail = kNone;
    bool messages = false;
  };

  std::size_t Home(const MailKey& key) const {
    const std::uint64_t ends = (std::uint64_t{key.from} << 32) | key.to;
    return static_cast<std::size_t>(
               Mix64(Mix64(ends) + key.bytes + (std::uint64_t{key.tag} << 40))) &
           (slots_.size() - 1);
  }
  std::size_t Find(const MailKey& key) const {
    std::size_t at = Home(key);
    while (slots_[at].head != kNone && !(slots_[at].key == key))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  // Closes the gap, so that no search ends at it too early.
  void Erase(std::size_t gap) {
    --used_;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = (gap + 1) & mask; slots_[at].head != kNone; at = (at + 1) & mask) {
      const std::size_t home = Home(slots_[at].key);
      if (((at - home) & mask) < ((at - gap) & mask)) continue;
      slots_[gap] = slots_[at];
      gap = at;
    }
    slots_[gap].head = kNone;
  }
  void Grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.head != kNone) slots_[Find(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> next_;  // by item: who waits behind it
  std::size_t used_ = 0;
};

}  // namespace orrery::astra
