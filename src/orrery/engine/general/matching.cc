#include "orrery/engine/general/matching.h"

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
  if (const std::uint32_t wild = wild_[rank]; wild != kNone) {
    if (Search(message ? &posted_[wild] : &arrived_[wild], item, met)) return true;
    Append(message ? &arrived_[wild] : &posted_[wild], item);
    return false;
  }
  std::size_t at = Home(rank, item.source, item.tag);
  while (slots_[at].rank != kNone && (slots_[at].rank != rank || slots_[at].source != item.source ||
                                      slots_[at].tag != item.tag)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  Slot& slot = slots_[at];
  if (slot.rank == kNone) {
    slot = {rank, item.source, item.tag, message, {}};
    Append(&slot.list, item);
    if (++used_ * 2 > slots_.size()) Grow();
    return false;
  }
  if (slot.messages == message) {
    Append(&slot.list, item);
    return false;
  }
  const std::uint32_t number = slot.list.head;
  *met = items_[number];
  slot.list.head = met->next;
  Release(number);
  if (slot.list.head == kNone) Erase(at);
  return true;
}

bool Matching::Search(List* list, const Item& item, Item* met) {
  const auto fits = [](std::uint32_t a, std::uint32_t b) {
    return a == b || a == kAny || b == kAny;
  };
  std::uint32_t before = kNone;
  for (std::uint32_t i = list->head; i != kNone; before = i, i = items_[i].next) {
    if (!fits(items_[i].source, item.source) || !fits(items_[i].tag, item.tag)) continue;
    *met = items_[i];
    (before == kNone ? list->head : items_[before].next) = met->next;
    if (list->tail == i) list->tail = before;
    Release(i);
    return true;
  }
  return false;
}

void Matching::Append(List* list, const Item& item) {
  std::uint32_t number = free_;
  if (number == kNone) {
    number = static_cast<std::uint32_t>(items_.size());
    items_.push_back(item);
  } else {
    free_ = items_[number].next;
    items_[number] = item;
  }
  items_[number].next = kNone;
  (list->head == kNone ? list->head : items_[list->tail].next) = number;
  list->tail = number;
  last_ = number;
}

void Matching::Release(std::uint32_t number) {
  items_[number].next = free_;
  free_ = number;
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
    if (list.head == kNone || (found && rank > left->rank)) return;
    const Item& item = items_[list.head];
    // Of one rank a receive rather than a message, and the first in the schedule.
    if (found && rank == left->rank &&
        (message > left->message || (message == left->message && item.node > left->item.node))) {
      return;
    }
    *left = {rank, message, item};
    found = true;
  };
  for (const Slot& slot : slots_) {
    if (slot.rank != kNone) consider(slot.rank, slot.messages, slot.list);
  }
  for (std::uint32_t rank = 0; rank < wild_.size(); ++rank) {
    if (wild_[rank] == kNone) continue;
    consider(rank, false, posted_[wild_[rank]]);
    consider(rank, true, arrived_[wild_[rank]]);
  }
  return found;
}

}  // namespace orrery::engine::general
