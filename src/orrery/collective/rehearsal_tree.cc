// Trees: a chain inside each domain, the tree between heads.
#include "orrery/collective/rehearsal_stage.h"

namespace orrery::collective {
namespace rehearsal {
namespace {

constexpr std::int64_t kMostMessages = 3000;
// Channels of one head that are played one by one; more are so many batches.
constexpr int kMostBatches = 3;
// Channels that do not divide by heads: the port of a GPU that is head once more is late more often
// than its share of messages says. Fitted to the ideal executor, 24 and 32 channels on 5 to 7 GPUs.
constexpr double kUneven = 1.2;

// Channels of a head in one tree, as messages at an NVLink port.
struct Batches {
  int count = 1;
  double each = 1, last = 1;
};

Batches BatchesOf(const Plan& plan) {
  const int ppn = plan.shape.ranks_per_domain;
  const int trees = plan.shape.domains == 1 ? 1 : 2;
  const double at_head = static_cast<double>(plan.channels) / trees / std::max(1, plan.shape.nics);
  Batches batches;
  batches.count = std::max(1, static_cast<int>(at_head));
  if (batches.count < at_head) ++batches.count;
  batches.last = at_head - (batches.count - 1);
  if (trees == 1 && ppn > 2 && plan.shape.nics >= ppn) {
    // The busiest port: ends of chains send one way only.
    const double messages = 2.0 * plan.channels - 2 * (plan.channels / ppn);
    batches.last = messages / (2 * ppn - 2) - (batches.count - 1);
    if (batches.last < 0.999) batches.last = std::min(1.0, kUneven * batches.last);
  }
  if (ppn > 2 && batches.count > kMostBatches) {
    batches.each = batches.last = (batches.last + batches.count - 1) / kMostBatches;
    batches.count = kMostBatches;
  }
  return batches;
}

class TreeStage final : public Stage {
 public:
  TreeStage(const Plan& plan, const model::WhiteBox& box, const Batches& batches);

 private:
  bool HasChain(int level) const { return level < 2 || level == levels_ - 1; }
  // Where fewer GPUs are heads than a domain has, a port carries every so many places of a chain.
  std::int32_t Out(int level, int place) const {
    return NvlinkPort(level * turns_ + place % turns_);
  }
  std::int32_t In(int level, int place) const {
    return turns_ == 1 ? -1 : NvlinkPort((levels_ + level) * turns_ + place % turns_);
  }
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

TreeStage::TreeStage(const Plan& plan, const model::WhiteBox& box, const Batches& batches)
    : Stage(plan, plan.shape.ranks_per_domain, batches.count),
      plan_(plan),
      box_(box),
      channels_(batches),
      turns_(std::max(1, plan.shape.ranks_per_domain / std::max(1, plan.shape.nics))) {
  post_[kNvlink] = RoundToPs(box.intra.post);
  post_[kNet] = RoundToPs(box.inter.post);
  back_[kNvlink] = RoundToPs(box.intra.latency);
  back_[kNet] = RoundToPs(box.inter.latency);
  ports_.resize(static_cast<std::size_t>(NvlinkPort(2 * levels_ * turns_)), 0);
  for (int level = levels_ - 1; level >= 0; --level) {
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
  for (int i = 0; i < 1 + (top ? 2 : 1) * extra; ++i) up[i].work = i == extra ? kMain : kStream;
  for (int i = 0; i < local + far; ++i) {
    const int kind = local == 1 ? i : i + 1;
    if (kind > 0 || HasChain(level)) up[i].source = id * kSlots + kind;
  }
  if (!top) {
    SendUp(level, tree, batch, extra);
    Step* down = AddSteps(id + 1, 1 + extra);
    for (int i = 0; i <= extra; ++i) down[i].work = i == 0 ? kMain : kStream;
    down[0].source = (id + 1) * kSlots;
  }
  const std::int32_t sender = top ? id : id + 1;
  for (int child = far; child >= 1; --child) {
    SendDown(level, batch, child, sender, (top ? extra : 0) + far - child);
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
    targets_.push_back({In(level, place - 1), slot});
    AddWay(up, 0, kNvlink, Out(level, place), batch, slot);
    // From above: the head sends to its far children first.
    const bool root = place == 1 && top;
    const std::int32_t sender = root ? above : above + 1;
    slot = Connect(sender, up + 1, 0);
    targets_.push_back({In(level, place), slot});
    AddWay(sender,
           place > 1 ? 0
           : root    ? 2 * far
                     : far,
           kNvlink, Out(level, place - 1), batch, slot);
  }
}

void TreeStage::SetTimes(const model::Chunk& chunk, Times* times) {
  const double stream = static_cast<double>(chunk.bytes) * box_.per_byte;
  const std::int64_t wire = model::OnWire(plan_.protocol, chunk.bytes);
  times->work[kStream] = RoundToPs(stream);
  times->work[kMain] = RoundToPs(box_.sync + model::kStreams * stream);
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
}  // namespace rehearsal

Rehearsed RehearseTree(const Plan& plan, const model::WhiteBox& box) {
  const model::Pieces pieces = model::Cut(plan);
  const std::int64_t rounds = pieces.rounds;
  if (rounds + (pieces.tail.slices > 0 ? 1 : 0) < 2) return {};
  const rehearsal::Batches batches = rehearsal::BatchesOf(plan);
  // Over NVLink alone.
  const std::int64_t messages = std::int64_t{std::min(3, rehearsal::LevelsOf(plan.shape.domains))} *
                                (plan.shape.domains == 1 ? 1 : 2) * batches.count * 2 *
                                (plan.shape.ranks_per_domain - 1);
  if (messages * std::min(rounds, rehearsal::kFewestRounds) > rehearsal::kMostMessages) return {};
  return rehearsal::TreeStage(plan, box, batches).Play(plan, rehearsal::kMostMessages);
}

}  // namespace orrery::collective
