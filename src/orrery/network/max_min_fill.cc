// A filling: the rule of max_min.h for the disturbed set, on what the others leave, and the check
// of its outcome on the links that the set crosses.
#include <algorithm>
#include <limits>

#include "orrery/network/max_min.h"

namespace orrery::network {
namespace {

// A filling asks a link that is nobody's bottleneck for its level only where the set could fill it
// by using so much more, as a part of what it did.
constexpr std::int64_t kGrowth = 8;
constexpr double kSurely = 1 + 1e-9;  // more than the rounding of doubles
constexpr std::int64_t kNoKey = std::numeric_limits<std::int64_t>::max();

}  // namespace

void MaxMin::PopTop() {
  const Key last = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) SinkTop(last);
}

// `key` takes the place of the heap's top.
void MaxMin::SinkTop(const Key key) {
  Key* const heap = heap_.data();
  const std::size_t size = heap_.size();
  std::size_t hole = 0, child = 1;
  for (; child + 1 < size; child = 2 * hole + 1) {
    child += static_cast<std::size_t>(heap[child + 1].level < heap[child].level);  // no branch
    if (heap[child].level >= key.level) break;
    heap[hole] = heap[child];
    hole = child;
  }
  if (child + 1 == size && heap[child].level < key.level) {
    heap[hole] = heap[child];
    hole = child;
  }
  heap[hole] = key;
}

// The next stage: takes the links and caps of the least level off the heap into stage_. Keys in the
// heap may be too low, never too high. False when nothing is left.
bool MaxMin::TopLevel(std::int64_t* level) {
  stage_.clear();
  while (!heap_.empty() && (stage_.empty() || heap_.front().level <= *level)) {
    const Key key = heap_.front();
    if (IsLink(key.id)) {
      const Link& link = links_[key.id];
      if (link.unfrozen == 0) keys_[key.id] = kNoKey;
      if (link.unfrozen == 0 || key.level > keys_[key.id]) {
        PopTop();
        continue;
      }
      const std::int64_t now = link.residual / link.unfrozen;
      if (now > key.level) {
        keys_[key.id] = now;
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
  next_[bottleneck] = level;
  if (b.row.empty()) {
    b.ceiling = Above(level);
    return;
  }
  --unfrozen_rows_;
  for (const RowEntry& entry : b.tight_row()) {
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
  const std::int64_t higher = bottlenecks_[bottleneck].ceiling - bottlenecks_[c.bottleneck].ceiling;
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    if (Hidden(at)) continue;
    const std::int64_t weight = heft * loads_[at].share;
    Withdraw(at, weight);
    Enter(at, bottleneck, weight);
    Link& link = links_[loads_[at].link];
    if (link.hold == Hold::kLoose) {
      AddToLoose(loads_[at].link, weight * higher);
      continue;
    }
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
  for (const RowEntry& entry : b.tight_row()) {
    Link& link = links_[entry.link];
    if (link.epoch != epoch_) continue;
    // Its key in the heap may be too high from now on only if it was above the bottleneck's level.
    if (link.asked && static_cast<double>(link.residual) * kSurely >=
                          its_level * static_cast<double>(link.unfrozen)) {
      if (keys_[entry.link] > b.level) heap_.push_back({b.level, entry.link});
      keys_[entry.link] = std::min(keys_[entry.link], b.level);
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
    if (links_[id].unfrozen == 0) continue;
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
  keys_[number] = kNoKey;
  if (!link.asked || link.open == 0) return;
  keys_[number] = link.residual / link.open;
  heap_.push_back({keys_[number], number});
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
  RaiseCeilings();
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
    highest = std::max(highest, next_[entry.bottleneck]);
  }
  std::int64_t weight = 0;  // of the classes at the highest level
  for (const ColumnEntry& entry : columns_[number]) {
    const std::int64_t level = next_[entry.bottleneck];
    if (level == highest) {
      weight += EntryOf(cells_[entry.cell]).weight;
    } else {
      second = std::max(second, level);
    }
  }
  // Classes of the set were held down here though others have more.
  if (link.froze && link.holds && highest > next_[number]) {
    for (const ColumnEntry& entry : columns_[number]) {
      if (next_[entry.bottleneck] > next_[number]) Join(entry.bottleneck);
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
    close_.emplace_back(next_[entry.bottleneck], EntryOf(cells_[entry.cell]).weight);
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
    if (next_[entry.bottleneck] >= fails_at) Join(entry.bottleneck);
  }
}

}  // namespace orrery::network
