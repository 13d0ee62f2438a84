// The resolved configuration: a job file that says everything.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orrery/base/check.h"
#include "orrery/base/hash.h"
#include "orrery/job/expert_keys.h"
#include "orrery/job/file_hash.h"
#include "orrery/job/frameworks.h"
#include "orrery/job/job.h"
#include "orrery/job/plan_keys.h"
#include "orrery/workload/conv_net.h"
#include "orrery/workload/layer_sizes.h"
#include "orrery/workload/routing.h"
#include "orrery/workload/switches.h"

namespace orrery::job {
namespace {

using Json = nlohmann::ordered_json;
using workload::Plan;

std::string Time(SimTime ps) { return fmt::format("{}ps", ps); }
std::string Bytes(std::int64_t bytes) { return fmt::format("{}B", bytes); }
std::string Bandwidth(std::int64_t rate) { return fmt::format("{}B/s", rate); }
std::string Flops(double rate) { return fmt::format("{}FLOP/s", rate); }

Json ModelJson(const workload::Model& m) {
  if (m.net != nullptr) return {{"preset", m.net->name}, {"name", m.name}};
  Json json = {{"name", m.name},
               {"layers", m.layers},
               {"hidden", m.hidden},
               {"heads", m.heads},
               {"kv_heads", m.kv_heads},
               {"head_dim", m.head_dim},
               {"ffn_hidden", m.ffn_hidden},
               {"vocab", m.vocab},
               {"max_position", m.max_position},
               {"norm", m.norm == workload::Norm::kRmsNorm ? "rmsnorm" : "layernorm"},
               {"activation", NameOf(kActivations, m.activation)},
               {"position", NameOf(kPositions, m.position)},
               {"tied_embeddings", m.tied_embeddings},
               {"attention_bias", m.attention_bias},
               {"mlp_bias", m.mlp_bias},
               {"dropout", m.dropout}};
  workload::Model sizes = m;
  for (const ModelSize& size : kModelSizes) {
    if (size.kept(m)) json[std::string(size.key)] = size.of(sizes);
  }
  if (m.mamba.kind != workload::Mixer::kMamba2)
    json["mixer"] = NameOf(workload::kMixers, m.mamba.kind);
  if (!m.pattern.empty()) json["pattern"] = m.pattern;
  if (!m.sizes.empty()) json["layer_sizes"] = workload::SayLayerSizes(m);
  if (m.experts.router_bias) json["router_bias"] = true;
  for (const ModelSwitch& s : kModelSwitches) {
    if (m.*s.member != s.usual) json[std::string(s.key)] = m.*s.member;
  }
  return json;
}

std::string_view ArchName(cluster::Arch arch) {
  switch (arch) {
    case cluster::Arch::kVolta:
      return "volta";
    case cluster::Arch::kAmpere:
      return "ampere";
    case cluster::Arch::kHopper:
      return "hopper";
    case cluster::Arch::kBlackwell:
      return "blackwell";
  }
  return "?";
}

Json DeviceJson(const cluster::DeviceSpec& d) {
  Json json = {{"name", d.name}};
  if (!d.table.empty()) json["table"] = d.table;
  json["arch"] = ArchName(d.arch);
  json["sms"] = d.sms;
  json["fp32"] = Flops(d.fp32_flops);
  json["tf32"] = Flops(d.tf32_flops);
  json["fp16"] = Flops(d.fp16_flops);
  json["fp8"] = Flops(d.fp8_flops);
  if (d.fp4_flops > 0) json["fp4"] = Flops(d.fp4_flops);
  if (d.int8_flops > 0) json["int8"] = Flops(d.int8_flops);
  json["memory"] = Bytes(d.memory_bytes);
  json["memory_bandwidth"] = Bandwidth(d.memory_bandwidth_Bps);
  json["l2"] = Bytes(d.l2_bytes);
  if (d.power_w > 0) json["power"] = d.power_w;
  if (d.cuda != cluster::DeviceSpec().cuda) json["cuda"] = d.cuda;
  if (d.vboost) json["vboost"] = true;
  if (d.exp_per_clock > 0) json["exp_per_clock"] = d.exp_per_clock;
  if (d.collective_setup > 0) json["collective_setup"] = Time(d.collective_setup);
  if (d.collective_threads > 0) json["collective_threads"] = d.collective_threads;
  if (d.bf16 == (d.arch == cluster::Arch::kVolta)) json["bf16"] = d.bf16;
  if (d.transfer_spread > 0) json["transfer_spread"] = d.transfer_spread;
  json["price_per_hour"] = d.price_per_hour_usd;
  return json;
}

Json TopologyJson(const cluster::TopologySpec& t) {
  Json json = {{"routing", cluster::Name(t.routing)}};
  if (!t.name.empty()) json["name"] = t.name;
  // A file is read again; what it holds is part of the hash (HashOfFiles).
  if (!t.file.empty()) json["file"] = t.file;
  if (!t.file.empty() && (t.name == "file" || t.name == "astra-sim")) return json;
  for (const auto& [key, count] :
       {std::pair{"spines", t.spines}, std::pair{"nodes_per_pod", t.nodes_per_pod},
        std::pair{"cores", t.cores}, std::pair{"nics_per_router", t.nics_per_router},
        std::pair{"routers_per_group", t.routers_per_group},
        std::pair{"global_links", t.global_links}}) {
    if (count > 0) json[key] = count;
  }
  if (t.uplink_Bps > 0) json["uplink_bandwidth"] = Bandwidth(t.uplink_Bps);
  if (t.core_Bps > 0) json["core_bandwidth"] = Bandwidth(t.core_Bps);
  if (t.spine_latency > 0) json["spine_latency"] = Time(t.spine_latency);
  if (t.core_latency > 0) json["core_latency"] = Time(t.core_latency);
  if (t.core_oversubscription > 1) json["core_oversubscription"] = t.core_oversubscription;
  if (t.dimensions.empty()) return json;
  std::string kinds;
  for (const cluster::Dimension& d : t.dimensions) {
    json["sizes"].push_back(d.size);
    kinds += fmt::format("{}{}", kinds.empty() ? "" : ",", cluster::Name(d.kind));
  }
  json["kinds"] = kinds;
  return json;
}

Json PcieTreeJson(const cluster::PcieTreeSpec& t) {
  Json json = {{"peers", t.peers ? "pcie" : "nvlink"},
               {"uplink_latency", Time(t.uplink_latency)},
               {"socket_latency", Time(t.socket_latency)}};
  if (t.tree.empty()) {
    json["name"] = t.name;
  } else {
    json["tree"] = t.tree;
  }
  if (!t.nvlinks.empty()) json["nvlinks"] = t.nvlinks;
  if (t.uplink_Bps > 0) json["uplink_bandwidth"] = Bandwidth(t.uplink_Bps);
  if (t.socket_Bps > 0) json["socket_bandwidth"] = Bandwidth(t.socket_Bps);
  return json;
}

Json ClusterJson(const cluster::Spec& s) {
  Json json = {{"name", s.name},
               {"gpus_per_node", s.gpus_per_node},
               {"gpus_per_nvlink_domain", s.gpus_per_nvlink_domain},
               {"nics_per_node", s.nics_per_node},
               {"nvlink_bandwidth", Bandwidth(s.nvlink_Bps)},
               {"nvlink_latency", Time(s.nvlink_latency)},
               {"nvlink_packet_bytes", Bytes(s.nvlink_packet_bytes)},
               {"nvlink_header_bytes", Bytes(s.nvlink_header_bytes)},
               {"pcie_bandwidth", Bandwidth(s.pcie_Bps)},
               {"pcie_latency", Time(s.pcie_latency)},
               {"nic_bandwidth", Bandwidth(s.nic_Bps)},
               {"nic_latency", Time(s.nic_latency)},
               {"nic_mtu_bytes", Bytes(s.nic_mtu_bytes)},
               {"nic_header_bytes", Bytes(s.nic_header_bytes)},
               {"fabric", cluster::Name(s.fabric)},
               {"sharp", s.sharp},
               {"rail_optimised", s.rail_optimised},
               {"nodes_per_leaf", s.nodes_per_leaf},
               {"oversubscription", s.oversubscription},
               {"cpu", s.cpu_is_amd     ? "amd"
                       : s.cpu_is_grace ? "grace"
                                        : "intel"},
               {"device", DeviceJson(s.device)}};
  if (!s.cpu_speed_fitted) json["cpu_relative_speed"] = s.cpu_relative_speed;
  if (s.fabric == cluster::Fabric::kTcp) json["stream_bandwidth"] = Bandwidth(s.stream_Bps);
  if (s.pcie_tree.any()) json["pcie_tree"] = PcieTreeJson(s.pcie_tree);
  const cluster::TopologySpec& t = s.topology;
  if (!t.name.empty() || !t.file.empty() || t.routing != cluster::Routing::kEcmp) {
    json["topology"] = TopologyJson(t);
  }
  return json;
}

Json ParallelJson(const Workload& w) {
  const Plan& plan = w.plan;
  Json json = {{"tp", plan.parallel.tp},
               {"pp", plan.parallel.pp},
               {"vpp", plan.parallel.vpp},
               {"dp", plan.parallel.dp},
               {"cp", plan.parallel.cp},
               {"ep", plan.parallel.ep},
               {"sequence_parallel", plan.parallel.sequence_parallel}};
  if (w.model.experts.count > 0) json["etp"] = plan.expert_tp();
  if (plan.parallel.rank_order != workload::RankOrder::kDpPp) {
    json["rank_order"] = NameOf(kRankOrders, plan.parallel.rank_order);
  }
  if (plan.hybrid()) json["shard_group"] = plan.memory.shard_group;
  const Result<std::vector<int>> layers = workload::LayersPerChunk(w.model, plan);
  ORRERY_CHECK(layers.ok(), "a plan that was read divides its layers");
  json["layers_per_stage"] = *layers;
  if (plan.parallel.schedule == workload::Schedule::k1f1bInterleaved) {
    json["microbatch_group"] =
        plan.parallel.microbatch_group > 0 ? plan.parallel.microbatch_group : plan.parallel.pp;
  }
  return json;
}

// The plan as it is read where `framework_options` say nothing.
Plan AsFrameworkHasIt(const FrameworkDefaults& defaults, cluster::Arch arch, const Workload& w) {
  Plan plan = w.plan;
  ApplyDefaults(defaults, arch, w.model, &plan);
  ClearExpertSwitches(w.model, &plan);
  return plan;
}

// What does not matter is left out where the framework has it so.
Json FrameworkJson(const Workload& w, cluster::Arch arch) {
  const Plan& plan = w.plan;
  const FrameworkDefaults& defaults = w.framework_defaults;
  const Plan standard = AsFrameworkHasIt(defaults, arch, w);
  Json json = {{"attention", NameOf(kAttentions, plan.framework.attention)}};
  for (const workload::Switch& flag : workload::Switches()) {
    const bool differs = plan.framework.*flag.member != standard.framework.*flag.member;
    if (flag.matters(plan) || (differs && flag.matters(standard)))
      json[std::string(flag.key)] = plan.framework.*flag.member;
  }
  if (plan.framework.recompute_keeps != standard.framework.recompute_keeps) {
    json["recompute_keeps"] = NameOf(kRecomputeKeeps, plan.framework.recompute_keeps);
  }
  if (w.libraries.transformer_engine != defaults.libraries.transformer_engine) {
    json["transformer_engine"] = w.libraries.transformer_engine;
  }
  if (w.host != defaults.host) json["host_work"] = w.host != workload::HostEra::kNone;
  json["torch_layers"] = NameOf(kTorchLayers, plan.framework.torch_layers);
  if (plan.gathers_units() && plan.framework.flat_parameters && plan.framework.prefetch &&
      plan.memory.sharding == workload::Sharding::kZero3 &&
      plan.framework.gather_limit != workload::GatherLimit::kOrder) {
    json["limit_all_gathers"] = plan.framework.gather_limit == workload::GatherLimit::kHost;
  }
  if (plan.gathers_units() && plan.memory.reshard != workload::kReshardAll) {
    if (plan.memory.reshard == workload::kKeepGathered) json["reshard"] = false;
    if (plan.memory.reshard > 0) json["reshard"] = plan.memory.reshard;
  }
  if (plan.parallel.cp > 1) json["cp_exchange"] = NameOf(kCpExchanges, plan.parallel.cp_exchange);
  if (plan.framework.cuda_graphs != workload::CudaGraphs::kNone) {
    json["cuda_graphs"] = NameOf(kCudaGraphs, plan.framework.cuda_graphs);
    if (plan.framework.graph_scope != workload::kGraphAll) {
      json["cuda_graph_scope"] = workload::GraphScopeText(plan.framework.graph_scope);
    }
  }
  const std::string_view recipe = NameOf(kFp8Recipes, plan.precision.low);
  if (recipe != "?") json["fp8_recipe"] = recipe;
  json["bucket_elements"] = plan.framework.bucket_elements;
  if (plan.framework.deferred_head > 0) json["deferred_head"] = plan.framework.deferred_head;
  if (plan.framework.reducer == workload::Reducer::kDdp)
    json["bucket_bytes"] = plan.framework.bucket_bytes;
  return json;
}

void AddRouting(const Plan& plan, Json* json) {
  (*json)["moe_dispatcher"] = NameOf(kDispatchers, plan.experts.dispatcher);
  (*json)["moe_routing"] = plan.experts.given_routing != nullptr
                               ? std::string_view(plan.experts.given_routing->name)
                               : NameOf(kRoutings, plan.experts.routing);
  if (plan.experts.routing == workload::Routing::kDirichlet) {
    (*json)["moe_alpha"] = plan.experts.routing_alpha;
  }
  if (plan.experts.routing == workload::Routing::kDrawnZipf) {
    (*json)["moe_zipf"] = plan.experts.routing_exponent;
  }
  if (workload::DrawsRouting(plan)) (*json)["moe_seed"] = plan.experts.routing_seed;
  if (plan.experts.pad_to_capacity) (*json)["moe_pad_to_capacity"] = true;
  if (plan.experts.expert_capacity > 0) {
    (*json)["moe_capacity_factor"] = plan.experts.expert_capacity;
  }
  (*json)["moe_imbalance"] = plan.experts.moe_imbalance;
  (*json)["moe_shared_overlap"] = plan.experts.shared_expert_overlap;
  if (plan.experts.moe_comm_overlap || plan.pairs_passes()) {
    (*json)["moe_comm_overlap"] = plan.experts.moe_comm_overlap;
  }
  if (plan.experts.moe_delayed_weights) (*json)["moe_delayed_weights"] = true;
}

Json TrainingJson(const Workload& w) {
  const Plan& plan = w.plan;
  Json json = {{"global_batch", plan.batch.global_batch},
               {"micro_batch", plan.batch.micro_batch},
               {"seq_len", plan.batch.seq_len},
               {"precision", PrecisionName(plan)},
               {"recompute", NameOf(kRecomputes, plan.memory.recompute)},
               {"optimizer", w.optimizer},
               {"sharding", NameOf(kShardings, plan.memory.sharding)}};
  if (plan.precision.low != workload::LowPrecision::kNone &&
      plan.precision.type != workload::Precision::kBf16) {
    json["param_dtype"] = NameOf(kPrecisions, plan.precision.type);
  }
  if (plan.memory.recompute == workload::Recompute::kSelective &&
      plan.memory.recompute_modules != workload::kRecomputeCore) {
    json["recompute_modules"] = workload::RecomputeModulesText(plan.memory.recompute_modules);
  }
  if (plan.recomputes_in_parts()) {
    json["recompute_method"] = NameOf(kRecomputeMethods, plan.memory.recompute_method);
    json["recompute_layers"] = plan.memory.recompute_layers;
  }
  if (plan.precision.bf16_first_layers > 0)
    json["bf16_first_layers"] = plan.precision.bf16_first_layers;
  if (plan.precision.bf16_last_layers > 0)
    json["bf16_last_layers"] = plan.precision.bf16_last_layers;
  if (plan.precision.bf16_modules != 0) {
    json["bf16_modules"] = workload::Bf16ModulesText(plan.precision.bf16_modules);
  }
  if (plan.memory.offload_optimizer || plan.memory.offload_activations) {
    json["offload"] = plan.memory.offload_parameters     ? "parameters"
                      : !plan.memory.offload_activations ? "optimizer"
                      : plan.memory.offload_optimizer    ? "all"
                                                         : "activations";
  }
  if (plan.memory.offload_threads > 0) json["offload_threads"] = plan.memory.offload_threads;
  if (plan.memory.offload_layers > 0) json["offload_layers"] = plan.memory.offload_layers;
  if (plan.memory.offload_modules != 0) {
    json["offload_modules"] = workload::OffloadModulesText(plan.memory.offload_modules);
  }
  if (plan.lora.rank > 0) {
    json["lora_rank"] = plan.lora.rank;
    json["lora_targets"] = workload::LoraTargetsText(plan.lora.targets);
    if (plan.lora.experts != workload::ExpertAdapterKind::kNone) {
      json["lora_experts"] = NameOf(kExpertAdapterKinds, plan.lora.experts);
    }
  }
  if (plan.lora.base != workload::BaseWeights::kModelType) {
    json["base_quantization"] = NameOf(kBaseWeights, plan.lora.base);
    if (plan.lora.double_quantization) json["double_quantization"] = true;
  }
  if (plan.optimizer_states != workload::OptimizerStates::kFull) {
    json["optimizer_states"] = NameOf(kOptimizerStates, plan.optimizer_states);
  }
  if (!plan.momentum) json["momentum"] = false;
  if (plan.batch.packed_len > 0) json["packed_len"] = plan.batch.packed_len;
  if (plan.batch.sample_read > 0 || plan.batch.object_store) {
    if (plan.batch.object_store) {
      json["data_storage"] = "object_store";
    } else {
      json["sample_read"] = Time(plan.batch.sample_read);
    }
    json["data_workers"] = plan.batch.data_workers;
  }
  if (w.tokens > 0) json["tokens"] = w.tokens;
  if (w.model.experts.count > 0) AddRouting(plan, &json);
  return json;
}

void AddWorkload(const Workload& w, cluster::Arch arch, Json* json) {
  const Plan& plan = w.plan;
  Json& out = *json;
  out["model"] = ModelJson(w.model);
  out["framework"] = w.framework;
  out["parallel"] = ParallelJson(w);
  out["training"] = TrainingJson(w);
  out["framework_options"] = FrameworkJson(w, arch);
  out["schedule"] =
      plan.parallel.given != nullptr
          ? std::string_view(plan.parallel.given->name)
          : workload::Schedules()[static_cast<std::size_t>(plan.parallel.schedule)].name;
}

Json EntryJson(const std::string& name, const PlacementRequest& placement) {
  Json one = {{"name", name}, {"placement", Name(placement.policy)}};
  if (placement.whole_nodes) one["rank"] = "node";
  if (!placement.devices.empty()) {
    Json devices = Json::array();
    for (const DeviceId device : placement.devices) devices.push_back(device.value);
    one["devices"] = std::move(devices);
  }
  return one;
}

void AddTurn(const Turn& turn, Json* json) {
  if (turn.start > 0) (*json)["start"] = Time(turn.start);
  if (turn.iterations) (*json)["iterations"] = *turn.iterations;
  if (turn.background) (*json)["background"] = true;
  if (turn.priority > 0) (*json)["priority"] = turn.priority;
}

Json JobsJson(const Job& job) {
  Json jobs = Json::array();
  const auto add = [&](Json one, const Workload& w) {
    Json inner;
    AddWorkload(w, job.cluster.device.arch, &inner);
    one["job"] = std::move(inner);
    jobs.push_back(std::move(one));
  };
  for (const Tenant& t : job.tenants) {
    Json one = EntryJson(t.name, t.placement);
    AddTurn(t.turn, &one);
    if (t.workload) {
      add(std::move(one), job.workloads[*t.workload]);
      continue;
    }
    if (!t.files.empty()) one["trace"] = t.files;
    for (const auto& [key, value] : t.keys)
      one[std::string(t.importer->options->path)][key] = value;
    jobs.push_back(std::move(one));
  }
  if (!job.tenants.empty()) return jobs;
  for (const Workload& w : job.workloads) add(EntryJson(w.name, w.placement), w);
  return jobs;
}

Json LogGopsJson(const network::LogGopsParameters& loggops) {
  const auto ns = [](std::int64_t attoseconds) { return static_cast<double>(attoseconds) * 1e-9; };
  Json json = {{"o", Time(loggops.o)}, {"g", Time(loggops.g)}, {"O", ns(loggops.O_as)}};
  if (loggops.L) json["L"] = Time(*loggops.L);
  if (loggops.G_as) json["G"] = ns(*loggops.G_as);
  return json;
}

// What the job named; the rest follows from the congestion control and the cluster.
Json PacketJson(const network::PacketParameters& p) {
  Json json = {{"congestion_control", p.congestion_control},
               {"paths", p.paths},
               {"switching", p.cut_through ? "cut-through" : "store-and-forward"},
               {"control_first", p.control_first}};
  if (!p.load_balancing.empty()) json["load_balancing"] = p.load_balancing;
  if (p.pfc) json["pfc"] = *p.pfc;
  if (p.trimming) json["trimming"] = *p.trimming;
  const auto bytes = [&](const char* name, std::int64_t value) {
    if (value > 0) json[name] = fmt::format("{}B", value);
  };
  bytes("buffer_per_port", p.buffer_per_port);
  bytes("pfc_xoff", p.pfc_xoff);
  bytes("pfc_xon", p.pfc_xon);
  bytes("queue", p.queue);
  bytes("ecn_min", p.ecn_min);
  bytes("ecn_max", p.ecn_max);
  if (p.ecn_most) json["ecn_most"] = *p.ecn_most;
  if (!p.recovery.empty()) json["recovery"] = p.recovery;
  if (p.rto > 0) json["rto"] = Time(p.rto);
  bytes("window", p.window);
  if (p.ack_every) json["ack_every"] = *p.ack_every;
  if (p.flowlet_gap > 0) json["flowlet_gap"] = Time(p.flowlet_gap);
  if (p.buffer > 0) json["buffer"] = Bytes(p.buffer);
  if (!p.rate_window.empty()) json["rate_window"] = p.rate_window;
  const network::ControlParameters& c = p.control;
  const auto rate = [&](const char* key, const std::optional<double>& value) {
    if (value) json[key] = Bandwidth(static_cast<std::int64_t>(*value));
  };
  rate("rate_ai", c.rate_ai_Bps);
  rate("rate_hai", c.rate_hai_Bps);
  rate("min_rate", c.min_rate_Bps);
  if (c.gain) json["gain"] = *c.gain;
  if (c.utilisation_target) json["utilisation_target"] = *c.utilisation_target;
  if (c.fast_recovery) json["fast_recovery"] = *c.fast_recovery;
  if (c.additive_stages) json["additive_stages"] = *c.additive_stages;
  if (c.clamp_target) json["clamp_target"] = *c.clamp_target;
  if (c.alpha_interval > 0) json["alpha_interval"] = Time(c.alpha_interval);
  if (c.decrease_interval > 0) json["decrease_interval"] = Time(c.decrease_interval);
  if (c.increase_interval > 0) json["increase_interval"] = Time(c.increase_interval);
  return json;
}

Json CostSettingsJson(const campaign::CostSettings& c) {
  Json json = {{"carbon_intensity", c.g_per_kwh},
               {"pue", c.pue},
               {"idle_power", c.idle},
               {"tensor_power", c.tensor},
               {"memory_power", c.memory},
               {"communication_power", c.communication},
               {"server_power", c.server}};
  if (c.usd_per_gpu_hour > 0) json["price_per_gpu_hour"] = c.usd_per_gpu_hour;
  return json;
}

// Times are numbers of seconds.
Json GoodputSettingsJson(const campaign::GoodputSettings& g) {
  Json json = {{"hardware_share", g.hardware_share},
               {"detection", g.detection_s},
               {"restart", g.restart_s},
               {"checkpoint", campaign::Name(g.mode)},
               {"repair", g.repair_s},
               {"elastic", g.elastic},
               {"straggler_rate", g.stragglers_per_1000_node_days},
               {"straggler_speed", g.straggler_speed},
               {"straggler_time", g.straggler_s},
               {"days", g.days},
               {"trials", g.trials}};
  if (g.gpu_hours_between_failures > 0) {
    json["mean_time_between_failures"] = g.gpu_hours_between_failures;
  } else {
    json["failures"] = "none";
  }
  if (g.interval_s > 0) json["interval"] = g.interval_s;
  if (g.storage_Bps > 0) json["storage_bandwidth"] = fmt::format("{:.0f}B/s", g.storage_Bps);
  if (g.spares) json["spares"] = *g.spares;
  return json;
}

Json PerturbJson(const Job& job) {
  Json ranks = Json::array();
  for (const engine::RankPerturbation& p : job.engine.ranks) {
    ranks.push_back({{"rank", p.rank.value}, {"speed", p.speed}, {"delay", Time(p.delay)}});
  }
  Json json = {{"jitter", job.engine.jitter}, {"ranks", std::move(ranks)}};
  for (const LinkPerturbation& p : job.links) {
    Json link = {{"link", p.link}, {"bandwidth", p.bandwidth}, {"from", Time(p.from)}};
    if (p.until != kNever) link["until"] = Time(p.until);
    json["links"].push_back(std::move(link));
  }
  return json;
}

// What of `whole` differs from `preset`, which is named; what only the preset has is turned off.
Json Beyond(const std::string& name, const Json& preset, const Json& whole) {
  Json json = {{"preset", name}};
  for (const auto& [key, value] : whole.items()) {
    const auto at = preset.find(key);
    if (at == preset.end() || *at != value) json[key] = value;
  }
  for (const auto& [key, value] : preset.items()) {
    if (whole.contains(key)) continue;
    if (value.is_boolean()) json[key] = !value.get<bool>();
    if (value.is_number()) json[key] = 0;
  }
  return json;
}

}  // namespace

std::string ModelText(const workload::Model& model, const workload::Model* preset) {
  Json json = ModelJson(model);
  if (preset != nullptr) {
    const Json whole = std::move(json);
    json = Beyond(preset->name, ModelJson(*preset), whole);
    // Else they would follow from these.
    if (json.contains("hidden") || json.contains("heads")) {
      for (const char* key : {"kv_heads", "head_dim", "ffn_hidden"}) json[key] = whole[key];
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ClusterText(const cluster::Spec& spec, const cluster::Spec& preset) {
  Json json = Beyond(preset.name, ClusterJson(preset), ClusterJson(spec));
  if (const auto device = json.find("device"); device != json.end()) {
    *device = Beyond("", DeviceJson(preset.device), DeviceJson(spec.device));
    device->erase("preset");
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void SaveConfiguration(Job* job) {
  Json json;
  const bool single = job->tenants.empty() && job->workloads.size() == 1 &&
                      job->workloads.front().placement.policy == PlacementPolicy::kPacked;
  if (single) AddWorkload(job->workloads.front(), job->cluster.device.arch, &json);
  if (job->data != nullptr) json["data"] = job->data->folders;
  json["cluster"] = ClusterJson(job->cluster);
  json["nodes"] = job->cluster.nodes;
  json["network"] = job->network;
  if (job->measured_kernels) json["kernels"] = "measured";
  if (job->network == "loggops") json["loggops"] = LogGopsJson(job->loggops);
  if (job->network == "packet") json["packet"] = PacketJson(job->packet);
  if (job->pricing.model == collective::PriceModel::kMoye) {
    json["collective"] = {{"model", "moye"},
                          {"otherwise", job->pricing.otherwise_orrery ? "orrery" : "refuse"},
                          {"setup", Time(job->pricing.setup)}};
  }
  Json nccl = Json::object();
  for (const auto& [name, value] : job->nccl) nccl[name] = value;
  json["nccl"] = std::move(nccl);
  json["perturb"] = PerturbJson(*job);
  json["simulation"] = {{"seed", job->engine.seed}};
  if (job->engine.iterations > 0) json["simulation"]["iterations"] = job->engine.iterations;
  if (!job->slowdown.empty()) json["simulation"]["slowdown"] = job->slowdown;
  if (job->engine.link_steps > 0) json["simulation"]["link_steps"] = job->engine.link_steps;
  if (!job->allocator.empty()) json["memory"]["allocator"] = job->allocator;
  if (job->memory.timeline) json["memory"]["timeline"] = true;
  if (job->cost) json["cost"] = CostSettingsJson(*job->cost);
  if (job->goodput) json["goodput"] = GoodputSettingsJson(*job->goodput);
  if (!single) json["jobs"] = JobsJson(*job);
  if (!single && job->interference.alone == job->tenants.empty()) {
    json["interference"]["alone"] = job->interference.alone;
  }
  if (!single && job->interference.most_pairs != Interference().most_pairs) {
    json["interference"]["most_pairs"] = job->interference.most_pairs;
  }
  job->config_json = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  Hasher hash;
  hash.Add(std::string_view(job->config_json));
  if (job->tuner_hash != 0) hash.Add(job->tuner_hash);
  if (job->data != nullptr) hash.Add(job->data->hash);
  if (const std::uint64_t files = HashOfFiles(*job); files != 0) hash.Add(files);
  job->config_hash = hash.value();
}

}  // namespace orrery::job
