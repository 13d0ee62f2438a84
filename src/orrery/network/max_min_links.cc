// Links that cannot hold anybody back: covered ones for good, loose ones for now.
//
// A link is covered by another if every class that ever crossed it crosses that one, too, with a
// share as large, and that one has no more capacity (of equals: the lower number). At every stage
// it has no more residual then, and as much weight or more, so its level is no higher: whom the
// covered link would freeze, the other freezes at the same stage. Its classes have no cells there.
// Typically the way between a GPU and its NIC, or a NIC's link.
//
// A link is loose if it has room for its classes at levels that their bottlenecks do not reach, the
// ceilings. Changes of levels below them pass it by. A level that rises above its ceiling, and a
// class that comes or gets another bottleneck, may make the link tight again, with what it carries
// found from its column; a link that had room for a while becomes loose when a ceiling is set anew.
#include <algorithm>
#include <bit>
#include <utility>

#include "orrery/network/max_min.h"

namespace orrery::network {
namespace {

constexpr std::uint32_t kMostCovering = 16;  // loads of a class whose links may cover others
// A ceiling is set anew once its level is so far below, a part.
constexpr std::int64_t kFarAbove = 8;
constexpr std::size_t kManyCells = 8;  // of a link for which being loose is worth while
constexpr std::uint64_t kCalm = 32;    // solves that a link is tight, at least
// A link becomes loose with so much of its capacity left at the ceilings, a part; looked into where
// so much is left now.
constexpr std::int64_t kLooseRoom = 32, kWorthALook = 10;

}  // namespace

// ---- covered ----

// A class with both loads is held back by the link of `by` first.
bool MaxMin::Covers(const Load& by, const Load& of) const {
  if (by.share < of.share) return false;
  const std::int64_t mine = links_[of.link].capacity, other = links_[by.link].capacity;
  return other != mine ? other < mine : by.link < of.link;
}

// A class was added: what covers its links has to cover them in this one, too.
void MaxMin::CoverLinks(std::uint32_t id) {
  const Class& c = classes_[id];
  const std::span<const Load> all = loads(id);
  for (std::uint32_t i = 0; i < c.count; ++i) {
    const std::uint32_t l = all[i].link;
    if (links_[l].hold != Hold::kCovered) continue;
    Cover& cover = covers_[l];
    std::uint32_t by = 0;
    if (cover.witness == kNone) {
      cover.witness = id;
      for (std::uint32_t j = 0; j < c.count && c.count <= kMostCovering; ++j) {
        if (Covers(all[j], all[i])) by |= 1u << j;
      }
    } else {
      const std::span<const Load> had = loads(cover.witness);
      for (std::uint32_t left = cover.by; left != 0; left &= left - 1) {
        const std::uint32_t j = static_cast<std::uint32_t>(std::countr_zero(left));
        const auto has = std::ranges::find(all, had[j].link, &Load::link);
        if (has != all.end() && has->share >= all[i].share) by |= 1u << j;
      }
    }
    cover.by = by;
    if (by == 0) {
      Uncover(l);
    } else {
      places_[c.first + i].cell = kHidden;
      cover.hidden.push_back(c.first + i);
    }
  }
}

// The link's classes have cells there from now on.
void MaxMin::Uncover(std::uint32_t number) {
  Link& link = links_[number];
  if (link.hold != Hold::kCovered) return;
  link.hold = Hold::kTight;
  const std::vector<std::uint32_t> hidden = std::exchange(covers_[number].hidden, {});
  if (!hidden.empty()) ++counters_.uncovered;
  for (const std::uint32_t at : hidden) {
    places_[at].cell = kNone;
    const Class& c = classes_[places_[at].owner];
    if (c.members == 0) continue;
    const std::int64_t weight = c.heft() * loads_[at].share;
    Enter(at, c.bottleneck, weight);
    link.weight += weight;
    link.used += weight * bottlenecks_[c.bottleneck].level;
  }
}

// ---- loose ----

// Moves the cell in its row to the tight links' part, or out of it.
void MaxMin::SetTight(const Cell& cell, bool tight) {
  Bottleneck& b = bottlenecks_[cell.bottleneck];
  const std::uint32_t from = cell.in_row;
  if ((from < b.tight) == tight) return;
  const std::uint32_t to = tight ? b.tight++ : --b.tight;
  std::swap(b.row[from], b.row[to]);
  cells_[b.row[from].cell].in_row = from;
  cells_[b.row[to].cell].in_row = to;
}

// A loose link carries more, at the ceilings.
void MaxMin::AddToLoose(std::uint32_t number, std::int64_t used) {
  Link& link = links_[number];
  link.used += used;
  if (link.capacity - link.used < link.weight) strained_.push_back(number);
}

// REQUIRES: all of the set have a level, or there is no set yet.
void MaxMin::Tighten(std::uint32_t number) {
  Link& link = links_[number];
  if (link.hold != Hold::kLoose) return;
  link.hold = Hold::kTight;
  settled_[number] = counters_.solves;
  ++counters_.tightened;
  std::int64_t fixed = 0, used = 0, open = 0, next = 0;
  for (const ColumnEntry& entry : columns_[number]) {
    SetTight(cells_[entry.cell], true);
    const Bottleneck& b = bottlenecks_[entry.bottleneck];
    const std::int64_t weight = EntryOf(cells_[entry.cell]).weight;
    used += weight * b.level;
    if (InSet(entry.bottleneck)) {
      open += weight;
      next += weight * next_[entry.bottleneck];
    } else {
      fixed += weight * b.level;
    }
  }
  link.used = used;
  if (open == 0) return;
  link.epoch = epoch_;
  link.fixed = fixed;
  link.open = open;
  link.residual = link.capacity - fixed - next;
  link.unfrozen = 0;
  link.asked = link.froze = false;
  set_links_.push_back(number);
}

void MaxMin::TryToLoosen(std::uint32_t number) {
  Link& link = links_[number];
  if (link.holds || columns_[number].size() < kManyCells) return;
  if (counters_.solves < settled_[number] + kCalm) return;
  if (link.capacity - link.used < link.capacity / kWorthALook) return;
  std::int64_t used = 0;
  for (const ColumnEntry& entry : columns_[number]) {
    used += EntryOf(cells_[entry.cell]).weight * bottlenecks_[entry.bottleneck].ceiling;
  }
  if (link.capacity - used < link.weight + link.capacity / kLooseRoom) {
    settled_[number] = counters_.solves;
    return;
  }
  for (const ColumnEntry& entry : columns_[number]) SetTight(cells_[entry.cell], false);
  link.hold = Hold::kLoose;
  link.used = used;
  ++counters_.loosened;
}

void MaxMin::SetCeiling(std::uint32_t bottleneck, std::int64_t ceiling) {
  Bottleneck& b = bottlenecks_[bottleneck];
  const std::int64_t higher = ceiling - b.ceiling;
  b.ceiling = ceiling;
  for (const RowEntry& entry : b.loose_row()) AddToLoose(entry.link, entry.weight * higher);
  reset_.push_back(bottleneck);
}

// Before a filling is checked: no level is above its ceiling, and loose links have room.
void MaxMin::RaiseCeilings() {
  for (const std::uint32_t id : set_) {
    const Bottleneck& b = bottlenecks_[id];
    if (next_[id] > b.ceiling) SetCeiling(id, Above(next_[id]));
  }
  for (const std::uint32_t l : strained_) {
    if (links_[l].capacity - links_[l].used < links_[l].weight) Tighten(l);
  }
  strained_.clear();
}

// After the last filling: no ceiling is far above its level, and links that have room are loose.
void MaxMin::LowerCeilings() {
  for (const std::uint32_t id : set_) {
    const Bottleneck& b = bottlenecks_[id];
    if (!b.row.empty() && next_[id] < b.ceiling - b.ceiling / kFarAbove) {
      SetCeiling(id, Above(next_[id]));
    }
  }
  for (const std::uint32_t id : reset_) {
    if (always_full_) break;
    const Bottleneck& b = bottlenecks_[id];
    for (std::uint32_t i = b.tight; i-- > 0;) TryToLoosen(b.row[i].link);
  }
  reset_.clear();
}

}  // namespace orrery::network
