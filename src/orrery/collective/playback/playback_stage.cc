#include "orrery/collective/playback/playback_stage.h"

namespace orrery::collective::playback {

Stage::Stage(const Plan& plan, int places, int batches, bool all)
    : domains_(plan.shape.domains),
      levels_(all ? plan.shape.domains : LevelsOf(plan.shape.domains)),
      trees_(plan.shape.domains == 1 ? 1 : 2),
      places_(places),
      batches_(batches),
      all_(all),
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
  if (all_) {
    const BinaryNode node = Node(level, tree);
    return (node.child[0] >= 0 ? 1 : 0) + (node.child[1] >= 0 ? 1 : 0);
  }
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
    const int in = all_ ? tree : 0;
    const std::int32_t slot = Connect(id, At(parent, in, batch, 0, 0), kind);
    targets_.push_back({NicIn(parent, in), slot});
    window = slot;
  };
  if (all_) {
    const int parent = Node(level, tree).parent;
    to(parent, Node(parent, tree).child[0] == level ? 1 : 2);
  } else if (tree == 0) {
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
void Stage::SendDown(int level, int tree, int batch, int child, std::int32_t sender, int at) {
  const auto to = [&](int receiver, int in) {
    const std::int32_t slot = Connect(sender, At(receiver, in, batch, 0, 1), 0);
    targets_.push_back({NicIn(receiver, in), slot});
    return slot;
  };
  std::int32_t window = -1;
  if (all_) {
    const int receiver = Node(level, tree).child[child - 1];
    AddWay(sender, at, kNet, NicOut(level, tree), batch, to(receiver, tree));
    return;
  }
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

// Batches of rounds, as equal as can be; the smaller last chunk alone.
void Stage::SetSizes(std::int64_t rounds, std::int64_t batches, bool tail) {
  full_ = static_cast<std::int32_t>(batches);
  rounds_ = full_ + (tail ? 1 : 0);
  sizes_.assign(static_cast<std::size_t>(rounds_), 1);
  std::vector<std::int64_t> ends(static_cast<std::size_t>(rounds_));
  std::int64_t end = 0;
  for (std::int64_t b = 0; b < rounds_; ++b) {
    const auto i = static_cast<std::size_t>(b);
    if (b < batches) sizes_[i] = rounds * (b + 1) / batches - rounds * b / batches;
    ends[i] = end += sizes_[i];
  }
  needs_.assign(static_cast<std::size_t>(rounds_), -1);
  std::int32_t need = -1;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    while (ends[i] - credits_ > (need < 0 ? 0 : ends[static_cast<std::size_t>(need)])) ++need;
    needs_[i] = need;
  }
}

Playback Stage::Play(const Plan& plan, const Limits& limits) {
  const model::Pieces pieces = model::Cut(plan);
  std::int64_t messages = 0;  // of a round
  for (const Way& way : ways_) {
    const bool enters = way.kind == kNet || way.kind == kOwn ||
                        (way.kind == kNvlink && way.targets < way.targets_end &&
                         targets_[static_cast<std::size_t>(way.targets)].in >= 0);
    messages += enters ? 2 : 1;
  }
  if (ways_.size() > 0x7FFF) return {};
  Playback result;
  const std::int64_t most = limits.messages / messages;
  const std::int64_t together = std::clamp<std::int64_t>(limits.together, 1, credits_);
  result.rounds = std::min({pieces.rounds, limits.windows * credits_, most * together});
  if (result.rounds < std::min(pieces.rounds, kFewestRounds)) return {};
  SetSizes(result.rounds, std::min(result.rounds, most), pieces.tail.slices > 0);
  SetTimes(pieces.full, &times_[0]);
  if (rounds_ > full_) SetTimes(pieces.tail, &times_[1]);
  for (Lane& lane : lanes_) {
    for (int i = 0; i < lane.steps; ++i) {
      const Work work = steps_[static_cast<std::size_t>(lane.first + i)].work;
      lane.cycle[0] += times_[0].work[work];
      lane.cycle[1] += times_[1].work[work];
    }
  }
  Prepare();
  const auto rounds = static_cast<std::size_t>(rounds_);
  cells_ = std::make_unique_for_overwrite<Span[]>(slots_.size() * rounds);
  tails_ = std::make_unique_for_overwrite<SimTime[]>(ways_.size() * rounds);
  for (std::size_t id = 0; id < lanes_.size(); ++id) Run(static_cast<std::int32_t>(id));
  const std::size_t ways = ways_.size();
  while (!events_.empty()) {
    const Event event = Pop();
    if (event.number < ways) {
      Leave(event.number, event.time);
    } else {
      Enter(event.number - ways, event.time);
    }
  }
  for (const Lane& lane : lanes_) {
    ORRERY_CHECK(lane.steps == 0 || lane.round == rounds_, "a playback that waits for itself");
  }
  result.time = end_ + Late(Of(rounds_ - 1));
  return result;
}

void Stage::Push(SimTime time, std::size_t number) {
  const Event event{time, sequence_++, static_cast<std::uint32_t>(number)};
  std::size_t at = events_.size();
  events_.push_back(event);
  while (at > 0 && event < events_[(at - 1) / 4]) {
    events_[at] = events_[(at - 1) / 4];
    at = (at - 1) / 4;
  }
  events_[at] = event;
}

Event Stage::Pop() {
  const Event top = events_[0], last = events_.back();
  events_.pop_back();
  const std::size_t size = events_.size();
  std::size_t at = 0;
  for (std::size_t child = 1; child < size; child = 4 * at + 1) {
    std::size_t least = child;
    if (child + 4 <= size) {
      const Event* c = events_.data() + child;
      const std::size_t low = c[1] < c[0] ? 1 : 0, high = c[3] < c[2] ? 3 : 2;
      least += c[high] < c[low] ? high : low;
    } else {
      for (std::size_t i = child + 1; i < size; ++i) {
        if (events_[i] < events_[least]) least = i;
      }
    }
    if (last < events_[least]) break;
    events_[at] = events_[least];
    at = least;
  }
  if (size > 0) events_[at] = last;
  return top;
}

// One step of a lane, if it can be had now: what it waits for is known.
bool Stage::TakeStep(std::int32_t id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (lane.round >= rounds_ || lane.steps == 0) return false;
  const Step step = steps_[static_cast<std::size_t>(lane.first + lane.step)];
  const Times& times = Of(lane.round);
  // The first round's steps come before the second round's: a batch is not step after step.
  Span ready{lane.step == 0 ? lane.free : lane.head, lane.step == 0 ? 0 : lane.free};
  SimTime least = 0;
  const auto wait = [&ready](const Span& for_it, SimTime more) {
    ready.head = std::max(ready.head, for_it.head + more);
    ready.tail = std::max(ready.tail, for_it.tail + more);
  };
  if (step.source >= 0) {
    if (slots_[static_cast<std::size_t>(step.source)].arrived <= lane.round) return false;
    const Span& arrival = Cell(step.source, lane.round);
    wait(arrival, 0);
    if (step.work == kGather) least = arrival.head + times.spread;
  }
  const Way* way = step.way < 0 ? nullptr : &ways_[static_cast<std::size_t>(step.way)];
  const std::int32_t used = needs_[static_cast<std::size_t>(lane.round)];
  if (way != nullptr && used >= 0) {
    lane.blocked = slots_[static_cast<std::size_t>(way->window)].consumed <= used;
    if (lane.blocked) return false;
    wait(Cell(way->window, used), back_[way->kind]);
  }
  const SimTime work = times.work[step.work];
  Span end;
  end.head = std::max(ready.head + work, least);
  end.tail = std::max(end.head + (Size(lane.round) - 1) * lane.cycle[lane.round < full_ ? 0 : 1],
                      ready.tail + work);
  lane.head = end.head;
  lane.free = end.tail;
  end_ = std::max(end_, lane.free);
  if (way != nullptr) {
    const auto number = static_cast<std::size_t>(step.way);
    Tail(number, lane.round) = end.tail + post_[way->kind];
    Push(end.head + post_[way->kind], number);
  }
  if (step.source >= 0) {
    Slot& slot = slots_[static_cast<std::size_t>(step.source)];
    Cell(step.source, lane.round) = end;
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

void Stage::Deliver(std::int32_t number, Span time) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  Cell(number, slot.arrived++) = time;
  Run(slot.lane);
}

// A batch stands before its port out. Its port is held for its messages alone: what comes between
// them goes between them.
void Stage::Leave(std::size_t number, SimTime time) {
  Way& way = ways_[number];
  const std::int32_t round = way.left++;
  const Times& times = Of(round);
  const SimTime size = Size(round);
  Span passes{time, Tail(number, round)};
  if (way.channel >= 0) {
    const auto r = static_cast<std::size_t>(round);
    passes.head = std::max(time, (way.kind == kScatter ? last_part_[r] : first_part_[r]) +
                                     way.channel * times.serial[way.kind]);
    passes.tail = std::max(passes.head, passes.tail);
  } else {
    passes = Through(&ports_[static_cast<std::size_t>(way.out)], passes, size,
                     times.port[way.kind][way.last_batch]);
  }
  if (way.targets == way.targets_end) return;
  const Target& target = targets_[static_cast<std::size_t>(way.targets)];
  const SimTime delay = times.delay[way.kind];
  if (target.in < 0) {
    Deliver(target.slot, {passes.head + delay, passes.tail + delay});
  } else {
    Tail(number, round) = passes.tail + delay - times.serial[way.kind];
    Push(passes.head + delay - times.serial[way.kind], ways_.size() + number);
  }
}

// Its head stands before the ports in.
void Stage::Enter(std::size_t number, SimTime time) {
  Way& way = ways_[number];
  const std::int32_t round = way.entered++;
  const Times& times = Of(round);
  const Span comes{time, Tail(number, round)};
  const SimTime serial = times.serial[way.kind];
  for (std::int32_t t = way.targets; t < way.targets_end; ++t) {
    const Target target = targets_[static_cast<std::size_t>(t)];
    const Span passes = Through(&ports_[static_cast<std::size_t>(target.in)], comes, Size(round),
                                times.port[way.kind][way.last_batch]);
    Deliver(target.slot, {passes.head + serial, passes.tail + serial});
  }
}

Span Stage::Through(Port* port, const Span& comes, SimTime size, SimTime each) {
  SimTime behind = 0;  // what is to come of those before
  if (comes.head < port->until) {
    behind = port->work * (port->until - comes.head) / (port->until - port->from);
  }
  Span passes;
  passes.head = std::max(comes.head, port->free - behind);
  port->free = std::max(comes.head, port->free) + size * each;
  passes.tail = std::max(port->free - each, comes.tail);
  if (comes.tail > comes.head) {
    port->from = comes.head;
    port->until = std::max(port->until, comes.tail);
    port->work = behind + (size - 1) * each;
  }
  return passes;
}

}  // namespace orrery::collective::playback
