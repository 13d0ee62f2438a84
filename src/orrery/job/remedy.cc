#include "orrery/job/remedy.h"

#include <algorithm>
#include <array>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/job/frameworks.h"
#include "orrery/workload/generator.h"
#include "orrery/workload/generators/tp_overlap.h"

namespace orrery::job {
namespace {

using workload::Plan;

// False when it would change nothing.
using Change = bool (*)(Plan* plan);
struct Remedy {
  const char* text;
  Change apply;
};

constexpr std::array<Remedy, 5> kRemedies = {{
    {"training.sharding: zero1",
     [](Plan* p) {
       if (p->sharding != workload::Sharding::kNone || p->replicas() == 1) return false;
       p->sharding = workload::Sharding::kZero1;
       return true;
     }},
    {"parallel.sequence_parallel: true",
     [](Plan* p) {
       if (p->sequence_parallel || p->tp == 1) return false;
       p->sequence_parallel = true;
       return true;
     }},
    {"training.recompute: selective",
     [](Plan* p) {
       if (p->recompute != workload::Recompute::kNone) return false;
       p->recompute = workload::Recompute::kSelective;
       return true;
     }},
    {"training.micro_batch: 1",
     [](Plan* p) {
       if (p->micro_batch == 1) return false;
       p->micro_batch = 1;
       return true;
     }},
    {"training.recompute: full",
     [](Plan* p) {
       if (p->recompute == workload::Recompute::kFull) return false;
       p->recompute = workload::Recompute::kFull;
       return true;
     }},
}};

// A layer that is recomputed now keeps what the job's framework keeps.
bool Apply(const Remedy& remedy, const Workload& w, Plan* plan) {
  if (!remedy.apply(plan)) return false;
  const auto framework = FindFramework(w.framework);
  if (plan->recompute != w.plan.recompute && framework.ok()) {
    ApplyRecompute((*framework)->defaults, plan);
  }
  return true;
}

class Trial {
 public:
  Trial(const Job& job, const memory::Libraries& libraries) : job_(job), options_(job.memory) {
    options_.libraries = {libraries};
    options_.timeline = false;
  }

  // Whether every program fits. A plan that is refused does not.
  bool Fits(const workload::Model& model, const Plan& plan) {
    graph::Graph graph;
    if (!generator_.AddJob(model, plan, "remedy", &graph).ok()) return false;
    memory::Libraries& libraries = options_.libraries.front();
    libraries.userbuffer_bytes = workload::UserbufferBytes(model, plan);
    return Fits(graph, options_);
  }
  bool Fits(const graph::Graph& graph, const memory::Options& options) const {
    const auto footprints = memory::ReplayAll(graph, job_.cluster.device, options);
    return footprints.ok() && std::none_of(footprints->begin(), footprints->end(),
                                           [](const memory::Footprint& f) { return f.oom; });
  }

 private:
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
  if (!job.memory.allocator.expandable_segments && trial.Fits(graph, expandable)) {
    return "it fits with memory.allocator: expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF)";
  }
  for (const Remedy& remedy : kRemedies) {
    Plan plan = w.plan;
    if (Apply(remedy, w, &plan) && trial.Fits(w.model, plan)) {
      return fmt::format("it fits with {}", remedy.text);
    }
  }
  Plan plan = w.plan;
  std::string texts;
  for (const Remedy& remedy : kRemedies) {
    if (!Apply(remedy, w, &plan)) continue;
    texts += fmt::format("{}{}", texts.empty() ? "" : ", ", remedy.text);
    if (trial.Fits(w.model, plan)) return fmt::format("it fits with {} together", texts);
  }
  return fmt::format(
      "it needs {} of {}; no sharding, recompute or micro-batch makes it fit: use more pipeline or "
      "tensor parallelism, or a larger GPU",
      HumanBytes(worst.total()), HumanBytes(job.cluster.device.memory_bytes));
}

}  // namespace orrery::job
