#include "orrery/engine/general/matching.h"

#include <limits>
#include <utility>

namespace orrery::engine::general {

Matching::Matching(const std::vector<bool>& wild) : slots_(64) {
  wild_.assign(wild.size(), kNone);
  for (std::size_t rank = 0; rank < wild.size(); ++rank) {
    if (!wild[rank]) continue;
    wild_[rank] = static_cast<std::uint32_t>(posted_.size());
    posted_.emplace_back();
    arrived_.emplace_back();
  }
}

bool Matching::Meet(std::uint32_t rank, const Item& item, bool message, Item* met) {
  constexpr int kAll = std::numeric_limits<int>::max();
  if (const std::uint32_t wild = wild_[rank]; wild != kNone) {
    List& others = message ? posted_[wild] : arrived_[wild];
    if (Search(&others, item, kAll, met) == Found::kYes) return true;
    Append(message ? &arrived_[wild] : &posted_[wild], Keep(item));
    return false;
  }
  std::size_t at = Place(rank, item.source, kAny);
  if (slots_[at].by_tag) at = Place(rank, item.source, item.tag);
  Slot* slot = &slots_[at];
  Found found = Search(message ? &slot->posted : &slot->arrived, item, kLook, met);
  if (found == Found::kTooFar) {
    KeepByTag(rank, item.source);
    at = Place(rank, item.source, item.tag);
    slot = &slots_[at];
    found = Search(message ? &slot->posted : &slot->arrived, item, kLook, met);
  }
  if (found == Found::kNo) {
    Append(message ? &slot->arrived : &slot->posted, Keep(item));
    return false;
  }
  if (slot->posted.head == kNone && slot->arrived.head == kNone) Erase(at);
  return true;
}

Matching::Found Matching::Search(List* list, const Item& item, int look, Item* met) {
  const auto fits = [](std::uint32_t a, std::uint32_t b) {
    return a == b || a == kAny || b == kAny;
  };
  std::uint32_t before = kNone;
  for (std::uint32_t i = list->head; i != kNone; before = i, i = items_[i].next) {
    if (!fits(items_[i].source, item.source) || !fits(items_[i].tag, item.tag)) {
      if (--look == 0) return Found::kTooFar;
      continue;
    }
    *met = items_[i];
    (before == kNone ? list->head : items_[before].next) = met->next;
    if (list->tail == i) list->tail = before;
    Release(i);
    return Found::kYes;
  }
  return Found::kNo;
}

std::uint32_t Matching::Keep(const Item& item) {
  std::uint32_t number = free_;
  if (number == kNone) {
    number = static_cast<std::uint32_t>(items_.size());
    items_.push_back(item);
  } else {
    free_ = items_[number].next;
    items_[number] = item;
  }
  last_ = number;
  return number;
}

void Matching::Append(List* list, std::uint32_t number) {
  items_[number].next = kNone;
  (list->head == kNone ? list->head : items_[list->tail].next) = number;
  list->tail = number;
}

void Matching::Release(std::uint32_t number) {
  items_[number].next = free_;
  free_ = number;
}

std::size_t Matching::Place(std::uint32_t rank, std::uint32_t source, std::uint32_t tag) {
  const auto find = [&] {
    std::size_t at = Home(rank, source, tag);
    while (slots_[at].rank != kNone &&
           (slots_[at].rank != rank || slots_[at].source != source || slots_[at].tag != tag)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  };
  std::size_t at = find();
  if (slots_[at].rank != kNone) return at;
  if (++used_ * 2 > slots_.size()) {
    Grow();
    at = find();
  }
  slots_[at].rank = rank;
  slots_[at].source = source;
  slots_[at].tag = tag;
  return at;
}

// The pair's items move to slots by tag, in their order.
void Matching::KeepByTag(std::uint32_t rank, std::uint32_t source) {
  Slot& pair = slots_[Place(rank, source, kAny)];
  pair.by_tag = true;
  const List posted = std::exchange(pair.posted, {}), arrived = std::exchange(pair.arrived, {});
  for (const bool message : {false, true}) {
    std::uint32_t next = kNone;
    for (std::uint32_t i = message ? arrived.head : posted.head; i != kNone; i = next) {
      next = items_[i].next;
      Slot& slot = slots_[Place(rank, source, items_[i].tag)];
      Append(message ? &slot.arrived : &slot.posted, i);
    }
  }
}

// Closes the gap, so that no search stops before its key.
void Matching::Erase(std::size_t gap) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = (gap + 1) & mask; slots_[at].rank != kNone; at = (at + 1) & mask) {
    const std::size_t home = Home(slots_[at].rank, slots_[at].source, slots_[at].tag);
    if (((at - home) & mask) < ((at - gap) & mask)) continue;
    slots_[gap] = slots_[at];
    gap = at;
  }
  slots_[gap] = Slot();
  --used_;
}

void Matching::Grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.rank == kNone) continue;
    std::size_t at = Home(slot.rank, slot.source, slot.tag);
    while (slots_[at].rank != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

bool Matching::FirstLeft(Left* left) const {
  bool found = false;
  const auto consider = [&](std::uint32_t rank, bool message, const List& list) {
    for (std::uint32_t i = list.head; i != kNone; i = items_[i].next) {
      if (found && rank > left->rank) return;
      const Item& item = items_[i];
      // Of one rank a receive rather than a message, and the first in the schedule.
      if (found && rank == left->rank &&
          (message > left->message || (message == left->message && item.node > left->item.node))) {
        continue;
      }
      *left = {rank, message, item};
      found = true;
    }
  };
  for (const Slot& slot : slots_) {
    if (slot.rank == kNone) continue;
    consider(slot.rank, false, slot.posted);
    consider(slot.rank, true, slot.arrived);
  }
  for (std::uint32_t rank = 0; rank < wild_.size(); ++rank) {
    if (wild_[rank] == kNone) continue;
    consider(rank, false, posted_[wild_[rank]]);
    consider(rank, true, arrived_[wild_[rank]]);
  }
  return found;
}

bool Matching::FirstMessage(std::uint32_t rank, std::uint32_t source, Item* message) const {
  bool found = false;
  const auto consider = [&](const List& list) {
    for (std::uint32_t i = list.head; i != kNone; i = items_[i].next) {
      const Item& item = items_[i];
      if (source != kAny && item.source != source) continue;
      if (found && std::pair(item.source, item.node) > std::pair(message->source, message->node)) {
        continue;
      }
      *message = item;
      found = true;
    }
  };
  for (const Slot& slot : slots_) {
    if (slot.rank == rank) consider(slot.arrived);
  }
  if (wild(rank)) consider(arrived_[wild_[rank]]);
  return found;
}

}  // namespace orrery::engine::general
