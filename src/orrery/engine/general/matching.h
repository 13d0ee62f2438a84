// Which receive takes which message: MPI's rule, per receiving rank.
//
// A receive takes the first message that came and fits, a message the first receive that was posted
// and fits. Ranks without wildcard receives find theirs by a hash of (rank, source, tag) in O(1):
// of one key there are never both messages and receives. Ranks with wildcards search two lists in
// order. 32 bytes an item that waits, 24 a key in use.
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
    SimTime ready = 0;  // of a message: when it has been taken in
    std::uint32_t node = 0;
    std::uint32_t source = 0, tag = 0;
    std::uint32_t meeting = kNone;  // that it has begun
    std::uint32_t next = kNone;
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

 private:
  struct List {
    std::uint32_t head = kNone, tail = kNone;
  };
  struct Slot {
    std::uint32_t rank = kNone, source = 0, tag = 0;
    bool messages = false;
    List list;
  };

  bool Meet(std::uint32_t rank, const Item& item, bool message, Item* met);
  bool Search(List* list, const Item& item, Item* met);
  void Append(List* list, const Item& item);
  void Release(std::uint32_t number);
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
