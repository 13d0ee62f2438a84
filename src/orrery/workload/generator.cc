#include "orrery/workload/generator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "orrery/workload/generators/block_source.h"
#include "orrery/workload/generators/experts/expert_groups.h"
#include "orrery/workload/generators/program_writer.h"
#include "orrery/workload/generators/schedules/schedules.h"
#include "orrery/workload/generators/sharding/sharded_program.h"
#include "orrery/workload/routing.h"

namespace orrery::workload {

using graph::GroupSlot;
using graph::PeerSlot;

struct Generator::Cache {
  BlockCache blocks;
};

Generator::Generator() : cache_(std::make_unique<Cache>()) {}
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;
Generator::~Generator() = default;

namespace {

// Blocks kept between plans: some 200 MB at most.
constexpr std::size_t kMostBlocks = 50'000;

// Ranks and groups of one job; tp fastest, then cp, then dp and pp in the plan's order. Ranks that
// differ in cp and dp only hold the same parameters: the gradient group spans both, and a "replica"
// below is one of them. Blocks of `shard` replicas in a row are a shard group, or hold a layer's
// parts between forward and backward.
class Layout {
 public:
  Layout(const JobContext& job, graph::Graph* graph)
      : job_(job),
        plan_(*job.plan),
        tp_(static_cast<std::size_t>(plan_.parallel.tp)),
        dp_(static_cast<std::size_t>(plan_.replicas())),
        cp_(static_cast<std::size_t>(plan_.parallel.cp)),
        pp_(static_cast<std::size_t>(plan_.parallel.pp)),
        shard_(plan_.hybrid()             ? static_cast<std::size_t>(plan_.shard_ranks())
               : plan_.memory.reshard > 0 ? static_cast<std::size_t>(plan_.memory.reshard)
                                          : dp_),
        base_(graph->bindings.size()),
        graph_(graph) {
    const bool stages_within = plan_.parallel.rank_order == RankOrder::kPpDp;
    const std::size_t replica_step = stages_within ? tp_ * cp_ * pp_ : tp_ * cp_;
    stage_step_ = stages_within ? tp_ * cp_ : tp_ * dp_;
    replica_.reserve(dp_);
    for (std::size_t d = 0; d < dp_; d += cp_) {
      for (std::size_t c = 0; c < cp_; ++c) replica_.push_back(d / cp_ * replica_step + c * tp_);
    }
  }

  void AddGroups() {
    const std::size_t ranks = tp_ * dp_ * pp_;
    graph_->groups.Reserve(graph_->groups.size() + dp_ * pp_ + tp_ * pp_ + 2 * tp_ * dp_ + dp_,
                           5 * ranks);
    Start(kTp);
    for (std::size_t i = 0; tp_ > 1 && i < dp_ * pp_; ++i) {
      Add(GroupSlot::kTp, tp_, [&](std::size_t t) { return Rank(t, i % dp_, i / dp_); });
    }
    Start(kDp);
    for (std::size_t i = 0; dp_ > 1 && i < tp_ * pp_; ++i) {
      Add(GroupSlot::kDp, dp_, [&](std::size_t d) { return Rank(i % tp_, d, i / tp_); });
    }
    Start(kCp);
    for (std::size_t r = 0; cp_ > 1 && r < dp_ * pp_; r += cp_) {
      for (std::size_t t = 0; t < tp_; ++t) {
        Add(GroupSlot::kCp, cp_, [&](std::size_t c) { return Rank(t, r % dp_ + c, r / dp_); });
      }
    }
    Start(kPp);
    for (std::size_t i = 0; pp_ > 1 && i < tp_ * dp_; ++i) {
      Add(GroupSlot::kPp, pp_, [&](std::size_t p) { return Rank(i % tp_, i / tp_, p); });
    }
    Start(kEmbedding);
    for (std::size_t i = 0; job_.ties_across_stages() && i < tp_ * dp_; ++i) {
      Add(GroupSlot::kEmbedding, 2,
          [&](std::size_t end) { return Rank(i % tp_, i / tp_, end * (pp_ - 1)); });
    }
    Start(kModel);
    for (std::size_t d = 0; job_.norm_group > 1 && d < dp_; d += norm_replicas()) AddModelGroup(d);
    if (shard_ < dp_) AddShardGroups();
    if (plan_.dual()) AddMirrors();
  }

  // Each stage has `variants` programs; ranks get the first.
  void AddBindings(ProgramId first_program, JobId job_id, std::size_t variants) {
    graph_->bindings.resize(base_ + tp_ * dp_ * pp_);
    for (std::size_t p = 0; p < pp_; ++p) {
      graph::Binding b;
      b.program = ProgramId(first_program.index() + p * variants);
      b.job = job_id;
      for (std::size_t d = 0; d < dp_; ++d) {
        if (tp_ > 1) Slot(&b, GroupSlot::kTp) = GroupId(first_[kTp] + p * dp_ + d);
        if (job_.norm_group > 1) {
          Slot(&b, GroupSlot::kModel) = GroupId(first_[kModel] + d / norm_replicas());
        }
        for (std::size_t t = 0; t < tp_; ++t) Bind(t, d, p, &b);
      }
    }
  }

 private:
  enum Kind : std::size_t { kTp, kDp, kCp, kPp, kEmbedding, kModel, kShard, kReplica, kKinds };

  RankId Rank(std::size_t t, std::size_t d, std::size_t p) const {
    return RankId(base_ + t + replica_[d] + stage_step_ * p);
  }
  static GroupId& Slot(graph::Binding* b, GroupSlot slot) {
    return b->groups[static_cast<std::size_t>(slot)];
  }
  void Start(Kind kind) { first_[kind] = graph_->groups.size(); }
  template <class Member>
  void Add(GroupSlot slot, std::size_t count, const Member& member) {
    members_.clear();
    for (std::size_t i = 0; i < count; ++i) members_.push_back(member(i));
    graph_->groups.Add(slot, members_);
  }

  // Replicas whose gradients' norm is one sum.
  std::size_t norm_replicas() const {
    return !job_.distributed() ? 1 : plan_.hybrid() ? shard_ : dp_;
  }

  // Of replicas d … d + norm_replicas() - 1, all stages, in rank order.
  void AddModelGroup(std::size_t d) {
    members_.clear();
    for (std::size_t p = 0; p < pp_; ++p) {
      for (std::size_t i = d; i < d + norm_replicas(); ++i) {
        for (std::size_t t = 0; t < tp_; ++t) members_.push_back(Rank(t, i, p));
      }
    }
    if (plan_.parallel.rank_order != RankOrder::kDpPp) std::sort(members_.begin(), members_.end());
    graph_->groups.Add(GroupSlot::kModel, members_);
  }

  void AddShardGroups() {
    Start(kShard);
    for (std::size_t i = 0; i < pp_ * tp_; ++i) {
      for (std::size_t d = 0; d < dp_; d += shard_) {
        Add(GroupSlot::kShard, shard_,
            [&](std::size_t s) { return Rank(i % tp_, d + s, i / tp_); });
      }
    }
    if (!plan_.hybrid()) return;  // parts of layers that backward gathers
    Start(kReplica);
    for (std::size_t i = 0; i < pp_ * tp_; ++i) {
      for (std::size_t s = 0; s < shard_; ++s) {
        Add(GroupSlot::kReplica, dp_ / shard_,
            [&](std::size_t d) { return Rank(i % tp_, d * shard_ + s, i / tp_); });
      }
    }
  }

  // The two stages that hold the same parts.
  void AddMirrors() {
    Start(kReplica);
    for (std::size_t p = 0; p < pp_ / 2; ++p) {
      for (std::size_t i = 0; i < tp_ * dp_; ++i) {
        Add(GroupSlot::kReplica, 2,
            [&](std::size_t end) { return Rank(i % tp_, i / tp_, end == 0 ? p : pp_ - 1 - p); });
      }
    }
  }

  // The rest of what rank (t, d, p) is bound to.
  void Bind(std::size_t t, std::size_t d, std::size_t p, graph::Binding* b) {
    const bool wraps = plan_.parallel.vpp > 1 && !plan_.v_shape() && !plan_.dual();
    const std::size_t column = p * tp_ + t;
    if (dp_ > 1) Slot(b, GroupSlot::kDp) = GroupId(first_[kDp] + column);
    if (shard_ < dp_) {
      Slot(b, GroupSlot::kShard) = GroupId(first_[kShard] + column * (dp_ / shard_) + d / shard_);
    }
    if (plan_.hybrid()) {
      Slot(b, GroupSlot::kReplica) = GroupId(first_[kReplica] + column * shard_ + d % shard_);
    }
    if (plan_.dual()) {
      const std::size_t pair = std::min(p, pp_ - 1 - p);
      Slot(b, GroupSlot::kReplica) = GroupId(first_[kReplica] + pair * tp_ * dp_ + d * tp_ + t);
    }
    if (cp_ > 1) {
      const std::size_t first = d - d % cp_;
      Slot(b, GroupSlot::kCp) = GroupId(first_[kCp] + (p * dp_ + d) / cp_ * tp_ + t);
      b->peers[static_cast<std::size_t>(PeerSlot::kCpPrevious)] =
          Rank(t, first + (d + cp_ - 1 - first) % cp_, p);
      b->peers[static_cast<std::size_t>(PeerSlot::kCpNext)] =
          Rank(t, first + (d + 1 - first) % cp_, p);
    }
    if (job_.shape->framework.tp_comm_overlap) {
      b->peers[static_cast<std::size_t>(PeerSlot::kTpPrevious)] = Rank((t + tp_ - 1) % tp_, d, p);
      b->peers[static_cast<std::size_t>(PeerSlot::kTpNext)] = Rank((t + 1) % tp_, d, p);
    }
    if (pp_ > 1) Slot(b, GroupSlot::kPp) = GroupId(first_[kPp] + d * tp_ + t);
    if (job_.ties_across_stages() && (p == 0 || p + 1 == pp_)) {
      Slot(b, GroupSlot::kEmbedding) = GroupId(first_[kEmbedding] + d * tp_ + t);
    }
    if (pp_ > 1 && (p > 0 || wraps)) {
      b->peers[static_cast<std::size_t>(PeerSlot::kPrevious)] = Rank(t, d, (p + pp_ - 1) % pp_);
    }
    if (pp_ > 1 && (p + 1 < pp_ || wraps)) {
      b->peers[static_cast<std::size_t>(PeerSlot::kNext)] = Rank(t, d, (p + 1) % pp_);
    }
    const RankId rank = Rank(t, d, p);
    b->logical_rank = static_cast<std::uint32_t>(rank.index() - base_);
    graph_->bindings[rank.index()] = *b;
  }

  const JobContext& job_;
  const Plan& plan_;
  std::size_t tp_, dp_, cp_, pp_, shard_, base_;
  graph::Graph* graph_;
  std::size_t stage_step_ = 0;
  std::vector<std::size_t> replica_;  // rank of replica d in the first stage
  std::array<std::size_t, kKinds> first_{};
  std::vector<RankId> members_;
};

// What every rank sends each of a layer's expert-parallel ranks: the tokens of all have the same
// shares.
SharesId SharesOf(const LayerLoad& load, graph::Graph* graph) {
  graph::Shares shares;
  shares.ranks = static_cast<std::uint32_t>(load.received.size());
  for (const std::int64_t permille : load.received) {
    shares.parts.push_back(permille * (graph::Shares::kEven / 1000));
  }
  shares.Seal();
  const auto at = std::find(graph->shares.begin(), graph->shares.end(), shares);
  const SharesId id(static_cast<std::size_t>(at - graph->shares.begin()));
  if (at == graph->shares.end()) graph->shares.push_back(std::move(shares));
  return id;
}

}  // namespace

Status Generator::AddJob(const Model& model, const Plan& plan, const std::string& job_name,
                         graph::Graph* graph) {
  ORRERY_RETURN_IF_ERROR(Validate(model));
  ORRERY_RETURN_IF_ERROR(Validate(model, plan));
  ORRERY_ASSIGN_OR_RETURN(const std::vector<int> chunk_layers, LayersPerChunk(model, plan));
  cache_->blocks.Trim(kMostBlocks);
  const Shape shape = MakeShape(model, plan);
  BlockSource blocks(&cache_->blocks, shape, graph);
  if (graph->blocks.empty()) graph->blocks.reserve(64);
  // ZeRO shards gradients over dp, so that their norm is a sum over all ranks of a shard group.
  const int norm_group = plan.parallel.tp * plan.parallel.pp *
                         (plan.memory.sharding == Sharding::kNone ? 1 : plan.shard_ranks());
  std::vector<LayerLoad> loads;
  if (model.experts.count > 0 && DrawsRouting(plan)) {
    for (int l = 0; l < model.layers; ++l) {
      loads.push_back(LoadOfLayer(model, plan, l));
      if (plan.parallel.ep > 1) loads.back().shares = SharesOf(loads.back(), graph);
    }
  }
  const JobContext job{.model = &model,
                       .plan = &plan,
                       .shape = &shape,
                       .blocks = &blocks,
                       .chunk_layers = chunk_layers,
                       .norm_group = norm_group,
                       .loads = loads};
  const ProgramId first_program(graph->programs.size());
  // Where loads are drawn, ranks over ep run programs of their own.
  const int variants = loads.empty() ? 1 : plan.parallel.ep;
  graph->programs.reserve(graph->programs.size() +
                          static_cast<std::size_t>(plan.parallel.pp * variants));
  for (int i = 0; i < plan.parallel.pp * variants; ++i) {
    const int stage = i / variants;
    graph::Program& program = graph->programs.emplace_back();
    program.name = variants == 1 ? fmt::format("stage {}", stage)
                                 : fmt::format("stage {}, experts of rank {}", stage, i % variants);
    if (plan.gathers_units() && !plan.keeps_units()) {
      WriteShardedProgram(job, &program);
      continue;
    }
    ProgramWriter writer(job, stage, &program, i % variants);
    writer.Begin();
    WriteSchedule(plan.parallel.schedule, &writer);
    writer.End();
  }
  Layout layout(job, graph);
  layout.AddGroups();
  const JobId job_id(graph->jobs.size());
  const std::size_t first_rank = graph->bindings.size();
  layout.AddBindings(first_program, job_id, static_cast<std::size_t>(variants));
  if (model.experts.count > 0) AddExpertGroups(plan, first_rank, variants > 1, graph);
  graph->jobs.push_back({.name = job_name,
                         .ranks = static_cast<std::uint32_t>(plan.ranks()),
                         .tokens_per_step = plan.batch.global_batch * plan.batch.seq_len,
                         .model_flops_per_step = model.flops_per_sequence(plan.batch.seq_len) *
                                                 static_cast<double>(plan.batch.global_batch)});
  return {};
}

}  // namespace orrery::workload
