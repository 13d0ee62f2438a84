// Trees: a chain inside each domain, the tree between heads.
#include "orrery/collective/formula/formula.h"
#include "orrery/collective/playback/playback_stage.h"

namespace orrery::collective {
namespace playback {
namespace {

constexpr std::int64_t kMostTreeMessages = 3000;
// Rounds that go through as one: of a window's credits at most one in so many.
constexpr int kOfWindow = 2;

// Channels of a head in one tree, as messages at an NVLink port.
struct Batches {
  int count = 1;
  double each = 1, last = 1;
  bool whole = false;  // every channel, on every GPU of the one domain
};

// What is played: how many domains' chains, and which channels.
struct Cast {
  bool all = false;  // every domain
  Batches batches;
};

int TreesOf(const Plan& plan) { return plan.shape.domains == 1 ? 1 : 2; }
std::int64_t RoundsOf(const Plan& plan) {
  const model::Pieces pieces = model::Cut(plan);
  return pieces.rounds + (pieces.tail.slices > 0 ? 1 : 0);
}

// Of a round and a batch.
std::int64_t MessagesOf(const Plan& plan, int chains, int heads) {
  const int ppn = plan.shape.ranks_per_domain;
  const int ports = plan.shape.nics >= ppn ? 1 : 2;  // at both ends of a way
  return std::int64_t{TreesOf(plan)} * (chains * 2 * (ppn - 1) * ports + (heads - 1) * 4);
}

Batches BatchesOf(const Plan& plan, std::int64_t messages) {
  const int ppn = plan.shape.ranks_per_domain;
  const double at_head =
      static_cast<double>(plan.channels) / TreesOf(plan) / std::max(1, plan.shape.nics);
  Batches batches;
  batches.count = std::max(1, static_cast<int>(at_head));
  if (batches.count < at_head) ++batches.count;
  batches.last = at_head - (batches.count - 1);
  const std::int64_t rounds = RoundsOf(plan);
  if (plan.shape.domains == 1 && plan.shape.nics >= ppn && plan.channels % ppn != 0) {
    // GPUs that are head once more hold up their neighbours.
    if (rounds * plan.channels * messages <= kMostTreeMessages) {
      return {.count = plan.channels, .whole = true};
    }
    // One GPU for all: the busiest.
    const double busiest = 2.0 * plan.channels - FewestEnds(plan.channels, ppn);
    batches.last = busiest / (2 * ppn - 2) - (batches.count - 1);
  }
  // As many of a head's channels as all rounds leave room for; what is more goes as one.
  const auto most = static_cast<int>(std::clamp<std::int64_t>(
      kMostTreeMessages / std::max<std::int64_t>(1, rounds * messages), 1, plan.channels));
  if (ppn > 2 && batches.count > most) {
    batches.each = batches.last = (batches.last + batches.count - 1) / most;
    batches.count = most;
  }
  return batches;
}

// Every domain where they are few or rounds are, else one of each level of the tree.
Cast CastOf(const Plan& plan) {
  const int domains = plan.shape.domains;
  const int levels = LevelsOf(domains);
  const std::int64_t of_all = MessagesOf(plan, domains, domains);
  Cast cast;
  cast.batches = BatchesOf(plan, 0);
  cast.all = domains > 2 && (PlaysAll(domains) ||
                             RoundsOf(plan) * of_all * cast.batches.count <= kMostTreeMessages);
  cast.batches = BatchesOf(plan, cast.all ? of_all : MessagesOf(plan, std::min(3, levels), levels));
  return cast;
}

class TreeStage final : public Stage {
 public:
  TreeStage(const Plan& plan, const model::WhiteBox& box, const Cast& cast);

 private:
  bool HasChain(int level) const { return all_ || level < 2 || level == levels_ - 1; }
  // Where fewer GPUs are heads than a domain has, a port carries every so many places of a chain.
  std::int32_t Out(int level, int place, int batch) const {
    return NvlinkPort(level * turns_ + Gpu(place, batch) % turns_);
  }
  std::int32_t In(int level, int place, int batch) const {
    return turns_ == 1 || channels_.whole
               ? -1
               : NvlinkPort((levels_ + level) * turns_ + Gpu(place, batch) % turns_);
  }
  int Gpu(int place, int batch) const { return place + (channels_.whole ? batch : 0); }
  void BuildHead(int level, int tree, int batch);
  void BuildChain(int level, int tree, int batch);
  void SetTimes(const model::Chunk& chunk, Times* times) override;
  SimTime Late(const Times& last) const override {
    return RoundToPs((channels_.each - 1) *
                     static_cast<double>(last.serial[places_ > 1 ? kNvlink : kNet]));
  }

  const Plan& plan_;
  const model::WhiteBox& box_;
  Batches channels_;
  int turns_;
};

TreeStage::TreeStage(const Plan& plan, const model::WhiteBox& box, const Cast& cast)
    : Stage(plan, plan.shape.ranks_per_domain, cast.batches.count, cast.all),
      plan_(plan),
      box_(box),
      channels_(cast.batches),
      turns_(cast.batches.whole
                 ? places_
                 : std::max(1, plan.shape.ranks_per_domain / std::max(1, plan.shape.nics))) {
  post_[kNvlink] = RoundToPs(box.intra.post);
  post_[kNet] = RoundToPs(box.inter.post);
  back_[kNvlink] = RoundToPs(box.intra.latency);
  back_[kNet] = RoundToPs(box.inter.latency);
  ports_.resize(static_cast<std::size_t>(NvlinkPort(2 * levels_ * turns_)));
  for (int i = 0; i < levels_; ++i) {
    const int level = Order(i);
    for (int tree = 0; tree < trees_; ++tree) {
      for (int batch = 0; batch < batches_; ++batch) {
        BuildHead(level, tree, batch);
        if (HasChain(level)) BuildChain(level, tree, batch);
      }
    }
  }
}

// Steps as Schedule::TreeStep has them.
void TreeStage::BuildHead(int level, int tree, int batch) {
  const std::int32_t id = At(level, tree, batch, 0, 0);
  const bool top = Top(level, tree);
  const int local = places_ > 1 ? 1 : 0;
  const int far = Far(level, tree);
  const int extra = std::max(0, local + far - 1);
  Step* up = AddSteps(id, top ? 1 + 2 * extra : 1 + extra);
  const Work main = top ? kMain : kPass, stream = top ? kStream : kPassOn;
  for (int i = 0; i < 1 + (top ? 2 : 1) * extra; ++i) up[i].work = i == extra ? main : stream;
  for (int i = 0; i < local + far; ++i) {
    const int kind = local == 1 ? i : i + 1;
    if (kind > 0 || HasChain(level)) up[i].source = id * kSlots + kind;
  }
  if (!top) {
    SendUp(level, tree, batch, extra);
    Step* down = AddSteps(id + 1, 1 + extra);
    for (int i = 0; i <= extra; ++i) down[i].work = i == 0 ? main : stream;
    down[0].source = (id + 1) * kSlots;
  }
  const std::int32_t sender = top ? id : id + 1;
  for (int child = far; child >= 1; --child) {
    SendDown(level, tree, batch, child, sender, (top ? extra : 0) + far - child);
  }
}

// The lanes below the head, and what goes between all of them.
void TreeStage::BuildChain(int level, int tree, int batch) {
  const bool top = Top(level, tree);
  const int far = Far(level, tree);
  for (int place = 1; place < places_; ++place) {
    const std::int32_t up = At(level, tree, batch, place, 0);
    const std::int32_t above = At(level, tree, batch, place - 1, 0);
    Step* step = AddSteps(up, 1);
    step->work = kMain;
    if (place + 1 < places_) step->source = up * kSlots;
    step = AddSteps(up + 1, 1);
    step->work = kMain;
    step->source = (up + 1) * kSlots;
    std::int32_t slot = Connect(up, above, 0);
    targets_.push_back({In(level, place - 1, batch), slot});
    AddWay(up, 0, kNvlink, Out(level, place, batch), batch, slot);
    // From above: the head sends to its far children first.
    const bool root = place == 1 && top;
    const std::int32_t sender = root ? above : above + 1;
    slot = Connect(sender, up + 1, 0);
    targets_.push_back({In(level, place, batch), slot});
    AddWay(sender,
           place > 1 ? 0
           : root    ? 2 * far
                     : far,
           kNvlink, Out(level, place - 1, batch), batch, slot);
  }
}

void TreeStage::SetTimes(const model::Chunk& chunk, Times* times) {
  const double stream = static_cast<double>(chunk.bytes) * box_.per_byte;
  const std::int64_t wire = model::OnWire(plan_.protocol, chunk.bytes);
  times->work[kStream] = RoundToPs(stream);
  times->work[kMain] = RoundToPs(box_.sync + model::kStreams * stream);
  const double of_head = model::TreeHeadShare(plan_) * stream;
  times->work[kPassOn] = RoundToPs(of_head);
  times->work[kPass] = RoundToPs(box_.sync + model::kStreams * of_head);
  for (const Kind kind : {kNvlink, kNet}) {
    if (kind == kNvlink ? places_ == 1 : domains_ == 1) continue;
    const model::Edge& edge = kind == kNvlink ? box_.intra : box_.inter;
    const double serial = edge.Serial(wire);
    times->serial[kind] = RoundToPs(serial);
    times->delay[kind] = RoundToPs(edge.Delay(wire) - edge.post);
    // A NIC belongs to one head: it has all of a batch.
    const double least = kind == kNet ? 1 : 0;
    times->port[kind][0] = RoundToPs(serial * std::max(least, channels_.each));
    times->port[kind][1] = RoundToPs(serial * std::max(least, channels_.last));
  }
}

}  // namespace
}  // namespace playback

// What goes up gets ahead of what comes down, by a window a hop, round by round: until then the
// pace is not that of the rounds after it.
Playback PlayTree(const Plan& plan, const model::WhiteBox& box) {
  const std::int64_t rounds = playback::RoundsOf(plan);
  if (rounds < (plan.shape.domains == 1 ? 2 : 1)) return {};
  const playback::Cast cast = playback::CastOf(plan);
  const int levels = playback::LevelsOf(plan.shape.domains);
  const int chains = cast.all ? plan.shape.domains : std::min(3, levels);
  if (std::min(rounds, playback::kFewestRounds) * cast.batches.count *
          playback::MessagesOf(plan, chains, 1) >
      playback::kMostTreeMessages) {
    return {};
  }
  playback::Stage::Limits limits{.messages = playback::kMostTreeMessages};
  if (Formula(plan, box).TreeGetsAhead()) {
    const std::int64_t hops = 2 * (plan.shape.ranks_per_domain - 1 + levels);
    limits.windows = std::max(limits.windows, 2 * hops);
    limits.together = plan.credits / playback::kOfWindow;
  }
  return playback::TreeStage(plan, box, cast).Play(plan, limits);
}

}  // namespace orrery::collective
