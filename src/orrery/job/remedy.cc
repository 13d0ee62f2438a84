#include "orrery/job/remedy.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/job/frameworks.h"
#include "orrery/results/parts.h"
#include "orrery/workload/generator.h"
#include "orrery/workload/generators/layers/tp_overlap.h"

namespace orrery::job {
namespace {

using workload::Plan;

// False when it would change nothing.
using Change = bool (*)(Plan* plan);
struct Remedy {
  const char* text;
  Change apply;
};

constexpr std::array<Remedy, 7> kRemedies = {{
    {"framework_options.defer_grad_reduce: false (every micro-batch reduces its gradients)",
     [](Plan* p) {
       if (!p->defers_reductions()) return false;
       p->framework.defer_grad_reduce = false;
       return true;
     }},
    {"training.sharding: zero1",
     [](Plan* p) {
       if (p->memory.sharding != workload::Sharding::kNone || p->replicas() == 1) return false;
       p->memory.sharding = workload::Sharding::kZero1;
       return true;
     }},
    {"parallel.sequence_parallel: true",
     [](Plan* p) {
       if (p->parallel.sequence_parallel || p->parallel.tp == 1) return false;
       p->parallel.sequence_parallel = true;
       return true;
     }},
    {"training.recompute: selective",
     [](Plan* p) {
       if (p->memory.recompute != workload::Recompute::kNone) return false;
       p->memory.recompute = workload::Recompute::kSelective;
       return true;
     }},
    {"training.micro_batch: 1",
     [](Plan* p) {
       if (p->batch.micro_batch == 1) return false;
       p->batch.micro_batch = 1;
       return true;
     }},
    {"training.recompute: full",
     [](Plan* p) {
       if (p->memory.recompute == workload::Recompute::kFull) return false;
       p->memory.recompute = workload::Recompute::kFull;
       return true;
     }},
    {"all layers recomputed one by one (without recompute_method and recompute_layers)",
     [](Plan* p) {
       if (!p->recomputes_in_parts()) return false;
       p->memory.recompute_method = workload::RecomputeMethod::kUniform;
       p->memory.recompute_layers = 1;
       return true;
     }},
}};

// What recomputed layers keep goes with recompute, unless the job says it.
void ChangeRecompute(const FrameworkDefaults& defaults, const Plan& job, Plan* plan) {
  Plan standard = job;
  ApplyRecompute(defaults, &standard);
  ApplyRecompute(defaults, plan);
  plan->framework.recompute_flash = job.framework.recompute_flash;
  if (job.framework.recompute_keeps != standard.framework.recompute_keeps)
    plan->framework.recompute_keeps = job.framework.recompute_keeps;
}

// The plan with the change and what the framework makes of it; none where it changes nothing or the
// framework refuses it.
std::optional<Plan> Changed(const Remedy& remedy, const Workload& w, Plan plan) {
  if (!remedy.apply(&plan)) return {};
  if (w.framework.empty()) return plan;  // a trace's
  const FrameworkDefaults& defaults = w.framework_defaults;
  if (plan.memory.recompute != w.plan.memory.recompute) ChangeRecompute(defaults, w.plan, &plan);
  if (plan.memory.sharding != w.plan.memory.sharding) ApplyZero1(defaults, &plan);
  if (!CheckSharded(w.framework, defaults, plan).ok()) return {};
  return plan;
}

// As a user writes it: modules are of selective recompute alone.
std::string TextOf(const Remedy& remedy, const Workload& w, const Plan& plan) {
  const bool drops = w.plan.memory.recompute == workload::Recompute::kSelective &&
                     plan.memory.recompute == workload::Recompute::kFull &&
                     w.plan.memory.recompute_modules != workload::kRecomputeCore;
  return fmt::format("{}{}", remedy.text, drops ? " (without recompute_modules)" : "");
}

class Trial {
 public:
  Trial(const Job& job, const memory::Libraries& libraries) : job_(job), options_(job.memory) {
    options_.libraries = {libraries};
    options_.timeline = false;
  }

  // Bytes of the fullest program where every one fits, else none. A plan that is refused does not.
  std::optional<std::int64_t> Fits(const workload::Model& model, const Plan& plan) {
    graph::Graph graph;
    if (!generator_.AddJob(model, plan, "remedy", &graph).ok()) return {};
    memory::Libraries& libraries = options_.libraries.front();
    libraries.userbuffer_bytes = workload::UserbufferBytes(model, plan);
    if (Exceeds(graph)) return {};
    return Fits(graph, options_);
  }
  std::optional<std::int64_t> Fits(const graph::Graph& graph,
                                   const memory::Options& options) const {
    const auto footprints = memory::ReplayAll(graph, job_.cluster.device, options);
    if (!footprints.ok()) return {};
    std::int64_t most = 0;
    for (const memory::Footprint& footprint : *footprints) {
      if (footprint.oom) return {};
      most = std::max(most, footprint.total());
    }
    return most;
  }

 private:
  // What lives at one time is more than there is, however it is placed: a replay, which takes many
  // times longer, would say the same.
  bool Exceeds(const graph::Graph& graph) const {
    const std::vector<memory::BlockNet> nets = memory::BlockNets(graph);
    for (std::size_t p = 0; p < graph.programs.size(); ++p) {
      const auto peak = memory::QuickPeak(graph, ProgramId(p), nets);
      if (peak.ok() && *peak > job_.cluster.device.memory_bytes) return true;
    }
    return false;
  }

  const Job& job_;
  memory::Options options_;
  workload::Generator generator_;
};

}  // namespace

std::string MemoryRemedy(const Job& job, std::size_t workload, const graph::Graph& graph,
                         const memory::Footprint& worst) {
  const Workload& w = job.workloads[workload];
  Trial trial(job, w.libraries);
  memory::Options expandable = job.memory;
  expandable.allocator.expandable_segments = true;
  // With what it then takes, and under which optimizer: the same change need not help another.
  const auto fits = [&](std::string_view changes, std::int64_t bytes) {
    const bool close = results::IsClose(bytes, job.cluster.device.memory_bytes);
    return fmt::format("it {} with {}: {} of {}, optimizer {}",
                       close ? "just fits (close: try it)" : "fits", changes, HumanBytes(bytes),
                       HumanBytes(job.cluster.device.memory_bytes), w.optimizer);
  };
  if (!job.memory.allocator.expandable_segments) {
    if (const auto bytes = trial.Fits(graph, expandable)) {
      return fits("memory.allocator: expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF)", *bytes);
    }
  }
  for (const Remedy& remedy : kRemedies) {
    const std::optional<Plan> plan = Changed(remedy, w, w.plan);
    if (!plan) continue;
    if (const auto bytes = trial.Fits(w.model, *plan)) {
      return fits(TextOf(remedy, w, *plan), *bytes);
    }
  }
  Plan plan = w.plan;
  std::string texts;
  for (const Remedy& remedy : kRemedies) {
    std::optional<Plan> changed = Changed(remedy, w, plan);
    if (!changed) continue;
    plan = *std::move(changed);
    texts += fmt::format("{}{}", texts.empty() ? "" : ", ", TextOf(remedy, w, plan));
    if (const auto bytes = trial.Fits(w.model, plan)) return fits(texts + " together", *bytes);
  }
  const bool shards_more =
      w.plan.replicas() > 1 && w.plan.memory.sharding < workload::Sharding::kZero2;
  return fmt::format(
      "it needs {} of {}{}: use more pipeline or tensor parallelism, {}or a larger GPU",
      HumanBytes(worst.total()), HumanBytes(job.cluster.device.memory_bytes),
      texts.empty() ? "" : fmt::format("; with {} it still does not fit", texts),
      shards_more ? "training.sharding: zero2 or zero3, " : "");
}

}  // namespace orrery::job
