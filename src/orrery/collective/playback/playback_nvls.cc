// NVLS and NVLSTree (nvls.h): all GPUs of a domain do the same, each head of a part. What the heads
// of one domain do at the same time meets at every port: one GPU stands for all.
#include "orrery/collective/algorithms/nvls.h"
#include "orrery/collective/formula/formula.h"
#include "orrery/collective/playback/playback_stage.h"

namespace orrery::collective {
namespace playback {
namespace {

// In one domain, and over several: more where fewer rounds of one batch would fit. So many rounds
// of all channels must fit; what does not is played in batches of channels.
constexpr std::int64_t kMostMessages = 400, kOfTrees = 2600, kMostOfTrees = 4000;
constexpr std::int64_t kFewestRoundsOfTrees = 34;
constexpr std::int64_t kRoundsOfAll = 8, kRoundsOfTrees = 48;
// In one domain what begins and ends is little beside so many rounds: the formula alone is within
// 3 %. Trees go at another pace until all their windows are full.
constexpr std::int64_t kManyRounds = 32, kWindowsOfTrees = 6;

// Place 0 of a domain: a head's reducing and broadcasting lanes; place 1: scatter and gather.
class NvlsStage final : public Stage {
 public:
  NvlsStage(const Plan& plan, const model::WhiteBox& box, int batches, bool all);

 private:
  std::int32_t In(int level) const { return NvlinkPort(level); }
  std::int32_t Number(int tree, int batch) const {
    return static_cast<std::int32_t>((batch + 0.5) * each_) * trees_ + tree;
  }
  void Build(int level, int tree, int batch);
  void BuildScatter(int level, int tree, int batch);
  void Send(int level, int tree, int batch, std::int32_t sender, int at);
  void SetTimes(const model::Chunk& chunk, Times* times) override;
  void Prepare() override;

  const Plan& plan_;
  const model::WhiteBox& box_;
  double each_;  // channels of a batch
  bool scatters_, gathers_;
};

NvlsStage::NvlsStage(const Plan& plan, const model::WhiteBox& box, int batches, bool all)
    : Stage(plan, 2, batches, all),
      plan_(plan),
      box_(box),
      each_(static_cast<double>(plan.channels) / trees_ / batches),
      scatters_(nvls::Scatters(plan.collective)),
      gathers_(nvls::Gathers(plan.collective)) {
  for (const Kind kind : {kScatter, kOwn, kStore}) {
    post_[kind] = RoundToPs(box.intra.post);
    back_[kind] = RoundToPs(box.intra.latency / 2);
  }
  post_[kNet] = RoundToPs(box.inter.post);
  back_[kNet] = RoundToPs(box.inter.latency);
  ports_.resize(static_cast<std::size_t>(NvlinkPort(levels_)));
  for (int level = levels_ - 1; level >= 0; --level) {
    for (int tree = 0; tree < trees_; ++tree) {
      for (int batch = 0; batch < batches_; ++batch) Build(level, tree, batch);
    }
  }
}

// Steps as Schedule::NvlsStep has them.
void NvlsStage::Build(int level, int tree, int batch) {
  const std::int32_t reduce = At(level, tree, batch, 0, 0);
  const std::int32_t gather = At(level, tree, batch, 1, 1);
  const bool top = Top(level, tree);
  const int far = Far(level, tree);
  const int sources = scatters_ ? 2 + far : 1;
  Step* step = AddSteps(reduce, sources + (top && far > 0 ? far : 0));
  if (scatters_) {
    step[0].source = reduce * kSlots;
    step[1].source = reduce * kSlots + 3;
    step[1].work = kMain;
    for (int child = 1; child <= far; ++child) {
      step[1 + child].source = reduce * kSlots + child;
      step[1 + child].work = kStream;
    }
    BuildScatter(level, tree, batch);
  } else {
    step[0].work = kMain;
  }
  if (gathers_) {
    step = AddSteps(gather, 1);
    step->source = gather * kSlots;
    step->work = kGather;
  }
  if (top) {
    Send(level, tree, batch, reduce, sources - 1);
    return;
  }
  SendUp(level, tree, batch, sources - 1);
  step = AddSteps(reduce + 1, 1 + far);
  step->source = (reduce + 1) * kSlots;
  step->work = kPass;
  for (int child = 2; child <= far; ++child) step[child - 1].work = kPassOn;
  Send(level, tree, batch, reduce + 1, 0);
}

// To the children over the network, the first one first, then to everyone.
void NvlsStage::Send(int level, int tree, int batch, std::int32_t sender, int at) {
  const int far = Far(level, tree);
  for (int child = 1; child <= far; ++child)
    SendDown(level, tree, batch, child, sender, at + child - 1);
  if (!gathers_) return;
  const std::int32_t slot = Connect(sender, At(level, tree, batch, 1, 1), 0);
  targets_.push_back({-1, slot});
  Way& way = AddWay(sender, at + far, kStore, In(level), batch, slot);
  if (!scatters_) way.channel = Number(tree, batch);
}

// The first part is for the GPU's own head, whose sum comes in over its own NVLink.
void NvlsStage::BuildScatter(int level, int tree, int batch) {
  const std::int32_t reduce = At(level, tree, batch, 0, 0);
  const std::int32_t scatter = At(level, tree, batch, 1, 0);
  Step* step = AddSteps(scatter, 2);
  step[0].work = kFirst;
  step[1].work = kOthers;
  const std::int32_t channel = Number(tree, batch);
  std::int32_t slot = Connect(scatter, reduce, 3);
  targets_.push_back({In(level), slot});
  AddWay(scatter, 0, kOwn, 0, batch, slot).channel = channel;
  slot = Connect(scatter, reduce, 0);
  targets_.push_back({-1, slot});
  AddWay(scatter, 1, kScatter, 0, batch, slot).channel = channel;
}

void NvlsStage::SetTimes(const model::Chunk& chunk, Times* times) {
  const auto stream = [&](nvls::Lane lane) {
    return static_cast<double>(nvls::OfWarp(plan_, lane, chunk.bytes)) * box_.per_byte;
  };
  const auto copy = [&](nvls::Lane lane) { return nvls::kCopyStreams * stream(lane); };
  const double heads = plan_.heads;
  times->work[kMain] = RoundToPs(box_.sync + copy(nvls::kReduce));
  times->work[kStream] = RoundToPs(stream(nvls::kReduce));
  times->work[kPass] = RoundToPs(box_.sync + copy(nvls::kBroadcast));
  times->work[kPassOn] = RoundToPs(stream(nvls::kBroadcast));
  times->work[kFirst] = RoundToPs(box_.sync + copy(nvls::kScatter));
  times->work[kOthers] = RoundToPs((heads - 1) * copy(nvls::kScatter));
  times->work[kGather] = RoundToPs(box_.sync + heads * copy(nvls::kGather));
  const double part = box_.intra.Serial(model::OnSwitch(box_, chunk.bytes));
  const double half = box_.intra.latency / 2;
  // What all heads store comes burst by burst, or, where they all begin at once, part by part.
  times->spread =
      RoundToPs((heads - 1) * part * (scatters_ ? 1 : plan_.channels) + copy(nvls::kGather));
  for (const Kind kind : {kScatter, kOwn, kStore}) {
    times->serial[kind] = RoundToPs(part);
    times->delay[kind] = RoundToPs(part + half * (kind == kOwn ? 2 : 1));
    times->port[kind][0] = times->port[kind][1] =
        RoundToPs(part * each_ * (kind == kStore ? heads : 1));
  }
  if (domains_ == 1) return;
  const double serial = box_.inter.Serial(chunk.bytes);
  // Heads beside one NIC send at the same time.
  const double beside = CeilDiv(heads, std::max(1, plan_.shape.nics));
  times->serial[kNet] = RoundToPs(serial);
  times->delay[kNet] = RoundToPs(box_.inter.Delay(chunk.bytes) - box_.inter.post);
  times->port[kNet][0] = times->port[kNet][1] = RoundToPs(serial * each_ * beside);
}

// The ports of which nobody else has anything: all channels there, part after part. Out, what is
// scattered; in, where nothing is scattered, what is stored.
void NvlsStage::Prepare() {
  SimTime lane = 0, port = 0;
  for (std::int32_t round = 0; round < rounds_; ++round) {
    const Times& times = Of(round);
    const SimTime all = plan_.channels * times.serial[kStore];
    if (!scatters_) {
      lane += times.work[kMain];
      first_part_.push_back(std::max(port, lane + post_[kStore]));
      port = first_part_.back() + plan_.heads * all;
      continue;
    }
    const SimTime copy = times.work[kOthers] / std::max(1, plan_.heads - 1);
    for (int part = 0; part < plan_.heads; ++part) {
      lane += part == 0 ? times.work[kFirst] : copy;
      const SimTime start = std::max(port, lane + post_[kScatter]);
      if (part == 0) first_part_.push_back(start);
      port = start + all;
    }
    last_part_.push_back(port - all);
  }
}

}  // namespace
}  // namespace playback

Playback PlayNvls(const Plan& plan, const model::WhiteBox& box) {
  const GroupShape& shape = plan.shape;
  if (plan.heads != shape.ranks_per_domain || !shape.uniform) return {};
  const std::int64_t rounds = std::max<std::int64_t>(1, model::Cut(plan).rounds);
  if (shape.domains == 1) {
    if (rounds >= playback::kManyRounds) return {};
    const std::int64_t batches = std::clamp<std::int64_t>(
        playback::kMostMessages / (4 * std::min(rounds, playback::kRoundsOfAll)), 1, plan.channels);
    return playback::NvlsStage(plan, box, static_cast<int>(batches), false)
        .Play(plan, {.messages = playback::kMostMessages});
  }
  const bool all = playback::PlaysAll(shape.domains);
  const std::int64_t levels = all ? shape.domains : playback::LevelsOf(shape.domains);
  const std::int64_t messages = 17 * levels;  // of a batch
  const std::int64_t most = std::clamp(playback::kFewestRoundsOfTrees * messages,
                                       playback::kOfTrees, playback::kMostOfTrees);
  const std::int64_t batches =
      std::clamp<std::int64_t>(most / (messages * std::min(rounds, playback::kRoundsOfTrees)), 1,
                               std::max(1, plan.channels / 2));
  return playback::NvlsStage(plan, box, static_cast<int>(batches), all)
      .Play(plan, {.messages = most, .windows = playback::kWindowsOfTrees});
}

}  // namespace orrery::collective
