// Which receive takes which message: MPI's rule, per receiving rank.
//
// A receive takes the first message that came and fits, a message the first receive that was posted
// and fits. What waits is kept in the order in which it came, by (receiver, source): a search there
// almost always ends at the first item. Where it does not, that pair's items are kept by tag from
// then on, so that no order of tags makes a search long: O(1) a message. Ranks with wildcard
// receives search two lists in order. 24 bytes an item that waits, 32 a pair (or tag) in use.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/base/time.h"

namespace orrery::engine::general {

class Matching {
 public:
  static constexpr std::uint32_t kAny = 0xFFFFFFFFu;  // source or tag
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  struct Item {
    // Of a message: when it has been taken in. Below 0: -1 - the meeting it has begun instead.
    SimTime ready = 0;
    std::uint32_t node = 0;
    std::uint32_t source = 0, tag = 0;
    std::uint32_t next = kNone;

    bool has_meeting() const { return ready < 0; }
    std::uint32_t meeting() const { return static_cast<std::uint32_t>(-1 - ready); }
    void set_meeting(std::uint32_t id) { ready = -1 - static_cast<SimTime>(id); }
  };

  // `wild`: by rank, whether it has wildcard receives.
  explicit Matching(const std::vector<bool>& wild);
  bool wild(std::uint32_t rank) const { return wild_[rank] != kNone; }

  // Takes the counterpart of `item` out and returns true, or leaves `item` to wait.
  bool Message(std::uint32_t rank, const Item& item, Item* receive) {
    return Meet(rank, item, true, receive);
  }
  bool Receive(std::uint32_t rank, const Item& item, Item* message) {
    return Meet(rank, item, false, message);
  }
  // The item that the last call left to wait, until the next.
  Item& left_waiting() { return items_[last_]; }

  // The first item that waits on the lowest rank that has one; false if none does.
  struct Left {
    std::uint32_t rank = 0;
    bool message = false;
    Item item;
  };
  bool FirstLeft(Left* left) const;
  // The first message that waits on `rank` from `source`, or from whoever (kAny); false: none does.
  bool FirstMessage(std::uint32_t rank, std::uint32_t source, Item* message) const;

 private:
  struct List {
    std::uint32_t head = kNone, tail = kNone;
  };
  // What waits of one (rank, source), or of one (rank, source, tag).
  struct Slot {
    std::uint32_t rank = kNone, source = 0;
    std::uint32_t tag = kAny;  // kAny: of all tags
    bool by_tag = false;       // of all tags, but they have slots of their own
    List posted, arrived;
  };
  static constexpr int kLook = 8;  // items looked at before a pair is kept by tag

  bool Meet(std::uint32_t rank, const Item& item, bool message, Item* met);
  enum class Found : std::uint8_t { kYes, kNo, kTooFar };
  Found Search(List* list, const Item& item, int look, Item* met);
  void Append(List* list, std::uint32_t number);
  std::uint32_t Keep(const Item& item);
  void Release(std::uint32_t number);
  // The slot's place, made if there is none; a call may move all others.
  std::size_t Place(std::uint32_t rank, std::uint32_t source, std::uint32_t tag);
  void KeepByTag(std::uint32_t rank, std::uint32_t source);
  std::size_t Home(std::uint32_t rank, std::uint32_t source, std::uint32_t tag) const {
    const std::uint64_t key = (std::uint64_t{source} << 32) | tag;
    return static_cast<std::size_t>(HashCombine(rank, key)) & (slots_.size() - 1);
  }
  void Erase(std::size_t gap);
  void Grow();

  std::vector<std::uint32_t> wild_;  // by rank: number among ranks with wildcards, or kNone
  std::vector<List> posted_, arrived_;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::vector<Item> items_;
  std::uint32_t free_ = kNone, last_ = 0;
};

}  // namespace orrery::engine::general
