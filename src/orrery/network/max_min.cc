#include "orrery/network/max_min.h"

#include <algorithm>

#include "orrery/base/check.h"

namespace orrery::network {
namespace {

// A filling asks a link that is nobody's bottleneck for its level only where the set could fill it
// by using so much more, as a part of what it did.
constexpr std::int64_t kGrowth = 8;
constexpr double kSurely = 1 + 1e-9;  // more than the rounding of doubles
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
  slots_.assign(kFirstSlots, kNone);
  newcomer_slots_.assign(capacity_Bps.size(), kNone);
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
    cap_class_.push_back(id);
  }
  for (const Load& load : loads) {
    ORRERY_CHECK(load.link < links_.size() && load.share > 0, "a load names a link and a share");
  }
  loads_.insert(loads_.end(), loads.begin(), loads.end());
  places_.resize(loads_.size(), {kNone, kNone, kNone, id});
  classes_.push_back(c);
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
  const std::int64_t level = bottlenecks_[c.bottleneck].level;
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    const std::int64_t weight = std::int64_t{count} * c.weight * loads_[at].share;
    Link& link = links_[loads_[at].link];
    link.weight += weight;
    link.used += weight * level;
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
  b.next = b.level;  // until filled
  b.frozen = false;
  grew_ = true;
  set_.push_back(bottleneck);
  counters_.cells += b.row.size();
  for (const RowEntry& entry : b.row) {
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
    const std::int64_t weight = c.heft() * loads_[at].share;
    const std::int64_t here = links_[loads_[at].link].capacity / weight;
    if (level >= 0 && here >= level) continue;
    level = here;
    bottleneck = loads_[at].link;
  }
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
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
  if (b.level == level) return;
  b.level = level;
  ++counters_.changed;
  changes->bottlenecks.push_back(bottleneck);
}

// The first disturbed set.
void MaxMin::Begin(Changes* changes) {
  ++epoch_;
  set_.clear();
  set_links_.clear();
  moved_.clear();
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

void MaxMin::PopTop() {
  const Key last = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) SinkTop(last);
}

// `key` takes the place of the heap's top.
void MaxMin::SinkTop(const Key key) {
  std::size_t hole = 0;
  for (std::size_t child = 1; child < heap_.size(); child = 2 * hole + 1) {
    if (child + 1 < heap_.size() && heap_[child] < heap_[child + 1]) ++child;
    if (!(key < heap_[child])) break;
    heap_[hole] = heap_[child];
    hole = child;
  }
  heap_[hole] = key;
}

// The next stage: takes the links and caps of the least level off the heap into stage_. Keys in the
// heap may be too low, never too high. False when nothing is left.
bool MaxMin::TopLevel(std::int64_t* level) {
  stage_.clear();
  while (!heap_.empty() && (stage_.empty() || heap_.front().level <= *level)) {
    const Key key = heap_.front();
    if (IsLink(key.id)) {
      const Link& link = links_[key.id];
      if (link.unfrozen == 0) {
        PopTop();
        continue;
      }
      const std::int64_t now = link.residual / link.unfrozen;
      if (now > key.level) {
        SinkTop({now, key.id});
        continue;
      }
    } else if (bottlenecks_[ClassOfCap(key.id).bottleneck].frozen) {
      PopTop();
      continue;
    }
    *level = key.level;
    stage_.push_back(key.id);
    PopTop();
  }
  return !stage_.empty();
}

// All classes of the bottleneck have their level.
void MaxMin::FreezeRow(std::uint32_t bottleneck, std::int64_t level) {
  Bottleneck& b = bottlenecks_[bottleneck];
  b.frozen = true;
  b.next = level;
  if (!b.row.empty()) --unfrozen_rows_;
  for (const RowEntry& entry : b.row) {
    Link& link = links_[entry.link];
    link.unfrozen -= entry.weight;
    link.residual -= entry.weight * level;
  }
}

// The class has its level, by another bottleneck than before.
void MaxMin::Move(std::uint32_t id, std::uint32_t bottleneck, std::int64_t level) {
  Class& c = classes_[id];
  if (c.moved != epoch_) {
    c.moved = epoch_;
    c.was = c.bottleneck;
    moved_.push_back(id);
  }
  const std::int64_t heft = c.heft();
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    const std::int64_t weight = heft * loads_[at].share;
    Withdraw(at, weight);
    Enter(at, bottleneck, weight);
    Link& link = links_[loads_[at].link];
    link.unfrozen -= weight;
    link.residual -= weight * level;
  }
  if (bottlenecks_[c.bottleneck].row.empty()) --unfrozen_rows_;
  SetBottleneck(id, bottleneck);
}

// A bottleneck outside the set, about to freeze at `level`, joins, its classes unfrozen. False if
// the filling has to begin again: its level is below, or its classes cross a link that has frozen.
// Otherwise all is as if it had been in the set from the start: with it each link's level lies
// between what it was and the bottleneck's, so that no link would have frozen before.
bool MaxMin::JoinLate(std::uint32_t bottleneck, std::int64_t level) {
  const Bottleneck& b = bottlenecks_[bottleneck];
  const std::size_t before = set_links_.size();
  std::size_t heaped = heap_.size();
  const auto its_level = static_cast<double>(b.level);
  bool sound = b.level >= level;
  for (const RowEntry& entry : b.row) {
    Link& link = links_[entry.link];
    if (link.epoch != epoch_) continue;
    // Its key in the heap may be too high from now on only if it was above the bottleneck's level.
    if (link.asked && static_cast<double>(link.residual) * kSurely >=
                          its_level * static_cast<double>(link.unfrozen)) {
      heap_.push_back({b.level, entry.link});
    }
    link.residual += entry.weight * b.level;
    link.unfrozen += entry.weight;
    sound &= !link.froze;
  }
  Join(bottleneck);
  ++unfrozen_rows_;
  for (std::size_t i = before; i < set_links_.size(); ++i) Open(set_links_[i]);
  PushCaps(bottleneck);
  while (heaped < heap_.size()) {
    ++heaped;
    std::push_heap(heap_.begin(), heap_.begin() + static_cast<std::ptrdiff_t>(heaped));
  }
  return sound;
}

// The links and caps of stage_ freeze what is unfrozen on them. False if the filling has to begin
// again.
bool MaxMin::FreezeStage(std::int64_t level) {
  bool late = false;
  for (const std::uint32_t id : stage_) {
    if (InSet(id) || bottlenecks_[id].row.empty()) continue;
    if (!JoinLate(id, level)) return false;
    late = true;
  }
  if (late) {
    for (const std::uint32_t id : stage_) Push({level, id});
    return true;
  }
  for (const std::uint32_t id : stage_) {
    Join(id);
    if (!bottlenecks_[id].frozen) FreezeRow(id, level);
    if (IsLink(id)) links_[id].froze = true;
  }
  for (const std::uint32_t id : stage_) {
    if (!IsLink(id)) {
      const std::uint32_t b = ClassOfCap(id).bottleneck;
      if (!bottlenecks_[b].frozen) Move(cap_class_[id - links_.size() - 1], id, level);
      continue;
    }
    scratch_.clear();
    for (const ColumnEntry& entry : columns_[id]) {
      if (!InSet(entry.bottleneck) || bottlenecks_[entry.bottleneck].frozen) continue;
      for (std::uint32_t at = cells_[entry.cell].head; at != kNone; at = places_[at].after) {
        scratch_.push_back(places_[at].owner);
      }
    }
    for (const std::uint32_t c : scratch_) Move(c, id, level);
  }
  return true;
}

// The filling begins on the link.
void MaxMin::Open(std::uint32_t number) {
  Link& link = links_[number];
  link.residual = link.capacity - link.fixed;
  link.unfrozen = link.open;
  link.froze = false;
  link.asked |= link.capacity - link.used < (link.used - link.fixed) / kGrowth;
  if (link.asked && link.open > 0) heap_.push_back({link.residual / link.open, number});
}

// Caps of the bottleneck's classes may freeze them.
void MaxMin::PushCaps(std::uint32_t bottleneck) {
  const Bottleneck& b = bottlenecks_[bottleneck];
  if (bottleneck > newcomers()) {
    if (!b.row.empty()) heap_.push_back({ClassOfCap(bottleneck).cap_level(), bottleneck});
  } else if (b.capped > 0) {
    const std::uint32_t cell = FindCell(bottleneck, bottleneck);
    for (std::uint32_t at = cells_[cell].head; at != kNone; at = places_[at].after) {
      const Class& c = classes_[places_[at].owner];
      if (c.cap != kNone) heap_.push_back({c.cap_level(), c.cap});
    }
  }
}

void MaxMin::Push(Key key) {
  heap_.push_back(key);
  std::push_heap(heap_.begin(), heap_.end());
}

void MaxMin::BeginFill() {
  heap_.clear();
  unfrozen_rows_ = 0;
  for (const std::uint32_t l : set_links_) Open(l);
  for (const std::uint32_t id : came_) {
    const Class& c = classes_[id];
    if (c.bottleneck == newcomers() && c.cap != kNone) heap_.push_back({c.cap_level(), c.cap});
  }
  for (const std::uint32_t id : set_) {
    bottlenecks_[id].frozen = false;
    if (!bottlenecks_[id].row.empty()) ++unfrozen_rows_;
    PushCaps(id);
  }
  std::make_heap(heap_.begin(), heap_.end());
}

// The rule for the disturbed set, on what the others leave. False if the set turned out too small.
bool MaxMin::Fill() {
  std::int64_t level = 0;
  while (unfrozen_rows_ > 0 && TopLevel(&level)) {
    if (!FreezeStage(level)) return false;
  }
  return true;
}

// Conditions (1) and (2) on every link of the set. Who fails them joins; true if nobody did.
bool MaxMin::Check() {
  grew_ = false;
  const std::size_t links = set_links_.size();
  for (std::size_t i = 0; i < links; ++i) CheckLink(set_links_[i]);
  return !grew_;
}

void MaxMin::CheckLink(std::uint32_t number) {
  const Link& link = links_[number];
  const std::int64_t slack = link.residual;
  const bool fixed = link.holds && !InSet(number);
  if (!link.froze && !fixed && slack >= link.weight) return;
  std::int64_t highest = -1, second = -1;
  for (const ColumnEntry& entry : columns_[number]) {
    const std::int64_t level = LevelNow(entry.bottleneck);
    if (level > highest) {
      second = highest;
      highest = level;
    } else if (level < highest && level > second) {
      second = level;
    }
  }
  std::int64_t weight = 0;  // of the classes at the highest level
  for (const ColumnEntry& entry : columns_[number]) {
    if (LevelNow(entry.bottleneck) == highest) weight += EntryOf(cells_[entry.cell]).weight;
  }
  // Classes of the set were held down here though others have more.
  if (link.froze && link.holds && highest > bottlenecks_[number].next) {
    for (const ColumnEntry& entry : columns_[number]) {
      if (LevelNow(entry.bottleneck) > bottlenecks_[number].next) Join(entry.bottleneck);
    }
  }
  // A bottleneck is none any more.
  if (fixed && (bottlenecks_[number].level < highest || slack >= weight)) Join(number);
  if (slack < 0) Ask(number);
  // (1) at the lower levels can fail only where they are within rounding of the highest.
  if (second >= 0 && slack < link.weight &&
      (highest - second - 1) < (link.weight - slack + weight - 1) / weight) {
    CheckClose(number, slack);
  }
}

// Condition (1) level by level. Where it fails at v the link ought to have frozen there: all that
// have v or more join.
void MaxMin::CheckClose(std::uint32_t number, std::int64_t slack) {
  const Link& link = links_[number];
  close_.clear();
  for (const ColumnEntry& entry : columns_[number]) {
    close_.emplace_back(LevelNow(entry.bottleneck), EntryOf(cells_[entry.cell]).weight);
  }
  std::sort(close_.begin(), close_.end(), [](const auto& a, const auto& b) { return a > b; });
  std::int64_t left = slack;  // C - S(v) - v·W(v), as v falls
  std::int64_t weight = 0;    // W of the levels above v
  std::int64_t fails_at = -1;
  for (std::size_t i = 0; i < close_.size();) {
    const std::int64_t v = close_[i].first;
    if (i > 0) left += weight * (close_[i - 1].first - v);
    std::int64_t here = 0;
    const bool top = weight == 0;
    for (; i < close_.size() && close_[i].first == v; ++i) here += close_[i].second;
    weight += here;
    if (!top && left < weight) fails_at = v;
    if (left > 2 * link.weight) break;  // lower levels have ever more room
  }
  if (fails_at < 0) return;
  Ask(number);
  for (const ColumnEntry& entry : columns_[number]) {
    if (LevelNow(entry.bottleneck) >= fails_at) Join(entry.bottleneck);
  }
}

void MaxMin::Apply(Changes* changes) {
  counters_.disturbed += set_.size();
  for (const std::uint32_t l : set_links_) links_[l].used = links_[l].capacity - links_[l].residual;
  for (const std::uint32_t id : set_) {
    Bottleneck& b = bottlenecks_[id];
    if (b.level == b.next || id == newcomers()) continue;
    b.level = b.next;
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
