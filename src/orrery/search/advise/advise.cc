#include "orrery/search/advise/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/results/parts.h"
#include "orrery/workload/plan.h"

namespace orrery::search {
namespace {

using engine::Part;
using workload::Plan;
using Changes = std::vector<std::string>;

constexpr double kWorthTrying = 0.05;  // of the step, that a change could save
constexpr double kWorthSaying = 0.02;  // of the step, that it does save
constexpr std::size_t kMostReplays = 2;

class Candidates {
 public:
  Candidates(const Plan& plan, cluster::Arch arch, const results::JobResult& result)
      : plan_(plan), arch_(arch), result_(result) {}

  std::vector<Changes> All() {
    if (Lost(Part::kBubble) >= kWorthTrying) AgainstBubble();
    AgainstOldKernels();
    if (plan_.memory.recompute != workload::Recompute::kNone) AgainstRecompute();
    if (LostTo(graph::GroupSlot::kTp) >= kWorthTrying) AgainstTensorParallel();
    if (LostTo(graph::GroupSlot::kDp) >= kWorthTrying) AgainstDataParallel();
    if (plan_.microbatches() % 2 == 0) {
      all_.push_back({fmt::format("training.micro_batch={}", 2 * plan_.batch.micro_batch)});
    }
    if (all_.size() > kMostTrials) all_.resize(kMostTrials);
    return std::move(all_);
  }

 private:
  double Lost(Part part) const {
    return results::Share(result_.overall.parts[static_cast<std::size_t>(part)],
                          result_.overall.total);
  }
  double LostTo(graph::GroupSlot slot) const {
    const std::size_t part =
        static_cast<std::size_t>(Part::kExposed) + static_cast<std::size_t>(slot);
    return results::Share(result_.overall.parts[part], result_.overall.total);
  }

  // Interleaving asks for layers that its chunks divide; a list of the user's is of its own vpp.
  void AgainstBubble() {
    const bool plain = plan_.parallel.schedule == workload::Schedule::k1f1b;
    if (!plain && plan_.parallel.schedule != workload::Schedule::k1f1bInterleaved) return;
    for (const int factor : {2, 4, 8}) {
      Changes changes = {fmt::format("parallel.vpp={}", factor * plan_.parallel.vpp)};
      if (plain) changes.emplace_back("schedule=1f1b-interleaved");
      if (!plan_.parallel.layers_per_stage.empty())
        changes.emplace_back("parallel.layers_per_stage=auto");
      all_.push_back(std::move(changes));
    }
    if (plain) all_.push_back({"schedule=zb-h1"});
  }
  // PyTorch's scaled_dot_product_attention takes flash attention 2 on Hopper, which uses none of
  // its asynchronous copies; cuDNN's kernels are there to be asked for
  // (torch.nn.attention.sdpa_kernel).
  void AgainstOldKernels() {
    if (arch_ != cluster::Arch::kHopper) return;
    if (plan_.framework.attention != workload::AttentionBackend::kFlash2) return;
    all_.push_back({"framework_options.attention=cudnn"});
  }
  void AgainstRecompute() {
    for (const std::string_view less : {"none", "selective"}) {
      if (less == "selective" && plan_.memory.recompute != workload::Recompute::kFull) continue;
      Changes changes = {fmt::format("training.recompute={}", less)};
      if (plan_.recomputes_in_parts()) {
        changes.insert(changes.end(),
                       {"training.recompute_method=null", "training.recompute_layers=null"});
      }
      all_.push_back(std::move(changes));
    }
  }
  void AgainstTensorParallel() {
    if (!plan_.parallel.sequence_parallel) all_.push_back({"parallel.sequence_parallel=true"});
    if (plan_.parallel.sequence_parallel && !plan_.framework.tp_comm_overlap) {
      all_.push_back({"framework_options.tp_comm_overlap=true"});
    }
  }
  void AgainstDataParallel() {
    if (plan_.gathers_units() && !plan_.keeps_units() && plan_.microbatches() > 1 &&
        !plan_.framework.defer_grad_reduce) {
      all_.push_back({"framework_options.defer_grad_reduce=true"});
    }
    if (!plan_.framework.overlap_grad_reduce) {
      all_.push_back({"framework_options.overlap_grad_reduce=true"});
    } else if (!plan_.framework.overlap_param_gather &&
               plan_.memory.sharding == workload::Sharding::kZero1) {
      all_.push_back({"framework_options.overlap_param_gather=true"});
    }
  }

  const Plan& plan_;
  const cluster::Arch arch_;
  const results::JobResult& result_;
  std::vector<Changes> all_;
};

struct Trial {
  Changes changes;
  job::Job job;
  SimTime step_time = 0;
};

std::string TextOf(const Changes& changes) {
  std::string text;
  for (const std::string& change : changes) {
    text += fmt::format("{}--set {}", text.empty() ? "" : " ", change);
  }
  return text;
}

// Bytes of the fullest GPU; 0 where the plan does not fit it.
Result<std::int64_t> MemoryOf(const job::Job& job, Evaluator* evaluator) {
  ORRERY_ASSIGN_OR_RETURN(const job::Simulation simulation, evaluator->Prepare(job));
  ORRERY_ASSIGN_OR_RETURN(const std::vector<memory::Footprint> footprints,
                          simulation.ReplayMemory());
  std::int64_t most = 0;
  for (const memory::Footprint& footprint : footprints) {
    if (footprint.oom) return std::int64_t{0};
    most = std::max(most, footprint.total());
  }
  return most;
}

}  // namespace

Result<std::string> Advise(const Template& base, const results::JobResult& result,
                           std::uint64_t events) {
  if (events > kMostEvents || result.out_of_memory() || result.fullest() == nullptr) {
    return std::string();
  }
  Evaluator evaluator(base);
  ORRERY_ASSIGN_OR_RETURN(const job::Job own, evaluator.Read({}, false));
  std::vector<Trial> faster;
  std::vector<std::string> tried;
  for (Changes& changes :
       Candidates(own.workloads.front().plan, own.cluster.device.arch, result).All()) {
    // A rule of the framework may refuse a change: then it is none.
    Result<job::Job> changed = evaluator.Read(changes, false);
    if (!changed.ok()) continue;
    Result<job::Simulation> simulation = evaluator.Prepare(*changed);
    if (!simulation.ok()) continue;
    const Result<job::Evaluation> evaluation = simulation->Evaluate(true);
    if (!evaluation.ok()) continue;
    tried.push_back(changes.front());
    const SimTime step = evaluation->job.step_time;
    const bool fits = !evaluation->too_large();
    if (!fits ||
        static_cast<double>(step) > (1 - kWorthSaying) * static_cast<double>(result.step_time)) {
      continue;
    }
    faster.push_back({std::move(changes), *std::move(changed), step});
  }
  if (tried.empty()) return std::string();
  std::stable_sort(faster.begin(), faster.end(),
                   [](const Trial& a, const Trial& b) { return a.step_time < b.step_time; });
  for (std::size_t i = 0; i < std::min(kMostReplays, faster.size()); ++i) {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t bytes, MemoryOf(faster[i].job, &evaluator));
    const bool more = bytes > result.fullest()->total();
    if (bytes == 0 || (more && results::IsClose(bytes, result.device_bytes))) continue;
    const double saved = 1 - results::Share(faster[i].step_time, result.step_time);
    return fmt::format("{} gives {} ({} less), {} on the fullest GPU", TextOf(faster[i].changes),
                       HumanTime(faster[i].step_time), results::Percent(saved), HumanBytes(bytes));
  }
  return fmt::format("none of these is 2% faster and fits well: {}", fmt::join(tried, ", "));
}

}  // namespace orrery::search
