#include "orrery/network/max_min.h"

#include <algorithm>

#include "orrery/base/check.h"

namespace orrery::network {
namespace {

// A solve that has not settled after so many rounds takes everything.
constexpr int kManyRounds = 8;
constexpr std::size_t kFirstSlots = 64;

}  // namespace

void MaxMin::Setup(std::span<const std::int64_t> capacity_Bps) {
  const bool always_full = always_full_;
  *this = MaxMin();
  always_full_ = always_full;
  links_.resize(capacity_Bps.size());
  columns_.resize(capacity_Bps.size());
  bottlenecks_.resize(capacity_Bps.size() + 1);
  next_.resize(capacity_Bps.size() + 1);
  keys_.resize(capacity_Bps.size());
  slots_.assign(kFirstSlots, kNone);
  newcomer_slots_.assign(capacity_Bps.size(), kNone);
  covers_.resize(capacity_Bps.size());
  settled_.resize(capacity_Bps.size());
  for (std::size_t l = 0; l < links_.size(); ++l) {
    ORRERY_CHECK(capacity_Bps[l] > 0 && capacity_Bps[l] <= kMaxCapacity_Bps,
                 "a link's capacity is above 0 and at most 2^44 byte/s");
    links_[l].capacity = capacity_Bps[l] * kWhole * kFine;
  }
}

std::uint32_t MaxMin::AddClass(std::span<const Load> loads, std::uint32_t weight,
                               std::int64_t cap_Bps) {
  ORRERY_CHECK(!loads.empty() && weight > 0, "a flow has links and a weight");
  ORRERY_CHECK(cap_Bps == 0 || cap_Bps >= weight, "a cap is at least the weight");
  const auto id = static_cast<std::uint32_t>(classes_.size());
  Class c;
  c.first = static_cast<std::uint32_t>(loads_.size());
  c.count = static_cast<std::uint32_t>(loads.size());
  c.weight = weight;
  c.cap_Bps = cap_Bps;
  if (cap_Bps > 0) {
    c.cap = static_cast<std::uint32_t>(bottlenecks_.size());
    bottlenecks_.emplace_back();
    next_.push_back(0);
    cap_class_.push_back(id);
  }
  for (const Load& load : loads) {
    ORRERY_CHECK(load.link < links_.size() && load.share > 0, "a load names a link and a share");
  }
  loads_.insert(loads_.end(), loads.begin(), loads.end());
  places_.resize(loads_.size(), {kNone, kNone, kNone, id});
  classes_.push_back(c);
  CoverLinks(id);
  return id;
}

std::size_t MaxMin::HomeOf(std::uint32_t bottleneck, std::uint32_t link) const {
  const std::uint64_t key = std::uint64_t{bottleneck} << 32 | link;
  std::uint64_t mixed = key * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u;
  return static_cast<std::size_t>(mixed >> 32) & (slots_.size() - 1);
}

// Where the number of the cell stands, or would.
std::uint32_t* MaxMin::SlotOf(std::uint32_t bottleneck, std::uint32_t link) {
  if (bottleneck == newcomers()) return &newcomer_slots_[link];
  std::size_t slot = HomeOf(bottleneck, link);
  for (; slots_[slot] != kNone; slot = (slot + 1) & (slots_.size() - 1)) {
    const Cell& cell = cells_[slots_[slot]];
    if (cell.bottleneck == bottleneck && cell.link == link) break;
  }
  return &slots_[slot];
}

// Made if there is none.
std::uint32_t MaxMin::FindCell(std::uint32_t bottleneck, std::uint32_t link) {
  std::uint32_t* slot = SlotOf(bottleneck, link);
  if (*slot != kNone) return *slot;
  std::uint32_t id = 0;
  if (free_cells_.empty()) {
    id = static_cast<std::uint32_t>(cells_.size());
    cells_.emplace_back();
  } else {
    id = free_cells_.back();
    free_cells_.pop_back();
  }
  std::vector<RowEntry>& row = bottlenecks_[bottleneck].row;
  std::vector<ColumnEntry>& column = columns_[link];
  cells_[id] = {bottleneck, link, static_cast<std::uint32_t>(row.size()),
                static_cast<std::uint32_t>(column.size()), kNone};
  row.push_back({0, link, id});
  column.push_back({bottleneck, id});
  if (links_[link].hold == Hold::kTight) SetTight(cells_[id], true);
  if (bottleneck == link) links_[link].holds = true;
  *slot = id;
  if (bottleneck != newcomers() && ++used_slots_ * 2 > slots_.size()) GrowSlots();
  return id;
}

void MaxMin::GrowSlots() {
  std::vector<std::uint32_t> old(slots_.size() * 2, kNone);
  old.swap(slots_);
  for (const std::uint32_t id : old) {
    if (id == kNone) continue;
    std::size_t slot = HomeOf(cells_[id].bottleneck, cells_[id].link);
    while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = id;
  }
}

// Closes the gap: whoever could not have its own slot because of this one moves up.
void MaxMin::EraseSlot(const Cell& cell) {
  if (cell.bottleneck == newcomers()) {
    newcomer_slots_[cell.link] = kNone;
    return;
  }
  const std::size_t mask = slots_.size() - 1;
  std::size_t gap = HomeOf(cell.bottleneck, cell.link);
  while (&cells_[slots_[gap]] != &cell) gap = (gap + 1) & mask;
  for (std::size_t at = (gap + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
    const Cell& other = cells_[slots_[at]];
    const std::size_t home = HomeOf(other.bottleneck, other.link);
    if (((at - home) & mask) < ((at - gap) & mask)) continue;
    slots_[gap] = slots_[at];
    gap = at;
  }
  slots_[gap] = kNone;
  --used_slots_;
}

// The load's class is held back by `bottleneck` from now on.
void MaxMin::Enter(std::uint32_t at, std::uint32_t bottleneck, std::int64_t weight) {
  const std::uint32_t id = FindCell(bottleneck, loads_[at].link);
  Cell& cell = cells_[id];
  EntryOf(cell).weight += weight;
  Place& place = places_[at];
  place.cell = id;
  place.before = kNone;
  place.after = cell.head;
  if (cell.head != kNone) places_[cell.head].before = at;
  cell.head = at;
}

void MaxMin::Withdraw(std::uint32_t at, std::int64_t weight) {
  const Place& place = places_[at];
  Cell& cell = cells_[place.cell];
  EntryOf(cell).weight -= weight;
  if (place.after != kNone) places_[place.after].before = place.before;
  if (place.before != kNone) {
    places_[place.before].after = place.after;
    return;
  }
  cell.head = place.after;
  if (cell.head != kNone) return;
  EraseSlot(cell);
  SetTight(cell, false);
  std::vector<RowEntry>& row = bottlenecks_[cell.bottleneck].row;
  row[cell.in_row] = row.back();
  cells_[row.back().cell].in_row = cell.in_row;
  row.pop_back();
  std::vector<ColumnEntry>& column = columns_[cell.link];
  column[cell.in_column] = column.back();
  cells_[column.back().cell].in_column = cell.in_column;
  column.pop_back();
  if (cell.bottleneck == cell.link) links_[cell.link].holds = false;
  free_cells_.push_back(place.cell);
}

void MaxMin::Touch(std::uint32_t bottleneck) {
  if (bottlenecks_[bottleneck].dirty) return;
  bottlenecks_[bottleneck].dirty = true;
  dirty_.push_back(bottleneck);
}

void MaxMin::AddMembers(std::uint32_t id, std::int32_t count) {
  Class& c = classes_[id];
  if (count == 0) return;
  ORRERY_CHECK(std::int64_t{c.members} + count >= 0, "no more leave than are there");
  const bool comes = c.members == 0;
  const std::int64_t heft = c.heft();
  c.members = static_cast<std::uint32_t>(std::int64_t{c.members} + count);
  if (comes) {
    came_.push_back(id);
    c.bottleneck = newcomers();
  }
  const Bottleneck& b = bottlenecks_[c.bottleneck];
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    if (Hidden(at)) continue;
    const std::int64_t weight = std::int64_t{count} * c.weight * loads_[at].share;
    Link& link = links_[loads_[at].link];
    link.weight += weight;
    if (link.hold == Hold::kTight) {
      link.used += weight * b.level;
    } else {
      AddToLoose(loads_[at].link, weight * b.ceiling);
    }
    Touch(loads_[at].link);
    if (comes) {
      Enter(at, c.bottleneck, weight);
    } else if (c.members == 0) {
      Withdraw(at, heft * loads_[at].share);
    } else {
      EntryOf(cells_[places_[at].cell]).weight += weight;
    }
  }
  if (!IsLink(c.bottleneck) && c.bottleneck != newcomers()) Touch(c.bottleneck);
  if (c.members == 0) SetBottleneck(id, kNone);
}

void MaxMin::SetBottleneck(std::uint32_t id, std::uint32_t bottleneck) {
  Class& c = classes_[id];
  if (c.cap != kNone) {
    if (c.bottleneck < newcomers()) --bottlenecks_[c.bottleneck].capped;
    if (bottleneck < newcomers()) ++bottlenecks_[bottleneck].capped;
  }
  c.bottleneck = bottleneck;
}

void MaxMin::SetCapacity(std::uint32_t link, std::int64_t capacity_Bps) {
  ORRERY_CHECK(capacity_Bps >= 0 && capacity_Bps <= kMaxCapacity_Bps,
               "a link's capacity is not negative and at most 2^44 byte/s");
  if (!classes_.empty() && cover_) {
    cover_ = false;
    for (std::uint32_t l = 0; l < links_.size(); ++l) Uncover(l);
  }
  if (links_[link].hold == Hold::kLoose) Tighten(link);
  links_[link].capacity = capacity_Bps * kWhole * kFine;
  // Any of its flows may be disturbed, whatever their bottleneck.
  for (const ColumnEntry& entry : columns_[link]) Touch(entry.bottleneck);
  Touch(link);
}

// A filling asks the link for its level.
void MaxMin::Ask(std::uint32_t link) {
  grew_ |= !links_[link].asked;
  links_[link].asked = true;
}

// The bottleneck's classes join the disturbed set: what they use comes off their links.
void MaxMin::Join(std::uint32_t bottleneck) {
  Bottleneck& b = bottlenecks_[bottleneck];
  if (b.joined == epoch_) return;
  b.joined = epoch_;
  b.frozen = false;
  grew_ = true;
  set_.push_back(bottleneck);
  counters_.cells += b.tight;
  for (const RowEntry& entry : b.tight_row()) {
    Link& link = links_[entry.link];
    if (link.epoch != epoch_) {
      link.epoch = epoch_;
      link.fixed = link.used;
      link.open = 0;
      link.asked = false;
      set_links_.push_back(entry.link);
    }
    link.fixed -= entry.weight * b.level;
    link.open += entry.weight;
    if (bottleneck == newcomers()) link.asked = true;
  }
  if (IsLink(bottleneck) && links_[bottleneck].epoch == epoch_) links_[bottleneck].asked = true;
}

// Everything joins: nothing outside the set uses a link.
void MaxMin::JoinAll() {
  for (std::uint32_t b = 0; b < bottlenecks_.size(); ++b) {
    if (!bottlenecks_[b].row.empty()) Join(b);
  }
  for (const std::uint32_t l : set_links_) Ask(l);
}

// True if nobody else is on the links of the class.
bool MaxMin::Lone(const Class& c) const {
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    if (Hidden(at)) continue;
    if (links_[loads_[at].link].weight != c.heft() * loads_[at].share) return false;
  }
  return true;
}

// The class has the least level that its links and its cap give it.
void MaxMin::SetLone(std::uint32_t id, Changes* changes) {
  const Class& c = classes_[id];
  std::int64_t level = c.cap == kNone ? -1 : c.cap_level();
  std::uint32_t bottleneck = c.cap;
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    if (Hidden(at)) continue;
    const std::int64_t weight = c.heft() * loads_[at].share;
    const std::int64_t here = links_[loads_[at].link].capacity / weight;
    if (level >= 0 && here >= level) continue;
    level = here;
    bottleneck = loads_[at].link;
  }
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    if (Hidden(at)) continue;
    const std::int64_t weight = c.heft() * loads_[at].share;
    Withdraw(at, weight);
    Enter(at, bottleneck, weight);
    links_[loads_[at].link].used = weight * level;
    bottlenecks_[loads_[at].link].dirty = false;
  }
  SetBottleneck(id, bottleneck);
  ++counters_.lone;
  changes->moved.push_back(id);
  Bottleneck& b = bottlenecks_[bottleneck];
  b.ceiling = Above(level);  // all its links are tight
  if (b.level == level) return;
  b.level = next_[bottleneck] = level;
  ++counters_.changed;
  changes->bottlenecks.push_back(bottleneck);
}

// The first disturbed set.
void MaxMin::Begin(Changes* changes) {
  ++epoch_;
  set_.clear();
  set_links_.clear();
  moved_.clear();
  for (const std::uint32_t l : strained_) Tighten(l);
  strained_.clear();
  for (const std::uint32_t id : came_) {
    const Class& c = classes_[id];
    for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
      if (!Hidden(at)) Tighten(loads_[at].link);
    }
  }
  for (const std::uint32_t id : came_) {
    if (classes_[id].bottleneck != newcomers() || always_full_ || !Lone(classes_[id])) continue;
    SetLone(id, changes);
  }
  Join(newcomers());
  for (const std::uint32_t b : dirty_) {
    if (bottlenecks_[b].dirty && !bottlenecks_[b].row.empty()) Join(b);
    bottlenecks_[b].dirty = false;
  }
  dirty_.clear();
}

void MaxMin::Solve(Changes* changes) {
  if (!dirty()) return;
  Begin(changes);
  ++counters_.solves;
  for (int round = 1;; ++round) {
    if (always_full_ || round == kManyRounds) JoinAll();
    ++counters_.rounds;
    BeginFill();
    if (Fill() && Check()) break;
  }
  came_.clear();
  Apply(changes);
}

void MaxMin::Apply(Changes* changes) {
  counters_.disturbed += set_.size();
  for (const std::uint32_t l : set_links_) links_[l].used = links_[l].capacity - links_[l].residual;
  LowerCeilings();
  for (const std::uint32_t id : set_) {
    Bottleneck& b = bottlenecks_[id];
    if (b.level == next_[id] || id == newcomers()) continue;
    b.level = next_[id];
    ++counters_.changed;
    changes->bottlenecks.push_back(id);
  }
  for (const std::uint32_t id : moved_) {
    if (classes_[id].bottleneck == classes_[id].was) continue;
    ++counters_.moved;
    changes->moved.push_back(id);
  }
}

}  // namespace orrery::network
