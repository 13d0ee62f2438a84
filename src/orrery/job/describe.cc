#include "orrery/job/describe.h"

#include <fmt/format.h>

#include "orrery/base/text.h"
#include "orrery/job/plan_keys.h"

namespace orrery::job {

namespace {

// From the preset whose name it has.
bool DiffersFromPreset(const cluster::Spec& spec) {
  Result<cluster::Spec> preset = BuiltInData().clusters.Find(spec.name);
  if (!preset.ok()) return false;
  Job given, named;
  given.cluster = spec;
  named.cluster = *std::move(preset);
  named.cluster.nodes = spec.nodes;
  named.cluster.device.constants = spec.device.constants;
  if (spec.cpu_speed_fitted) named.cluster.cpu_relative_speed = spec.cpu_relative_speed;
  return MachineText(given) != MachineText(named);
}

}  // namespace

std::string DescribeCluster(const cluster::Spec& spec, std::size_t ranks) {
  const std::int64_t all = std::int64_t{spec.nodes} * spec.gpus_per_node;
  const auto used = static_cast<std::int64_t>(ranks);
  const std::string part = used > 0 && used < all ? fmt::format("{} of ", HumanCount(used)) : "";
  return fmt::format("{}{} × {} ({}{}, {} node{} × {})", part, HumanCount(all), spec.device.name,
                     DiffersFromPreset(spec) ? "based on " : "", spec.name, HumanCount(spec.nodes),
                     spec.nodes == 1 ? "" : "s", spec.gpus_per_node);
}

namespace {

// "full", "full of 4 layers at once", "full of the first 2 layers of a chunk", "full of one layer
// in 2".
std::string RecomputeText(const workload::Plan& plan) {
  std::string text(NameOf(kRecomputes, plan.memory.recompute));
  if (!plan.recomputes_in_parts()) return text;
  const std::int64_t n = plan.memory.recompute_layers;
  switch (plan.memory.recompute_method) {
    case workload::RecomputeMethod::kUniform:
      return text + fmt::format(" of {} layers at once", n);
    case workload::RecomputeMethod::kBlock:
      return text + (n == 1 ? " of the first layer of a chunk"
                            : fmt::format(" of the first {} layers of a chunk", n));
    case workload::RecomputeMethod::kEvery:
      return text + fmt::format(" of one layer in {}", n);
  }
  return text;
}

}  // namespace

std::string DescribeWorkload(const Workload& workload) {
  const workload::Plan& plan = workload.plan;
  std::string text = fmt::format("{} ({} parameters), TP{} PP{} DP{}", workload.model.name,
                                 HumanParameters(workload.model.parameters()), plan.parallel.tp,
                                 plan.parallel.pp, plan.parallel.dp);
  if (plan.parallel.cp > 1) text += fmt::format(" CP{}", plan.parallel.cp);
  if (plan.parallel.vpp > 1) text += fmt::format(" VPP{}", plan.parallel.vpp);
  if (plan.parallel.sequence_parallel) text += " SP";
  if (workload.model.experts.count > 0) {
    text += fmt::format(" EP{} ETP{}", plan.parallel.ep, plan.expert_tp());
  }
  text += fmt::format(", {}, batch {} × {} tokens, micro-batch {}, {}",
                      workload::Schedules()[static_cast<std::size_t>(plan.parallel.schedule)].name,
                      HumanCount(plan.batch.global_batch), HumanCount(plan.batch.seq_len),
                      plan.batch.micro_batch, PrecisionName(plan));
  if (plan.memory.recompute != workload::Recompute::kNone) {
    text += fmt::format(", recompute {}", RecomputeText(plan));
  }
  if (plan.lora.rank > 0) text += fmt::format(", LoRA of rank {}", plan.lora.rank);
  if (plan.lora.base != workload::BaseWeights::kModelType) {
    text += fmt::format(" beside weights in {}", NameOf(kBaseWeights, plan.lora.base));
  }
  if (plan.optimizer_states != workload::OptimizerStates::kFull) {
    text += fmt::format(", {} optimizer states", NameOf(kOptimizerStates, plan.optimizer_states));
  }
  if (plan.memory.offload_parameters) text += ", parameter shards in host memory";
  if (plan.memory.offload_optimizer) text += ", optimizer on the host";
  if (plan.memory.offload_activations) {
    text += ", activations";
    if (plan.memory.offload_modules != 0) {
      text += " before " + workload::OffloadModulesText(plan.memory.offload_modules);
    }
    if (plan.memory.offload_layers > 0) {
      text += fmt::format(" of {} layers", plan.memory.offload_layers);
    }
    text += " in host memory";
  }
  if (plan.memory.sharding != workload::Sharding::kNone) {
    text += fmt::format(", {}", NameOf(kShardings, plan.memory.sharding));
    if (plan.hybrid()) text += fmt::format(" in groups of {}", plan.memory.shard_group);
  }
  return text;
}

results::JobFacts FactsOf(const Job& job, const Workload& workload) {
  const cluster::DeviceSpec& device = job.cluster.device;
  results::JobFacts facts;
  facts.description = DescribeWorkload(workload);
  const workload::Precision type = workload.plan.precision.type;
  facts.peak_flops = type == workload::Precision::kFp32 ? device.fp32_flops : device.fp16_flops;
  facts.peak_type = type == workload::Precision::kFp32   ? "fp32"
                    : type == workload::Precision::kFp16 ? "fp16"
                                                         : "bf16";
  facts.device_bytes = device.memory_bytes;
  facts.experts = workload.model.experts.count > 0;
  return facts;
}

std::string MachineText(const Job& job) {
  const cluster::Spec& s = job.cluster;
  const cluster::DeviceSpec& d = s.device;
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}|", s.nodes,
                  s.gpus_per_node, s.gpus_per_nvlink_domain, s.nics_per_node, s.nvlink_Bps,
                  s.nvlink_latency, s.nvlink_packet_bytes, s.nvlink_header_bytes, s.pcie_Bps,
                  s.pcie_latency, s.nic_Bps, s.nic_latency, s.nic_mtu_bytes, s.nic_header_bytes,
                  static_cast<int>(s.fabric), s.rail_optimised, s.nodes_per_leaf,
                  s.oversubscription, s.cpu_relative_speed, s.cpu_is_amd, s.sharp);
  text += fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}|", d.name, d.table,
                      static_cast<int>(d.arch), d.sms, d.fp32_flops, d.tf32_flops, d.fp16_flops,
                      d.fp8_flops, d.fp4_flops, d.memory_bytes, d.memory_bandwidth_Bps, d.l2_bytes,
                      d.power_w);
  if (d.cuda != cluster::DeviceSpec().cuda) text += fmt::format("cuda {}|", d.cuda);
  if (d.vboost) text += "vboost|";
  if (d.exp_per_clock > 0) text += fmt::format("{}|", d.exp_per_clock);
  if (d.collective_setup > 0) text += fmt::format("setup {}|", d.collective_setup);
  if (d.collective_threads > 0) text += fmt::format("threads {}|", d.collective_threads);
  if (d.transfer_spread > 0) text += fmt::format("transfer {}|", d.transfer_spread);
  if (d.int8_flops > 0) text += fmt::format("int8 {}|", d.int8_flops);
  text += fmt::format("{} {}|", cluster::HashOf(s.topology), d.constants.hash());
  if (s.cpu_is_grace) text += "grace|";
  if (job.known().nccl != nullptr) text += fmt::format("nccl {}|", job.known().hash);
  if (s.fabric == cluster::Fabric::kTcp) text += fmt::format("{}|", s.stream_Bps);
  if (const cluster::PcieTreeSpec& t = s.pcie_tree; t.any()) {
    text += fmt::format("{} {} {} {} {} {} {}|", t.name, t.tree, t.peers, t.uplink_Bps,
                        t.socket_Bps, t.uplink_latency, t.socket_latency);
    if (!t.nvlinks.empty()) text += fmt::format("{}|", t.nvlinks);
  }
  for (const LinkPerturbation& p : job.links) {
    text += fmt::format("{} {} {} {}|", p.link, p.bandwidth, p.from, p.until);
  }
  text += fmt::format("{} {} {}|", static_cast<int>(job.pricing.model),
                      job.pricing.otherwise_orrery, job.pricing.setup);
  text += fmt::format("{}|", job.tuner_hash);
  for (const auto& [name, value] : job.nccl) text += fmt::format("{}={}|", name, value);
  return text;
}

}  // namespace orrery::job
