#include "orrery/job/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <variant>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/campaign/options.h"
#include "orrery/campaign/tables.h"

namespace orrery::job {
namespace {

using campaign::PowerUse;

Result<std::optional<Section>> ReadAsked(const Source& source, const formats::Node& root,
                                         const OptionTable& options) {
  using Asked = std::optional<Section>;
  const formats::Node* node = root.Find(options.path);
  if (node == nullptr) return Asked();
  if (node->kind == formats::Node::Kind::kNull) return Asked(Section(options));
  ORRERY_ASSIGN_OR_RETURN(Section section, Section::Read(*source.document, *node, options));
  return Asked(std::move(section));
}

Status ReadPrice(const Section& section, const campaign::Tables& tables, Job* job) {
  const cluster::DeviceSpec& device = job->cluster.device;
  double& price = job->cost->usd_per_gpu_hour;
  price = device.price_per_hour_usd;
  if (section.Has("price_per_gpu_hour")) price = section.Real("price_per_gpu_hour");
  if (price > 0) return {};
  if (const campaign::Price* known = tables.FindPrice(device.name)) {
    price = known->usd_per_gpu_hour;
    job->assumed.push_back(fmt::format("cost.price_per_gpu_hour: {} USD on {} ({})", price,
                                       known->date, Printable(known->source, 200)));
  }
  return {};
}

Status ReadCost(const Section& section, const campaign::Tables& tables, Job* job) {
  campaign::CostSettings& cost = job->cost.emplace();
  ORRERY_RETURN_IF_ERROR(ReadPrice(section, tables, job));
  if (section.Has("carbon_intensity")) {
    cost.g_per_kwh = section.Real("carbon_intensity");
  } else {
    Result<campaign::Grid> grid = tables.FindGrid(section.Text("region"));
    if (!grid.ok()) return std::move(grid).TakeStatus().In(section.Where("region"));
    cost.g_per_kwh = grid->g_per_kwh;
    job->assumed.push_back(fmt::format("cost.carbon_intensity: {} g/kWh, {} in {} ({})",
                                       grid->g_per_kwh, grid->region, grid->year,
                                       Printable(grid->source, 200)));
  }
  struct Row {
    const char* key;
    double campaign::CostSettings::*member;
    PowerUse use;
  };
  constexpr Row kRows[] = {
      {"pue", &campaign::CostSettings::pue, PowerUse::kPue},
      {"idle_power", &campaign::CostSettings::idle, PowerUse::kIdle},
      {"tensor_power", &campaign::CostSettings::tensor, PowerUse::kTensor},
      {"memory_power", &campaign::CostSettings::memory, PowerUse::kMemory},
      {"communication_power", &campaign::CostSettings::communication, PowerUse::kCommunication},
      {"server_power", &campaign::CostSettings::server, PowerUse::kServer}};
  std::string left;
  for (const Row& row : kRows) {
    const campaign::Power& known = tables.Of(row.use);
    cost.*row.member = section.Has(row.key) ? section.Real(row.key) : known.value;
    if (section.Has(row.key)) continue;
    left += fmt::format("{}{} {}", left.empty() ? "" : ", ", row.key, known.value);
  }
  if (!left.empty()) {
    job->assumed.push_back(fmt::format("cost: {} (sources: data/power.yaml)", left));
  }
  return {};
}

Status ReadGoodput(const Section& section, const campaign::Tables& tables, Job* job) {
  campaign::GoodputSettings& g = job->goodput.emplace();
  Result<campaign::Failures> failures = tables.FindFailures(section.Text("failures"));
  if (!failures.ok()) return std::move(failures).TakeStatus().In(section.Where("failures"));
  g.gpu_hours_between_failures = failures->gpu_hours();
  g.hardware_share = failures->hardware_share();
  if (section.Has("mean_time_between_failures")) {
    g.gpu_hours_between_failures = section.Real("mean_time_between_failures");
  } else if (g.gpu_hours_between_failures > 0) {
    job->assumed.push_back(fmt::format("goodput.failures: {} ({})", failures->description,
                                       Printable(failures->source, 200)));
  }
  if (section.Has("hardware_share")) g.hardware_share = section.Real("hardware_share");
  const auto seconds = [&](const char* key) { return ToSeconds(section.Integer(key)); };
  g.detection_s = seconds("detection");
  g.restart_s = seconds("restart");
  g.repair_s = seconds("repair");
  if (section.Has("interval")) g.interval_s = seconds("interval");
  const std::string mode = section.Text("checkpoint");
  for (const auto one :
       {campaign::CheckpointMode::kSynchronous, campaign::CheckpointMode::kAsynchronous,
        campaign::CheckpointMode::kMemory}) {
    if (campaign::Name(one) == mode) g.mode = one;
  }
  if (section.Has("storage_bandwidth")) {
    g.storage_Bps = static_cast<double>(section.Integer("storage_bandwidth"));
  }
  if (section.Has("spares")) g.spares = static_cast<int>(section.Integer("spares"));
  g.elastic = section.Bool("elastic");
  if (g.elastic && !g.spares) {
    return InvalidInput(
        "{}: without goodput.spares a node is always at hand; say how many there "
        "are, 0 for none",
        section.Where("elastic"));
  }
  g.stragglers_per_1000_node_days = section.Real("straggler_rate");
  g.straggler_speed = section.Real("straggler_speed");
  g.straggler_s = seconds("straggler_time");
  g.days = section.Real("days");
  g.trials = static_cast<int>(section.Integer("trials"));
  for (const char* key : {"detection", "restart", "repair"}) {
    if (section.Has(key)) continue;
    job->assumed.push_back(fmt::format("goodput.{}: {}", key, HumanTime(section.Integer(key))));
  }
  return {};
}

// Weights and optimizer state that a rank of a program keeps.
struct State {
  double weights = 0, optimizer = 0;
};

State StateOf(const graph::Graph& graph, const graph::Program& program) {
  State state;
  std::set<std::tuple<std::int32_t, std::int32_t, std::uint32_t>> seen;
  const auto add = [&](const std::vector<graph::Call>& calls) {
    for (const graph::Call& call : calls) {
      for (const graph::Buffer& buffer : graph.blocks[call.block.index()].buffers) {
        const bool weights = buffer.kind == graph::MemoryKind::kParameter;
        if (!weights && buffer.kind != graph::MemoryKind::kOptimizer) continue;
        if (buffer.lifetime != graph::Lifetime::kForever) continue;
        if (!seen.emplace(call.first_layer, call.chunk, buffer.id).second) continue;
        (weights ? state.weights : state.optimizer) +=
            static_cast<double>(buffer.bytes) * call.repeat;
      }
    }
  };
  add(program.prologue);
  add(program.calls);
  return state;
}

// Of matrix products and attention, in the time of all kernels of all ranks.
double TensorShare(const graph::Graph& graph, std::size_t index,
                   const compute::CostModel& compute) {
  std::vector<double> ranks(graph.programs.size(), 0);
  for (const graph::Binding& binding : graph.bindings) {
    if (binding.job.index() == index) ++ranks[binding.program.index()];
  }
  struct Times {
    double tensor = 0, all = 0;
  };
  std::vector<std::optional<Times>> blocks(graph.blocks.size());
  Times sum;
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    if (ranks[p] == 0) continue;
    for (const graph::Call& call : graph.programs[p].calls) {
      std::optional<Times>& times = blocks[call.block.index()];
      if (!times) {
        times.emplace();
        const graph::Block& block = graph.blocks[call.block.index()];
        for (const graph::Op& op : block.ops) {
          if (op.kind != graph::OpKind::kKernel) continue;
          const graph::Kernel& kernel = block.kernels[op.index];
          const auto time = static_cast<double>(compute.Price(kernel).duration);
          times->all += time;
          if (std::holds_alternative<graph::Gemm>(kernel) ||
              std::holds_alternative<graph::Attention>(kernel)) {
            times->tensor += time;
          }
        }
      }
      sum.tensor += ranks[p] * times->tensor * call.repeat;
      sum.all += ranks[p] * times->all * call.repeat;
    }
  }
  return sum.all > 0 ? sum.tensor / sum.all : 0;
}

// How often the ranks of a job hold the same: weights, optimizer state.
std::pair<double, double> CopiesOf(const workload::Plan& plan) {
  const auto replicas = static_cast<double>(plan.replicas());
  const double groups = plan.hybrid() ? replicas / plan.shard_ranks() : 1;
  switch (plan.memory.sharding) {
    case workload::Sharding::kNone:
      return {replicas, replicas};
    case workload::Sharding::kZero3:
      return {groups, groups};
    default:
      return {replicas, groups};
  }
}

campaign::RunFacts FactsOfRun(const Job& job, std::size_t index, const graph::Graph& graph,
                              const results::JobResult& result) {
  const workload::Plan& plan = job.workloads[index].plan;
  const cluster::Spec& spec = job.cluster;
  campaign::RunFacts run{
      .gpus = plan.ranks(),
      .gpus_per_node = spec.gpus_per_node,
      .replicas = plan.parallel.dp,
      .host_Bps = static_cast<double>(spec.pcie_Bps),
      .node_Bps = static_cast<double>(spec.nic_Bps) * spec.nics_per_node / spec.gpus_per_node,
      .seed = job.engine.seed};
  const auto [weight_copies, optimizer_copies] = CopiesOf(plan);
  std::vector<double> ranks(graph.programs.size(), 0);
  for (const graph::Binding& binding : graph.bindings) {
    if (binding.job.index() == index) ++ranks[binding.program.index()];
  }
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    if (ranks[p] == 0) continue;
    const State state = StateOf(graph, graph.programs[p]);
    const double one = state.weights / weight_copies + state.optimizer / optimizer_copies;
    run.state_bytes += ranks[p] * one;
    run.rank_state_bytes = std::max(run.rank_state_bytes, one);
  }
  if (plan.memory.offload_optimizer) {  // it lies in host memory already
    constexpr double kHostAdamBytes = 12;
    run.state_bytes +=
        kHostAdamBytes * static_cast<double>(job.workloads[index].model.parameters());
  }
  if (job.workloads[index].tokens > 0 && result.tokens_per_s > 0) {
    run.training_s = job.workloads[index].tokens / result.tokens_per_s;
  }
  return run;
}

}  // namespace

Status ReadCampaign(const Source& source, const formats::Node& root, Job* job) {
  const campaign::Tables& tables = job->known().campaign;
  ORRERY_ASSIGN_OR_RETURN(const std::optional<Section> cost,
                          ReadAsked(source, root, campaign::CostOptions()));
  const bool tokens =
      std::ranges::any_of(job->workloads, [](const Workload& w) { return w.tokens > 0; });
  if (cost || tokens) {
    ORRERY_RETURN_IF_ERROR(ReadCost(cost ? *cost : Section(campaign::CostOptions()), tables, job));
  }
  ORRERY_ASSIGN_OR_RETURN(const std::optional<Section> goodput,
                          ReadAsked(source, root, campaign::GoodputOptions()));
  if (goodput) ORRERY_RETURN_IF_ERROR(ReadGoodput(*goodput, tables, job));
  return {};
}

void AddCampaign(const Job& job, std::size_t index, const graph::Graph& graph,
                 const compute::CostModel& compute, bool draw, results::JobResult* result) {
  if (job.goodput) {
    const campaign::RunFacts run = FactsOfRun(job, index, graph, *result);
    campaign::GoodputSettings settings = *job.goodput;
    const double step_s = ToSeconds(result->step_time);
    // Checkpoints are written between steps.
    const bool short_one = campaign::ExpectedGoodput(settings, run).interval_s < step_s;
    if (short_one) settings.interval_s = step_s;
    result->goodput =
        draw ? campaign::GoodputOf(settings, run) : campaign::ExpectedGoodput(settings, run);
    if (short_one) {
      result->goodput->best_interval_s = std::max(result->goodput->best_interval_s, step_s);
    }
  }
  if (!job.cost) return;
  const double tokens_per_step = static_cast<double>(graph.jobs[index].tokens_per_step);
  result->cost = campaign::CostOf(
      *job.cost,
      results::StepTimesOf(*result, tokens_per_step, TensorShare(graph, index, compute),
                           job.cluster.device.power_w),
      job.workloads[index].tokens, result->goodput ? &*result->goodput : nullptr);
}

}  // namespace orrery::job
