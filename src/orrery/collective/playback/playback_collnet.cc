// CollNet (collnet.h), message by message. All domains do the same at the same time, and each has
// ways of its own into the fabric: one stands for all, and so does one GPU where each is a head.
// Where domains take turns, those whose turn is played have the lanes and ways of their turn apart:
// a gather's into the fabric, a reduce-scatter's out of it. Who has no turn holds nobody up.
//
// What is played are the steps of lowering_collnet.cc through FIFO ports, as the ideal executor of
// the tests has them: a lane's step begins when the one before it has ended, its message has come
// and a credit is there.
#include <algorithm>
#include <vector>

#include "orrery/collective/algorithms/collnet.h"
#include "orrery/collective/formula/formula.h"
#include "orrery/collective/playback/playback.h"

namespace orrery::collective {
namespace {

using collnet::Lane;

// Where a message goes: through the sender's port, the receiver's, or both.
enum Way : std::int8_t { kBetween, kIntoNvSwitch, kOutOfNvSwitch, kUpFabric, kDownFabric, kWays };

class Stage {
 public:
  Stage(const Plan& plan, const model::WhiteBox& box, std::int64_t most_messages);
  Playback Play();

 private:
  struct Wire {
    Way way = kBetween;
    std::int32_t out = -1, in = -1;  // ports
    std::int32_t credits = 0, arrived = 0;
    std::int32_t sender = -1, receiver = -1;  // lanes that wait
    std::int32_t owner = -1, channel = 0;     // the domain whose part it carries; -1: all
  };
  struct Step {
    std::int32_t recv = -1, send = -1;
    std::int8_t work = 0;  // of Times; kOwned
    std::int32_t owner = -1, channel = 0;
  };
  struct Player {
    std::int32_t first = 0, steps = 0, at = 0, round = 0;
    bool busy = false;
  };
  struct Times {
    SimTime work[18] = {};
    SimTime serial[kWays] = {}, head[kWays] = {}, rest[kWays] = {};
  };
  enum Kind : std::uint8_t { kEnd, kLeave, kEnter, kArrive, kCredit };
  struct Event {
    SimTime time = 0;
    std::uint32_t sequence = 0;
    Kind kind = kEnd;
    std::int32_t index = 0, round = 0;  // lane or wire
    bool operator>(const Event& o) const {
      return time != o.time ? time > o.time : sequence > o.sequence;
    }
  };

  std::int32_t NvOut(int gpu) const { return 2 * gpu; }
  std::int32_t NvIn(int gpu) const { return 2 * gpu + 1; }
  std::int32_t NicOut(int nic) const { return 2 * (gpus_ + nic); }
  std::int32_t NicIn(int nic) const { return 2 * (gpus_ + nic) + 1; }
  std::int32_t AddWire(Way way, std::int32_t out, std::int32_t in) {
    wires_.push_back({way, out, in, plan_.credits, 0, -1, -1, -1, 0});
    return static_cast<std::int32_t>(wires_.size() - 1);
  }
  void AddLane(std::span<const Step> steps) {
    lanes_.push_back({static_cast<std::int32_t>(steps_.size()),
                      static_cast<std::int32_t>(steps.size()), 0, 0, false});
    steps_.insert(steps_.end(), steps.begin(), steps.end());
  }
  void BuildHeads();
  void BuildHeadsOf(int channel, int place, std::vector<Step>* steps);
  void BuildChain();
  void SetTimes(const model::Chunk& chunk, Times* times) const;
  void Push(SimTime time, Kind kind, std::int32_t index, std::int32_t round) {
    events_.push_back({time, sequence_++, kind, index, round});
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
  }
  void TryStart(std::int32_t id);
  void EndStep(std::int32_t id);
  SimTime Through(std::int32_t port, SimTime serial);
  // Of a message on its wire, and of a step.
  struct Passage {
    SimTime serial = 0, head = 0, rest = 0;
  };
  Passage PassageOf(const Wire& wire, std::int32_t round) const;
  Step StepOf(const Player& lane) const;
  SimTime WorkOf(const Step& step, std::int32_t round) const;
  void SetRounds(std::int64_t messages, std::int64_t most_messages);
  void BuildTurns();
  std::vector<std::int64_t> OwnersOf(int channel) const;
  std::int64_t OwnedBytes(int channel, std::int32_t round, std::int32_t owner) const {
    const std::int64_t number = round < full_ ? round : pieces_.rounds;
    return collnet::ChunkOnRail(plan_, pieces_, channel, number).Of(owner);
  }

  const Plan& plan_;
  const model::WhiteBox& box_;
  const model::Pieces pieces_;
  int gpus_ = 1;   // that are played
  int group_ = 1;  // of a domain
  std::vector<Wire> wires_;
  std::vector<Step> steps_;
  std::vector<Player> lanes_;
  std::vector<SimTime> ports_;
  // CND, NVLS: wires by channel, head and place.
  std::vector<std::int32_t> to_head_, from_head_;
  Times times_[2];  // of a full chunk and of the last
  SimTime post_[kWays] = {}, back_[kWays] = {};
  std::int32_t full_ = 0, rounds_ = 0;
  std::vector<Event> events_;
  std::uint32_t sequence_ = 0;
  SimTime now_ = 0, end_ = 0;
};

// A step's work, as an index of Times::work: nothing; of a head's lane (kFirst + Lane) with the
// wait before it, and without (kNext + Lane); of a lane of another GPU, kOthers further; the
// chain's. kOwned is not in the table: what the domain whose turn it is does to its part.
constexpr int kNone = 0, kFirst = 1, kNext = 5, kOthers = 8, kChain = 17, kOwned = 18;

Stage::Stage(const Plan& plan, const model::WhiteBox& box, std::int64_t most_messages)
    : plan_(plan), box_(box), pieces_(model::Cut(plan)), group_(plan.shape.ranks_per_domain) {
  const bool chain = plan.algorithm == Algorithm::kCollNetChain;
  // Chains begin at each GPU in turn: with as many at each, each has all places of some.
  const bool alike =
      chain ? plan.channels % group_ == 0 && plan.shape.nics == group_ : plan.heads == group_;
  gpus_ = alike ? 1 : group_;
  for (const Way way : {kBetween, kIntoNvSwitch, kOutOfNvSwitch}) {
    post_[way] = RoundToPs(box.intra.post);
    back_[way] = RoundToPs(box.intra.latency * (way == kBetween ? 1 : 0.5));
  }
  for (const Way way : {kUpFabric, kDownFabric}) {
    post_[way] = RoundToPs(box.inter.post);
    back_[way] = RoundToPs(box.inter.latency);
  }
  const int nics = alike ? 1 : chain ? std::max(1, plan.shape.nics) : plan.heads;
  ports_.resize(static_cast<std::size_t>(2 * (gpus_ + nics)));
  const bool turns = plan.collective != graph::Collective::kAllReduce;
  if (turns) {
    SetRounds(std::int64_t{plan.channels} * (group_ + 1), most_messages);
    BuildTurns();
    return;
  }
  if (chain) {
    BuildChain();
  } else {
    BuildHeads();
  }
  std::int64_t messages = 0;  // of a round
  for (const Step& step : steps_) messages += step.send >= 0 ? 1 : 0;
  SetRounds(messages, most_messages);
}

void Stage::SetRounds(std::int64_t messages, std::int64_t most_messages) {
  const std::int64_t rounds =
      std::clamp<std::int64_t>(most_messages / std::max<std::int64_t>(1, messages), 1,
                               std::max<std::int64_t>(1, pieces_.rounds));
  full_ = static_cast<std::int32_t>(std::min(rounds, pieces_.rounds));
  rounds_ = full_ + (pieces_.tail.slices > 0 ? 1 : 0);
}

// The domains whose turn it is in one of the rounds that are played.
std::vector<std::int64_t> Stage::OwnersOf(int channel) const {
  std::vector<std::int64_t> owners;
  for (std::int32_t r = 0; r < rounds_; ++r) {
    const collnet::OnRail chunk =
        collnet::ChunkOnRail(plan_, pieces_, channel, r < full_ ? r : pieces_.rounds);
    for (std::int64_t d = chunk.first(); d <= chunk.last() && d < plan_.shape.domains; ++d) {
      if (owners.empty() || owners.back() < d) owners.push_back(d);
    }
  }
  return owners;
}

// One GPU for all of the domains' and all domains, as each is a head, and the ways of the turns.
void Stage::BuildTurns() {
  const bool direct = collnet::Direct(plan_), gathers = nvls::Gathers(plan_.collective);
  const int others = group_ - (direct ? 1 : 0);
  const int parts = collnet::Parts(plan_, true);
  ports_.resize(static_cast<std::size_t>(4 + plan_.shape.domains));
  std::vector<std::int32_t> near(static_cast<std::size_t>(group_));
  std::vector<Step> fan, copies, sum;
  for (int c = 0; c < plan_.channels; ++c) {
    // Of a gather: what the fabric sends is handed on to all and copied by all; else backwards.
    for (int p = 0; p < group_; ++p) {
      const bool through = !direct && (gathers || p != 0);
      near[static_cast<std::size_t>(p)] = !through  ? AddWire(kBetween, NvOut(0), NvIn(0))
                                          : gathers ? AddWire(kOutOfNvSwitch, -1, NvIn(0))
                                                    : AddWire(kIntoNvSwitch, NvOut(0), NvIn(0));
    }
    const std::int32_t common =
        gathers ? AddWire(kDownFabric, -1, NicIn(0)) : AddWire(kUpFabric, NicOut(0), -1);
    const Lane lane = gathers ? collnet::kBroadcast : collnet::kReduce;
    const auto of = [&](Lane l, bool first) {
      return static_cast<std::int8_t>((first ? kFirst : kNext) + l);
    };
    fan.clear();
    for (int s = 0; s < std::max(1, others); ++s) {
      const bool works = gathers ? s == 0 : s + 1 >= others;
      const std::int32_t way = others > 0 ? near[static_cast<std::size_t>(s)] : -1;
      const std::int32_t net = works ? common : -1;
      fan.push_back({gathers ? net : way, gathers ? way : net,
                     works ? of(lane, true) : std::int8_t{kNone}, -1, 0});
    }
    AddLane(fan);
    copies.clear();
    for (int s = 0; s < parts; ++s) {
      const std::int32_t way = near[static_cast<std::size_t>(s)];
      copies.push_back({gathers ? way : -1, gathers ? -1 : way,
                        of(gathers ? collnet::kGather : collnet::kScatter, s == 0), -1, 0});
    }
    AddLane(copies);
    const std::size_t first = sum.size();
    for (const std::int64_t d : OwnersOf(c)) {
      const auto owner = static_cast<std::int32_t>(d);
      const std::int32_t port = 4 + owner;
      const std::int32_t wire =
          gathers ? AddWire(kUpFabric, port, -1) : AddWire(kDownFabric, -1, port);
      wires_.back().owner = owner;
      wires_.back().channel = c;
      AddLane(std::vector<Step>{{gathers ? -1 : wire, gathers ? wire : -1, kOwned, owner, c}});
      sum.push_back({gathers ? wire : -1, gathers ? -1 : wire, kNone, owner, c});
    }
    if (gathers) {
      sum.back().send = common;
    } else {
      sum[first].recv = common;
    }
  }
  AddLane(sum);  // channel by channel
}

// A GPU's wires are those that it sends on, and those that it hears on are their images on the
// other GPUs: what is sent to the k-th neighbour is heard from the k-th one before.
void Stage::BuildHeads() {
  const bool direct = collnet::Direct(plan_);
  const int heads = plan_.heads;
  const auto cells = static_cast<std::size_t>(plan_.channels * heads * group_);
  to_head_.assign(cells, -1);
  from_head_.assign(cells, -1);
  const auto cell = [&](int c, int head, int place) {
    return static_cast<std::size_t>((c * heads + head) * group_ + place);
  };
  const auto gpu = [&](int place) { return gpus_ == 1 ? 0 : place; };
  for (int c = 0; c < plan_.channels; ++c) {
    for (int head = 0; head < heads; ++head) {
      for (int place = 0; place < group_; ++place) {
        if (direct && place == head) continue;
        // One GPU for all: the wires of one distance are one.
        if (gpus_ == 1 && head != 0) {
          const int image = (place - head + group_) % group_;
          to_head_[cell(c, head, place)] = to_head_[cell(c, 0, image)];
          from_head_[cell(c, head, place)] = from_head_[cell(c, 0, image)];
          continue;
        }
        const Way up = direct || place == head ? kBetween : kIntoNvSwitch;
        to_head_[cell(c, head, place)] = AddWire(up, NvOut(gpu(place)), NvIn(gpu(head)));
        from_head_[cell(c, head, place)] =
            direct ? AddWire(kBetween, NvOut(gpu(head)), NvIn(gpu(place)))
                   : AddWire(kOutOfNvSwitch, -1, NvIn(gpu(place)));
      }
    }
  }
  std::vector<Step> steps;
  for (int place = 0; place < gpus_; ++place) {
    for (int c = 0; c < plan_.channels; ++c) BuildHeadsOf(c, place, &steps);
  }
}

// The steps of one GPU's lanes in one channel, as Schedule::HeadsStep has them.
void Stage::BuildHeadsOf(int channel, int place, std::vector<Step>* steps) {
  const bool direct = collnet::Direct(plan_);
  const int heads = plan_.heads;
  const bool head = place < heads;
  const int skip = direct && head ? 1 : 0;
  const auto wire = [&](const std::vector<std::int32_t>& of, int h, int p) {
    return of[static_cast<std::size_t>((channel * heads + h) * group_ + p)];
  };
  const auto work = [&](Lane lane, bool first) {
    return static_cast<std::int8_t>((first ? kFirst : kNext) + lane + (head ? 0 : kOthers));
  };
  const int parts = collnet::Parts(plan_, head);
  steps->clear();
  for (int s = 0; s < parts; ++s) {
    steps->push_back(
        {-1, wire(to_head_, (place + s + skip) % heads, place), work(collnet::kScatter, s == 0)});
  }
  AddLane(*steps);
  if (head) {
    const std::int32_t up = AddWire(kUpFabric, NicOut(place), -1);
    const std::int32_t down = AddWire(kDownFabric, -1, NicIn(place));
    const int others = group_ - (direct ? 1 : 0);
    steps->clear();
    for (int s = 0; s < std::max(1, others); ++s) {
      const int from = direct ? (place + group_ - 1 - s) % group_ : s;
      const bool last = s + 1 >= others;
      steps->push_back({others > 0 ? wire(to_head_, place, from) : -1, last ? up : -1,
                        last ? work(collnet::kReduce, true) : std::int8_t{0}});
    }
    AddLane(*steps);
    AddLane(std::vector<Step>{{up, down, kNone}});
    steps->clear();
    for (int s = 0; s < std::max(1, others); ++s) {
      const int to = direct ? (place + 1 + s) % group_ : s;
      steps->push_back({s == 0 ? down : -1, others > 0 ? wire(from_head_, place, to) : -1,
                        s == 0 ? work(collnet::kBroadcast, true) : std::int8_t{0}});
    }
    AddLane(*steps);
  }
  steps->clear();
  for (int s = 0; s < parts; ++s) {
    const int from = direct ? (place % heads + 2 * heads - s - skip) % heads : s;
    steps->push_back({wire(from_head_, from, place), -1, work(collnet::kGather, s == 0)});
  }
  AddLane(*steps);
}

void Stage::BuildChain() {
  const int nics = gpus_ == 1 ? 1 : std::max(1, plan_.shape.nics);
  const int channels = gpus_ == 1 ? plan_.channels / group_ : plan_.channels;
  for (int c = 0; c < channels; ++c) {
    const int nic = c % nics;
    const int first = nic * gpus_ / nics;
    const auto gpu = [&](int q) { return (first + q) % gpus_; };
    std::int32_t up = AddWire(kUpFabric, NicOut(nic), -1);
    std::int32_t down = AddWire(kDownFabric, -1, NicIn(nic));
    AddLane(std::vector<Step>{{up, down, kNone}});
    for (int q = 0; q < group_; ++q) {
      const bool tail = q + 1 == group_;
      const std::int32_t from = tail ? -1 : AddWire(kBetween, NvOut(gpu(q + 1)), NvIn(gpu(q)));
      const std::int32_t to = tail ? -1 : AddWire(kBetween, NvOut(gpu(q)), NvIn(gpu(q + 1)));
      AddLane(std::vector<Step>{{from, up, kChain}});
      AddLane(std::vector<Step>{{down, to, kChain}});
      up = from;
      down = to;
    }
  }
}

void Stage::SetTimes(const model::Chunk& chunk, Times* times) const {
  if (chunk.slices == 0) return;
  const bool chain = plan_.algorithm == Algorithm::kCollNetChain;
  const auto bytes = static_cast<double>(chunk.bytes);
  times->work[kChain] = RoundToPs(box_.sync + bytes * box_.per_byte * model::kStreams);
  for (int l = 0; !chain && l < 2 * collnet::kSum; ++l) {
    const auto lane = static_cast<Lane>(l % collnet::kSum);
    const bool head = l < collnet::kSum;
    if (collnet::Warps(plan_, lane, head) == 0) continue;
    const auto moved = static_cast<double>(collnet::OfWarp(plan_, lane, head, chunk.bytes)) *
                       box_.per_byte * collnet::Streams(plan_, lane);
    const int at = lane + (head ? 0 : kOthers);
    times->work[kFirst + at] = RoundToPs(box_.sync + moved);
    times->work[kNext + at] = RoundToPs(moved);
  }
  const bool through_switch = plan_.algorithm == Algorithm::kNvls;
  const std::int64_t near = through_switch ? model::OnSwitch(box_, chunk.bytes) : chunk.bytes;
  const auto wire = static_cast<double>(box_.intra.Wire(near));
  const double packet = std::min(box_.intra.mtu, wire) * box_.intra.per_byte;
  for (const Way way : {kBetween, kIntoNvSwitch, kOutOfNvSwitch}) {
    times->serial[way] = RoundToPs(wire * box_.intra.per_byte);
    times->head[way] = RoundToPs(packet + box_.intra.latency / 2);
    times->rest[way] = RoundToPs(box_.intra.latency / 2);
  }
  for (const Way way : {kUpFabric, kDownFabric}) {
    times->serial[way] = RoundToPs(box_.inter.Serial(chunk.bytes));
    times->rest[way] =
        RoundToPs(box_.inter.Delay(chunk.bytes) - box_.inter.post) - times->serial[way];
  }
}

// A domain without a turn in the round gathers nothing.
Stage::Step Stage::StepOf(const Player& lane) const {
  Step step = steps_[static_cast<std::size_t>(lane.first + lane.at)];
  if (step.owner < 0 || !nvls::Gathers(plan_.collective)) return step;
  if (OwnedBytes(step.channel, lane.round, step.owner) > 0) return step;
  if (step.work == kOwned)
    step.send = -1;
  else
    step.recv = -1;
  return step;
}

void Stage::TryStart(std::int32_t id) {
  Player& lane = lanes_[static_cast<std::size_t>(id)];
  if (lane.busy || lane.round == rounds_ || lane.steps == 0) return;
  const Step step = StepOf(lane);
  if (step.recv >= 0) {
    Wire& wire = wires_[static_cast<std::size_t>(step.recv)];
    wire.receiver = id;
    if (wire.arrived == 0) return;
  }
  if (step.send >= 0) {
    Wire& wire = wires_[static_cast<std::size_t>(step.send)];
    wire.sender = id;
    if (wire.credits == 0) return;
    --wire.credits;
  }
  if (step.recv >= 0) --wires_[static_cast<std::size_t>(step.recv)].arrived;
  const SimTime work = WorkOf(step, lane.round);
  if (work == 0) return EndStep(id);
  lane.busy = true;
  Push(now_ + work, kEnd, id, 0);
}

void Stage::EndStep(std::int32_t id) {
  Player& lane = lanes_[static_cast<std::size_t>(id)];
  const Step step = StepOf(lane);
  const std::int32_t round = lane.round;
  end_ = now_;
  lane.busy = false;
  if (++lane.at == lane.steps) {
    lane.at = 0;
    ++lane.round;
  }
  if (step.send >= 0) {
    const Wire& wire = wires_[static_cast<std::size_t>(step.send)];
    Push(now_ + post_[wire.way], wire.out >= 0 ? kLeave : kEnter, step.send, round);
  }
  if (step.recv >= 0) {
    Push(now_ + back_[wires_[static_cast<std::size_t>(step.recv)].way], kCredit, step.recv, 0);
  }
  TryStart(id);
}

// When the message begins to pass.
SimTime Stage::Through(std::int32_t port, SimTime serial) {
  SimTime& free = ports_[static_cast<std::size_t>(port)];
  const SimTime begin = std::max(now_, free);
  free = begin + serial;
  return begin;
}

Stage::Passage Stage::PassageOf(const Wire& wire, std::int32_t round) const {
  if (wire.owner >= 0) {
    const std::int64_t bytes = OwnedBytes(wire.channel, round, wire.owner);
    const SimTime serial = RoundToPs(box_.inter.Serial(bytes));
    return {serial, 0, RoundToPs(box_.inter.Delay(bytes) - box_.inter.post) - serial};
  }
  const Times& times = times_[round < full_ ? 0 : 1];
  return {times.serial[wire.way], times.head[wire.way], times.rest[wire.way]};
}

SimTime Stage::WorkOf(const Step& step, std::int32_t round) const {
  if (step.work != kOwned) return times_[round < full_ ? 0 : 1].work[step.work];
  const Lane lane = nvls::Gathers(plan_.collective) ? collnet::kReduce : collnet::kBroadcast;
  const std::int64_t bytes = OwnedBytes(step.channel, round, step.owner);
  return RoundToPs(box_.sync + static_cast<double>(collnet::OfWarp(plan_, lane, true, bytes)) *
                                   box_.per_byte * collnet::Streams(plan_, lane));
}

Playback Stage::Play() {
  Playback result;
  result.rounds = full_;
  SetTimes(pieces_.full, &times_[0]);
  SetTimes(pieces_.tail, &times_[1]);
  for (std::size_t l = 0; l < lanes_.size(); ++l) TryStart(static_cast<std::int32_t>(l));
  while (!events_.empty()) {
    const Event event = events_.front();
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    events_.pop_back();
    now_ = event.time;
    if (event.kind == kEnd) {
      EndStep(event.index);
      continue;
    }
    Wire& wire = wires_[static_cast<std::size_t>(event.index)];
    const Passage passage = PassageOf(wire, event.round);
    switch (event.kind) {
      case kLeave: {
        const SimTime begin = Through(wire.out, passage.serial);
        if (wire.way == kBetween) {
          Push(begin + passage.head, kEnter, event.index, event.round);
        } else {
          Push(begin + passage.serial + passage.rest, kArrive, event.index, 0);
        }
        break;
      }
      case kEnter: {
        const SimTime begin = Through(wire.in, passage.serial);
        Push(begin + passage.serial + passage.rest, kArrive, event.index, 0);
        break;
      }
      case kArrive:
        ++wire.arrived;
        if (wire.receiver >= 0) TryStart(wire.receiver);
        break;
      case kCredit:
      case kEnd:
        ++wire.credits;
        if (wire.sender >= 0) TryStart(wire.sender);
        break;
    }
  }
  result.time = end_;
  return result;
}

constexpr std::int64_t kMostMessages = 2000;

}  // namespace

Playback PlayCollNet(const Plan& plan, const model::WhiteBox& box) {
  return Stage(plan, box, kMostMessages).Play();
}

}  // namespace orrery::collective
