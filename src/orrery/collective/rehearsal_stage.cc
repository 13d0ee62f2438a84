#include "orrery/collective/rehearsal_stage.h"

namespace orrery::collective::rehearsal {

Stage::Stage(const Plan& plan, int places, int batches)
    : domains_(plan.shape.domains),
      levels_(LevelsOf(plan.shape.domains)),
      trees_(plan.shape.domains == 1 ? 1 : 2),
      places_(places),
      batches_(batches),
      apart_(!model::IsNvls(plan) && plan.channels <= plan.shape.nics),
      late_child_(model::IsNvls(plan)),
      credits_(plan.credits) {
  const auto lanes = static_cast<std::size_t>(levels_ * Stride());
  lanes_.resize(lanes);
  slots_.resize(lanes * kSlots);
  steps_.reserve(2 * lanes);
  ways_.reserve(lanes + 8);
  targets_.reserve(lanes + 8);
}

int Stage::Far(int level, int tree) const {
  if (domains_ == 1 || tree == 1) return 0;
  if (level == levels_ - 1) return 1;
  return domains_ > (2 << level) + 1 ? 2 : 1;
}

int Stage::Second(int level) const {
  for (int half = level - 1; half >= 0; --half) {
    if ((2 << level) + (2 << half) < domains_) return half;
  }
  return -1;
}

// The steps may move when more are added.
Step* Stage::AddSteps(std::int32_t lane, int count) {
  Lane& l = lanes_[static_cast<std::size_t>(lane)];
  l.first = static_cast<std::int32_t>(steps_.size());
  l.steps = static_cast<std::int8_t>(count);
  steps_.resize(steps_.size() + static_cast<std::size_t>(count));
  return &steps_[static_cast<std::size_t>(l.first)];
}

// The slot of `to` for what `from` sends.
std::int32_t Stage::Connect(std::int32_t from, std::int32_t to, int kind) {
  const std::int32_t slot = to * kSlots + kind;
  Slot& s = slots_[static_cast<std::size_t>(slot)];
  s.lane = to;
  if (s.sender < 0) {
    s.sender = from;
    s.senders = 1;
  }
  return slot;
}

Way& Stage::AddWay(std::int32_t lane, int at, Kind kind, std::int32_t out, int batch,
                   std::int32_t window) {
  const Lane& from = lanes_[static_cast<std::size_t>(lane)];
  steps_[static_cast<std::size_t>(from.first + at)].way = static_cast<std::int32_t>(ways_.size());
  Way way;
  way.lane = lane;
  way.out = out;
  way.kind = kind;
  way.last_batch = batch == batches_ - 1 ? 1 : 0;
  way.window = window;
  way.targets = ways_.empty() ? 0 : ways_.back().targets_end;
  way.targets_end = static_cast<std::int32_t>(targets_.size());
  ways_.push_back(way);
  return ways_.back();
}

// To the parent.
void Stage::SendUp(int level, int tree, int batch, int at) {
  const std::int32_t id = At(level, tree, batch, 0, 0);
  std::int32_t window = -1;
  const auto to = [&](int parent, int kind) {
    const std::int32_t slot = Connect(id, At(parent, 0, batch, 0, 0), kind);
    targets_.push_back({NicIn(parent, 0), slot});
    window = slot;
  };
  if (tree == 0) {
    for (int parent = levels_ - 1; parent > level; --parent) {
      if (Far(parent, 0) == 2 && Second(parent) == level) to(parent, 2);
      if (parent == level + 1) to(parent, 1);
    }
  } else if (level == 0) {
    to(0, 1);
  } else {
    const int kind = Far(0, 0) == 2 ? 2 : 1;
    window = At(0, 0, batch, 0, 0) * kSlots + kind;
    if (level == 1) {
      for (int parent = levels_ - 2; parent >= 1; --parent) {
        if (Far(parent, 0) == 2 && Second(parent) < 0) to(parent, 2);
      }
      if (kind == 2) to(0, 2);
    }
    if (kind == 2) {  // leaves of all levels but the lowest have this credit
      Slot& slot = slots_[static_cast<std::size_t>(window)];
      slot.sender = At(levels_ - 1, 1, batch, 0, 0);
      slot.senders = levels_ - 1;
    }
  }
  AddWay(id, at, kNet, NicOut(level, tree), batch, window);
}

// To a child over the network. The longest way is by the one that is served last.
void Stage::SendDown(int level, int batch, int child, std::int32_t sender, int at) {
  const auto to = [&](int receiver, int tree) {
    const std::int32_t slot = Connect(sender, At(receiver, tree, batch, 0, 1), 0);
    targets_.push_back({NicIn(receiver, tree), slot});
    return slot;
  };
  std::int32_t window = -1;
  const bool last = Far(level, 0) == 1 || (child == 2) == late_child_;
  if (level > 0) {
    window = At(level - 1, 0, batch, 0, 1) * kSlots;
    if (last) to(level - 1, 0);
  } else {
    if (child == 1) window = to(0, 1);
    if (child == 2 || Far(0, 0) == 1) {
      for (int other = levels_ - 1; other >= 1; --other) {
        const std::int32_t slot = to(other, 1);
        if (child == 2) window = slot;
      }
    }
  }
  AddWay(sender, at, kNet, NicOut(level, 0), batch, window);
}

Rehearsed Stage::Play(const Plan& plan, std::int64_t most_messages) {
  const model::Pieces pieces = model::Cut(plan);
  std::int64_t messages = 0;  // of a round
  for (const Way& way : ways_) {
    const bool enters = way.kind == kNet || way.kind == kOwn ||
                        (way.kind == kNvlink && way.targets < way.targets_end &&
                         targets_[static_cast<std::size_t>(way.targets)].in >= 0);
    messages += enters ? 2 : 1;
  }
  if (ways_.size() > 0x7FFF) return {};
  Rehearsed result;
  result.rounds =
      std::min({pieces.rounds, std::int64_t{kMostWindows} * credits_, most_messages / messages});
  if (result.rounds < std::min(pieces.rounds, kFewestRounds)) return {};
  full_ = static_cast<std::int32_t>(result.rounds);
  rounds_ = full_ + (pieces.tail.slices > 0 ? 1 : 0);
  SetTimes(pieces.full, &times_[0]);
  if (rounds_ > full_) SetTimes(pieces.tail, &times_[1]);
  Prepare();
  cells_ =
      std::make_unique_for_overwrite<SimTime[]>(slots_.size() * static_cast<std::size_t>(rounds_));
  for (std::size_t id = 0; id < lanes_.size(); ++id) Run(static_cast<std::int32_t>(id));
  const std::size_t ways = ways_.size();
  while (!events_.empty()) {
    const std::uint64_t event = events_.front();
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    events_.pop_back();
    const auto time = static_cast<SimTime>(event >> 16);
    const std::size_t way = event & 0xFFFF;
    if (way < ways) {
      Leave(way, time);
    } else {
      Enter(way - ways, time);
    }
  }
  result.time = end_ + Late(Of(rounds_ - 1));
  return result;
}

// One step of a lane, if it can be had now: what it waits for is known.
bool Stage::TakeStep(std::int32_t id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (lane.round >= rounds_ || lane.steps == 0) return false;
  const Step step = steps_[static_cast<std::size_t>(lane.first + lane.step)];
  const Times& times = Of(lane.round);
  SimTime start = lane.free;
  SimTime least = 0;
  if (step.source >= 0) {
    if (slots_[static_cast<std::size_t>(step.source)].arrived <= lane.round) return false;
    const SimTime arrival = Cell(step.source, lane.round);
    start = std::max(start, arrival);
    if (step.work == kGather) least = arrival + times.spread;
  }
  const Way* way = step.way < 0 ? nullptr : &ways_[static_cast<std::size_t>(step.way)];
  if (way != nullptr && lane.round >= credits_) {
    const std::int32_t used = lane.round - credits_;
    lane.blocked = slots_[static_cast<std::size_t>(way->window)].consumed <= used;
    if (lane.blocked) return false;
    start = std::max(start, Cell(way->window, used) + back_[way->kind]);
  }
  lane.free = std::max(start + times.work[step.work], least);
  end_ = std::max(end_, lane.free);
  if (way != nullptr) Push(lane.free + post_[way->kind], static_cast<std::size_t>(step.way));
  if (step.source >= 0) {
    Slot& slot = slots_[static_cast<std::size_t>(step.source)];
    Cell(step.source, lane.round) = lane.free;
    ++slot.consumed;
    for (std::int32_t i = 0; i < slot.senders; ++i) {
      const std::int32_t sender = slot.sender + i * Stride();
      if (lanes_[static_cast<std::size_t>(sender)].blocked) todo_.push_back(sender);
    }
  }
  if (++lane.step == lane.steps) {
    lane.step = 0;
    ++lane.round;
  }
  return true;
}

void Stage::Run(std::int32_t id) {
  while (TakeStep(id)) {
  }
  while (!todo_.empty()) {
    const std::int32_t sender = todo_.back();
    todo_.pop_back();
    while (TakeStep(sender)) {
    }
  }
}

void Stage::Deliver(std::int32_t number, SimTime time) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  Cell(number, slot.arrived++) = time;
  Run(slot.lane);
}

// A message stands before its port out.
void Stage::Leave(std::size_t number, SimTime time) {
  Way& way = ways_[number];
  const std::int32_t round = way.left++;
  const Times& times = Of(round);
  SimTime start = time;
  if (way.channel >= 0) {
    const auto r = static_cast<std::size_t>(round);
    start = std::max(time, (way.kind == kScatter ? last_part_[r] : first_part_[r]) +
                               way.channel * times.serial[way.kind]);
  } else {
    SimTime& free = ports_[static_cast<std::size_t>(way.out)];
    start = std::max(time, free);
    free = start + times.port[way.kind][way.last_batch];
  }
  const SimTime arrival = start + times.delay[way.kind];
  if (way.targets == way.targets_end) return;
  const Target& target = targets_[static_cast<std::size_t>(way.targets)];
  if (target.in < 0) {
    Deliver(target.slot, arrival);
  } else {
    Push(arrival - times.serial[way.kind], ways_.size() + number);
  }
}

// Its head stands before the ports in.
void Stage::Enter(std::size_t number, SimTime time) {
  Way& way = ways_[number];
  const Times& times = Of(way.entered++);
  for (std::int32_t t = way.targets; t < way.targets_end; ++t) {
    const Target target = targets_[static_cast<std::size_t>(t)];
    SimTime& free = ports_[static_cast<std::size_t>(target.in)];
    const SimTime start = std::max(time, free);
    free = start + times.port[way.kind][way.last_batch];
    Deliver(target.slot, start + times.serial[way.kind]);
  }
}

}  // namespace orrery::collective::rehearsal
