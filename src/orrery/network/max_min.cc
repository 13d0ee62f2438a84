#include "orrery/network/max_min.h"

#include <algorithm>

#include "orrery/base/check.h"

namespace orrery::network {
namespace {

// The whole is solved when the disturbed set holds more than this part of all loads.
constexpr std::size_t kFullPart = 10;
constexpr std::size_t kAhead = 16;    // members that a loop over them fetches ahead
constexpr std::size_t kSmall = 1024;  // loads below which that is not worth a thought

}  // namespace

void MaxMin::Setup(std::span<const std::int64_t> capacity_Bps) {
  *this = MaxMin();
  links_.resize(capacity_Bps.size());
  rooms_.resize(capacity_Bps.size());
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
  Class c;
  c.first = static_cast<std::uint32_t>(loads_.size());
  c.count = static_cast<std::uint32_t>(loads.size());
  c.weight = weight;
  c.cap_Bps = cap_Bps;
  for (const Load& load : loads) {
    ORRERY_CHECK(load.link < links_.size() && load.share > 0, "a load names a link and a share");
  }
  loads_.insert(loads_.end(), loads.begin(), loads.end());
  place_.resize(loads_.size(), kNone);
  classes_.push_back(c);
  return static_cast<std::uint32_t>(classes_.size() - 1);
}

void MaxMin::Touch(std::uint32_t link) {
  if (links_[link].dirty) return;
  links_[link].dirty = true;
  dirty_links_.push_back(link);
}

// Enters the class into the lists of its links.
void MaxMin::Attach(std::uint32_t id) {
  const Class& c = classes_[id];
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    std::vector<Member>& members = links_[loads_[at].link].members;
    place_[at] = static_cast<std::uint32_t>(members.size());
    members.push_back({id, at});
  }
  active_loads_ += c.count;
}

void MaxMin::Detach(std::uint32_t id) {
  Class& c = classes_[id];
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    std::vector<Member>& members = links_[loads_[at].link].members;
    members[place_[at]] = members.back();
    place_[members[place_[at]].load] = place_[at];
    members.pop_back();
  }
  active_loads_ -= c.count;
  if (c.bottleneck < kCap) --links_[c.bottleneck].bottlenecked;
  c.bottleneck = kNone;
  c.level = 0;
}

void MaxMin::AddMembers(std::uint32_t id, std::int32_t count) {
  Class& c = classes_[id];
  if (c.members == 0) Attach(id);
  ORRERY_CHECK(std::int64_t{c.members} + count >= 0, "no more leave than are there");
  c.members = static_cast<std::uint32_t>(std::int64_t{c.members} + count);
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    const std::int64_t weight = std::int64_t{count} * c.weight * loads_[at].share;
    Link& link = links_[loads_[at].link];
    link.weight += weight;
    link.used += weight * c.level;
    Touch(loads_[at].link);
  }
  if (c.members == 0) Detach(id);
  if (!c.dirty) {
    c.dirty = true;
    dirty_classes_.push_back(id);
  }
}

void MaxMin::SetCapacity(std::uint32_t link, std::int64_t capacity_Bps) {
  ORRERY_CHECK(capacity_Bps >= 0 && capacity_Bps <= kMaxCapacity_Bps,
               "a link's capacity is not negative and at most 2^44 byte/s");
  links_[link].capacity = capacity_Bps * kWhole * kFine;
  // Any of its flows may be disturbed, whatever their bottleneck.
  for (const Member& m : links_[link].members) {
    Class& c = classes_[m.id];
    if (c.dirty) continue;
    c.dirty = true;
    dirty_classes_.push_back(m.id);
  }
  Touch(link);
}

// Puts the class into the disturbed set and takes what it uses off its links.
void MaxMin::Join(std::uint32_t id) {
  Class& c = classes_[id];
  if (c.joined == epoch_) return;
  c.joined = epoch_;
  c.next = c.level;  // until filled
  c.next_bottleneck = kNone;
  set_.push_back(id);
  set_loads_ += c.count;
  const std::int64_t heft = c.heft();
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    Link& link = links_[loads_[at].link];
    if (link.epoch != epoch_) {
      link.epoch = epoch_;
      link.fixed = link.used;
      link.open = 0;
      link.leaving = 0;
      set_links_.push_back(loads_[at].link);
    }
    const std::int64_t weight = heft * loads_[at].share;
    link.fixed -= weight * c.level;
    link.open += weight;
  }
  if (c.bottleneck < kCap) ++links_[c.bottleneck].leaving;
}

// Everything joins: nothing outside the set uses a link.
void MaxMin::JoinAll() {
  set_.clear();
  set_links_.clear();
  for (std::uint32_t id = 0; id < classes_.size(); ++id) {
    Class& c = classes_[id];
    if (c.members == 0) continue;
    c.joined = epoch_;
    c.next_bottleneck = kNone;
    set_.push_back(id);
  }
  for (std::uint32_t l = 0; l < links_.size(); ++l) {
    Link& link = links_[l];
    if (link.weight == 0) continue;
    link.fixed = 0;
    link.open = link.weight;
    set_links_.push_back(l);
  }
}

bool MaxMin::Lone(const Class& c) const {
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    if (links_[loads_[at].link].members.size() > 1) return false;
  }
  return true;
}

// The rule for a class that has all of its links to itself.
void MaxMin::SetLone(std::uint32_t id, std::vector<std::uint32_t>* changed) {
  Class& c = classes_[id];
  c.lone = epoch_;
  std::int64_t level =
      c.cap_Bps > 0 ? c.cap_Bps * kFine / c.weight : kMaxCapacity_Bps * kWhole * kFine;
  std::uint32_t bottleneck = kCap;
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    const Link& link = links_[loads_[at].link];
    const std::int64_t here = link.capacity / link.weight;
    if (here >= level) continue;
    level = here;
    bottleneck = loads_[at].link;
  }
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    Link& link = links_[loads_[at].link];
    link.used = link.weight * level;
    link.bottlenecked = loads_[at].link == bottleneck ? 1 : 0;
  }
  c.bottleneck = bottleneck;
  ++counters_.lone;
  if (c.level == level) return;
  c.level = level;
  ++counters_.changed;
  changed->push_back(id);
}

// The first disturbed set.
void MaxMin::Begin(std::vector<std::uint32_t>* changed) {
  ++epoch_;
  set_.clear();
  set_links_.clear();
  set_loads_ = 0;
  for (const std::uint32_t id : dirty_classes_) {
    Class& c = classes_[id];
    c.dirty = false;
    if (c.members == 0) continue;
    if (!always_full_ && Lone(c)) {
      SetLone(id, changed);
    } else {
      Join(id);
    }
  }
  for (const std::uint32_t l : dirty_links_) {
    Link& link = links_[l];
    link.dirty = false;
    if (link.bottlenecked == 0) continue;
    for (std::size_t i = 0; i < link.members.size(); ++i) {
      FetchAhead(link.members, i);
      const Class& c = classes_[link.members[i].id];
      if (c.bottleneck == l && c.lone != epoch_) Join(link.members[i].id);
    }
  }
  dirty_classes_.clear();
  dirty_links_.clear();
}

void MaxMin::Solve(std::vector<std::uint32_t>* changed) {
  if (!dirty()) return;
  Begin(changed);
  ++counters_.solves;
  if (set_.empty()) return;
  bool full = false;
  do {
    if (always_full_ || (set_loads_ > kSmall && set_loads_ * kFullPart > active_loads_)) {
      JoinAll();
      full = true;
    }
    ++counters_.rounds;
    Fill();
  } while (!full && !Check());
  counters_.full += full ? 1 : 0;
  counters_.classes += set_.size();
  Apply(changed);
}

// Classes and loads of a link's members lie all over memory: those of the next few are fetched
// ahead.
void MaxMin::FetchAhead(const std::vector<Member>& members, std::size_t at) const {
  if (at + kAhead >= members.size()) return;
  __builtin_prefetch(&classes_[members[at + kAhead].id]);
  __builtin_prefetch(&loads_[members[at + kAhead].load]);
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
    if (key.id < links_.size()) {
      const Room& room = rooms_[key.id];
      if (room.unfrozen == 0) {
        PopTop();
        continue;
      }
      const std::int64_t now = room.residual / room.unfrozen;
      if (now > key.level) {
        SinkTop({now, key.id});
        continue;
      }
    } else if (classes_[key.id - links_.size()].frozen) {
      PopTop();
      continue;
    }
    *level = key.level;
    stage_.push_back(key.id);
    PopTop();
  }
  return !stage_.empty();
}

void MaxMin::Freeze(std::uint32_t id, std::int64_t level, std::uint32_t bottleneck) {
  Class& c = classes_[id];
  c.frozen = true;
  c.next = level;
  c.next_bottleneck = bottleneck;
  const std::int64_t heft = c.heft();
  for (std::uint32_t at = c.first; at < c.first + c.count; ++at) {
    Room& room = rooms_[loads_[at].link];
    const std::int64_t weight = heft * loads_[at].share;
    room.unfrozen -= weight;
    room.residual -= weight * level;
  }
}

// The rule for the disturbed set, on what the others leave.
void MaxMin::Fill() {
  heap_.clear();
  for (const std::uint32_t l : set_links_) {
    Link& link = links_[l];
    rooms_[l] = {link.capacity - link.fixed, link.open};
    link.froze = false;
    heap_.push_back({rooms_[l].residual / link.open, l});
  }
  for (const std::uint32_t id : set_) {
    Class& c = classes_[id];
    c.frozen = false;
    if (c.cap_Bps > 0) {
      heap_.push_back(
          {c.cap_Bps * kFine / c.weight, static_cast<std::uint32_t>(links_.size()) + id});
    }
  }
  std::make_heap(heap_.begin(), heap_.end());
  std::int64_t level = 0;
  while (TopLevel(&level)) {
    for (const std::uint32_t id : stage_) {
      if (id >= links_.size()) {
        const auto number = static_cast<std::uint32_t>(id - links_.size());
        if (!classes_[number].frozen) Freeze(number, level, kCap);
        continue;
      }
      links_[id].froze = true;
      const std::vector<Member>& members = links_[id].members;
      for (std::size_t i = 0; i < members.size(); ++i) {
        FetchAhead(members, i);
        const Class& c = classes_[members[i].id];
        if (c.joined == epoch_ && !c.frozen) Freeze(members[i].id, level, id);
      }
    }
  }
}

// Conditions (1) and (2) on every link of the set. Who fails them joins; true if nobody did.
bool MaxMin::Check() {
  const std::size_t before = set_.size();
  const std::size_t links = set_links_.size();
  for (std::size_t i = 0; i < links; ++i) {
    const std::uint32_t number = set_links_[i];
    CheckLink(links_[number], number);
  }
  return set_.size() == before;
}

void MaxMin::CheckLink(Link& link, std::uint32_t number) {
  const std::int64_t slack = rooms_[number].residual;
  const bool fixed_bottlenecked = link.bottlenecked > link.leaving;
  if (!link.froze && !fixed_bottlenecked && slack >= link.weight) return;
  std::int64_t highest = -1, second = -1, weight = 0;  // of the classes at the highest level
  std::int64_t froze_at = -1;
  for (std::size_t i = 0; i < link.members.size(); ++i) {
    FetchAhead(link.members, i);
    const Member m = link.members[i];
    const Class& c = classes_[m.id];
    const std::int64_t level = LevelNow(c);
    if (level > highest) {
      second = highest;
      highest = level;
      weight = 0;
    } else if (level < highest && level > second) {
      second = level;
    }
    if (level == highest) weight += c.heft() * loads_[m.load].share;
    if (c.joined == epoch_ && c.next_bottleneck == number) froze_at = level;
  }
  const bool saturated = slack < weight;
  for (const Member& m : link.members) {
    const Class& c = classes_[m.id];
    if (c.joined == epoch_) continue;
    // A flow of the set was held down here though others have more; or a bottleneck is none any
    // more.
    const bool above = froze_at >= 0 && c.level > froze_at;
    const bool lost = c.bottleneck == number && (c.level < highest || !saturated);
    if (above || lost) Join(m.id);
  }
  // (1) at the lower levels can fail only where they are within rounding of the highest.
  if (second >= 0 && slack < link.weight &&
      (highest - second - 1) < (link.weight - slack + weight - 1) / weight) {
    CheckClose(link, slack);
  }
}

// Condition (1) level by level. Where it fails at v the link ought to have frozen there: all that
// have v or more join.
void MaxMin::CheckClose(const Link& link, std::int64_t slack) {
  close_.clear();
  for (const Member& m : link.members) {
    const Class& c = classes_[m.id];
    close_.emplace_back(LevelNow(c), c.heft() * loads_[m.load].share);
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
  for (const Member& m : link.members) {
    if (LevelNow(classes_[m.id]) >= fails_at) Join(m.id);
  }
}

void MaxMin::Apply(std::vector<std::uint32_t>* changed) {
  for (const std::uint32_t l : set_links_) links_[l].used = links_[l].capacity - rooms_[l].residual;
  for (const std::uint32_t id : set_) {
    Class& c = classes_[id];
    if (c.bottleneck != c.next_bottleneck) {
      if (c.bottleneck < kCap) --links_[c.bottleneck].bottlenecked;
      if (c.next_bottleneck < kCap) ++links_[c.next_bottleneck].bottlenecked;
      c.bottleneck = c.next_bottleneck;
    }
    if (c.level == c.next) continue;
    c.level = c.next;
    ++counters_.changed;
    changed->push_back(id);
  }
}

}  // namespace orrery::network
