#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/job/attention_words.h"
#include "orrery/job/expert_keys.h"
#include "orrery/job/frameworks.h"
#include "orrery/job/plan_keys.h"
#include "orrery/job/read_parallel.h"
#include "orrery/job/reader.h"
#include "orrery/job/tables.h"
#include "orrery/workload/generators/layers/tp_overlap.h"
#include "orrery/workload/options.h"
#include "orrery/workload/plan_experts.h"
#include "orrery/workload/plan_features.h"
#include "orrery/workload/routing.h"
#include "orrery/workload/switches.h"

namespace orrery::job {
namespace {

using formats::Node;
using workload::FrameworkBehaviour;
using workload::Plan;

// The sections that a plan comes from.
struct Sections {
  Section top, parallel, training, framework;
};

Result<Sections> ReadSections(const Source& source, const Node& root) {
  const auto section = [&](const OptionTable& table) -> Result<Section> {
    const Node* node = root.Find(table.path);
    if (node == nullptr) return Section(table);
    return Section::Read(*source.document, *node, table);
  };
  ORRERY_ASSIGN_OR_RETURN(Section top,
                          Section::Read(*source.document, root, TopOptions(), TopKeys()));
  ORRERY_ASSIGN_OR_RETURN(Section parallel, section(workload::ParallelOptions()));
  ORRERY_ASSIGN_OR_RETURN(Section training, section(workload::TrainingOptions()));
  ORRERY_ASSIGN_OR_RETURN(Section framework, section(workload::FrameworkOptions()));
  for (const std::string_view key : {"global_batch", "seq_len"}) {
    if (training.Has(key)) continue;
    return InvalidInput("{}: training.{} is missing; it decides what a step is", source.name(),
                        key);
  }
  return Sections{std::move(top), std::move(parallel), std::move(training), std::move(framework)};
}

Status ReadTraining(const Section& training, const Section& framework, Plan* plan) {
  plan->batch.global_batch = training.Integer("global_batch");
  plan->batch.micro_batch = training.Integer("micro_batch");
  plan->batch.seq_len = training.Integer("seq_len");
  const std::string precision = training.Text("precision");
  if (precision == "fp8") {
    const bool said = framework.Has("fp8_recipe");  // else the framework's (ReadFramework)
    plan->precision.low =
        said ? Choose(kFp8Recipes, framework.Text("fp8_recipe")) : workload::LowPrecision::kDelayed;
  } else if (precision == "mxfp8" || precision == "nvfp4") {
    plan->precision.low = Choose(kLowPrecisions, precision);
  } else {
    plan->precision.type = Choose(kPrecisions, precision);
  }
  if (plan->precision.low != workload::LowPrecision::kNone) {
    plan->precision.type = Choose(kPrecisions, training.Text("param_dtype"));
  }
  plan->memory.recompute = Choose(kRecomputes, training.Text("recompute"));
  plan->memory.recompute_method = Choose(kRecomputeMethods, training.Text("recompute_method"));
  plan->memory.recompute_layers = training.Integer("recompute_layers");
  plan->memory.sharding = Choose(kShardings, training.Text("sharding"));
  plan->experts.dispatcher = Choose(kDispatchers, training.Text("moe_dispatcher"));
  plan->experts.moe_imbalance = training.Real("moe_imbalance");
  plan->experts.shared_expert_overlap = training.Bool("moe_shared_overlap");
  plan->experts.moe_comm_overlap =
      training.Has("moe_comm_overlap") && training.Bool("moe_comm_overlap");
  plan->experts.moe_delayed_weights = training.Bool("moe_delayed_weights");
  plan->optimizer = Choose(kOptimizers, training.Text("optimizer"));
  plan->optimizer_states = Choose(kOptimizerStates, training.Text("optimizer_states"));
  plan->momentum = training.Bool("momentum");
  const std::string offload = training.Text("offload");
  plan->memory.offload_parameters = offload == "parameters";
  plan->memory.offload_optimizer =
      offload == "optimizer" || offload == "all" || plan->memory.offload_parameters;
  plan->memory.offload_activations = offload == "activations" || offload == "all";
  if (training.Has("offload_threads")) {
    plan->memory.offload_threads = training.Integer("offload_threads");
  }
  if (training.Has("offload_layers")) {
    plan->memory.offload_layers = training.Integer("offload_layers");
  }
  if (training.Has("offload_modules")) {
    Result<std::uint8_t> inputs = workload::ParseOffloadModules(training.Text("offload_modules"));
    if (!inputs.ok()) return std::move(inputs).TakeStatus().In(training.Where("offload_modules"));
    plan->memory.offload_modules = *inputs;
  }
  if (training.Has("lora_rank")) plan->lora.rank = static_cast<int>(training.Integer("lora_rank"));
  Result<std::uint8_t> targets = workload::ParseLoraTargets(training.Text("lora_targets"));
  if (!targets.ok()) return std::move(targets).TakeStatus().In(training.Where("lora_targets"));
  plan->lora.targets = *targets;
  plan->lora.experts = Choose(kExpertAdapterKinds, training.Text("lora_experts"));
  plan->lora.base = Choose(kBaseWeights, training.Text("base_quantization"));
  plan->lora.double_quantization = training.Bool("double_quantization");
  if (training.Has("packed_len")) plan->batch.packed_len = training.Integer("packed_len");
  plan->batch.sample_read = training.Integer("sample_read");
  plan->batch.object_store =
      training.Text("data_storage") == "object_store" && !training.Has("sample_read");
  plan->batch.data_workers = static_cast<int>(training.Integer("data_workers"));
  Result<std::uint8_t> modules =
      workload::ParseRecomputeModules(training.Text("recompute_modules"));
  if (!modules.ok()) {
    return std::move(modules).TakeStatus().In(training.Where("recompute_modules"));
  }
  plan->memory.recompute_modules = *modules;
  plan->precision.bf16_first_layers = training.Integer("bf16_first_layers");
  plan->precision.bf16_last_layers = training.Integer("bf16_last_layers");
  Result<std::uint8_t> plain = workload::ParseBf16Modules(training.Text("bf16_modules"));
  if (!plain.ok()) return std::move(plain).TakeStatus().In(training.Where("bf16_modules"));
  plan->precision.bf16_modules = *plain;
  return {};
}

// What becomes of gathered layers: as said, or as torchtitan does, which keeps them over stages.
Status ReadReshard(const Section& section, Plan* plan, std::vector<std::string>* defaults) {
  if (!section.Has("reshard")) {
    if (plan->memory.sharding != workload::Sharding::kZero3 || !plan->keeps_units()) return {};
    plan->memory.reshard = workload::kKeepGathered;
    defaults->emplace_back("reshard false (stages)");
    return {};
  }
  const std::string text = section.Text("reshard");
  if (text == "true" || text == "false") {
    plan->memory.reshard = text == "true" ? workload::kReshardAll : workload::kKeepGathered;
    return {};
  }
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), plan->memory.reshard);
  if (error == std::errc() && end == text.data() + text.size() && plan->memory.reshard > 0)
    return {};
  return InvalidInput("'{}' is neither true nor false nor a number of ranks above 1",
                      Printable(text, 40))
      .In(section.Where("reshard"));
}

// FSDP1's rate limiter; said where it is somebody's choice.
Status ReadGatherLimit(const Section& section, Plan* plan, std::vector<std::string>* defaults) {
  using workload::GatherLimit;
  const bool zero3 = plan->gathers_units() && plan->memory.sharding == workload::Sharding::kZero3;
  if (section.Has("limit_all_gathers")) {
    if (!zero3 || !plan->framework.flat_parameters || !plan->framework.prefetch) {
      return InvalidInput(
                 "FSDP1's rate limiter is of zero3 with flat_parameters and prefetch; others bound "
                 "their gathers on the GPU: leave it out")
          .In(section.Where("limit_all_gathers"));
    }
    plan->framework.gather_limit =
        section.Bool("limit_all_gathers") ? GatherLimit::kHost : GatherLimit::kNone;
  } else if (zero3 && plan->framework.gather_limit != GatherLimit::kOrder) {
    const bool on = plan->framework.gather_limit == GatherLimit::kHost;
    defaults->emplace_back(on ? "limit_all_gathers" : "no limit_all_gathers");
  }
  return {};
}

// Of layers that are recomputed whole: full recompute, or selective by operator.
Status ReadRecomputeKeeps(const Section& section, Plan* plan) {
  using workload::Recompute;
  using workload::RecomputeKeeps;
  if (!section.Has("recompute_keeps")) return {};
  const std::string text = section.Text("recompute_keeps");
  plan->framework.recompute_keeps = Choose(kRecomputeKeeps, text);
  // Megatron's selective recompute, by modules.
  const bool by_module = plan->memory.recompute == Recompute::kSelective &&
                         plan->framework.recompute_keeps == RecomputeKeeps::kNothing;
  const bool whole = plan->memory.recompute == Recompute::kFull ||
                     (plan->memory.recompute == Recompute::kSelective &&
                      plan->framework.recompute_keeps == RecomputeKeeps::kEveryOther);
  if (whole || by_module) return {};
  return InvalidInput(
             "'{}' is of layers that are recomputed whole; set training.recompute: full "
             "(every_other: or selective), or leave it out",
             text)
      .In(section.Where("recompute_keeps"));
}

// A kernel that the GPU does not have.
Status CheckAttention(const Section& section, cluster::Arch arch,
                      workload::AttentionBackend attention) {
  using workload::AttentionBackend;
  const bool flash3 = attention == AttentionBackend::kFlash3;
  if (flash3 ? arch == cluster::Arch::kHopper
             : attention != AttentionBackend::kFlash4 || arch >= cluster::Arch::kHopper) {
    return {};
  }
  return InvalidInput("{} has no kernels for this GPU, {}; use {}flash2",
                      flash3 ? "flash3" : "flash4",
                      flash3 ? "only for Hopper" : "only for Hopper and Blackwell",
                      arch == cluster::Arch::kBlackwell ? "flash4, cudnn or " : "")
      .In(section.Where("attention"));
}

// There is one loss: what the user turns on takes the place of the framework's.
Status ReadLoss(const Section& section, Plan* plan) {
  constexpr std::array<std::pair<std::string_view, bool FrameworkBehaviour::*>, 4> kLosses = {
      {{"fused_cross_entropy", &FrameworkBehaviour::fused_cross_entropy},
       {"online_cross_entropy", &FrameworkBehaviour::online_cross_entropy},
       {"chunked_loss", &FrameworkBehaviour::chunked_loss},
       {"torch_loss", &FrameworkBehaviour::torch_loss}}};
  std::string_view on;
  for (const auto& [key, member] : kLosses) {
    if (!section.Has(key) || !section.Bool(key)) continue;
    if (!on.empty()) {
      return InvalidInput("{} is another way to the same loss; leave one of them out", on)
          .In(section.Where(key));
    }
    on = key;
  }
  if (on.empty()) return {};
  for (const auto& [key, member] : kLosses) plan->framework.*member = key == on;
  return {};
}

// Attention's kernels: as said, or the framework's on this GPU.
Status ReadAttention(const Section& section, const Framework& framework, cluster::Arch arch,
                     const workload::Model& model, Plan* plan, std::vector<std::string>* defaults,
                     std::vector<std::string>* assumed) {
  if (section.Has("attention")) {
    const std::string word = section.Text("attention");
    plan->framework.attention = AttentionNamed(word, framework.defaults, arch, model);
    if (const auto kernel = NameOf(kAttentions, plan->framework.attention); kernel != word) {
      assumed->push_back(
          fmt::format("attention {}: {} with {} on this GPU", word, kernel, framework.name));
    }
    ORRERY_RETURN_IF_ERROR(CheckAttention(section, arch, plan->framework.attention));
  } else {
    // Flash kernels exist for 16-bit types only.
    if (plan->precision.type == workload::Precision::kFp32) {
      plan->framework.attention = workload::AttentionBackend::kUnfused;
    }
    defaults->push_back(
        fmt::format("attention {}", NameOf(kAttentions, plan->framework.attention)));
  }
  const bool engine = framework.defaults.libraries.transformer_engine;
  const std::string wide = SetWideHeads(model, engine, &plan->framework);
  if (!wide.empty()) assumed->push_back(wide);
  return {};
}

// Switches as said; those that are the framework's and matter go to `defaults`, and to `unusual`
// where they are not as a plan has them of which nothing is said (Plan()): what a newcomer would
// not guess.
void ReadSwitches(const Section& section, Plan* plan, std::vector<std::string>* defaults,
                  std::vector<std::string>* unusual) {
  for (const workload::Switch& flag : workload::Switches()) {
    if (section.Has(flag.key)) {
      plan->framework.*flag.member = section.Bool(flag.key);
      continue;
    }
    if (!flag.matters(*plan)) continue;
    const bool on = plan->framework.*flag.member;
    const std::string said = fmt::format("{}{}", on ? "" : "no ", flag.key);
    if (on != FrameworkBehaviour().*flag.member) unusual->push_back(said);
    defaults->push_back(said);
  }
}

Status ReadGraphs(const Section& section, Plan* plan) {
  if (section.Has("cuda_graphs")) {
    plan->framework.cuda_graphs = Choose(kCudaGraphs, section.Text("cuda_graphs"));
  }
  if (!section.Has("cuda_graph_scope")) return {};
  Result<std::uint8_t> scope = workload::ParseGraphScope(section.Text("cuda_graph_scope"));
  if (!scope.ok()) return std::move(scope).TakeStatus().In(section.Where("cuda_graph_scope"));
  if (plan->framework.cuda_graphs != workload::CudaGraphs::kLayers) {
    return InvalidInput("there are no graphs of layers; set cuda_graphs: layers or leave it out")
        .In(section.Where("cuda_graph_scope"));
  }
  plan->framework.graph_scope = *scope;
  return {};
}

// The framework's defaults, then what the user set; what is left of the defaults is said.
Status ReadFramework(const Section& section, const Framework& framework, bool versioned,
                     cluster::Arch arch, Workload* workload, std::vector<std::string>* assumed) {
  const workload::Model& model = workload->model;
  Plan* plan = &workload->plan;
  std::vector<std::string> defaults, unusual;
  if (NameOf(kFp8Recipes, plan->precision.low) != "?" && !section.Has("fp8_recipe")) {
    plan->precision.low = framework.defaults.fp8_recipe;
    defaults.push_back(fmt::format("fp8_recipe {}", NameOf(kFp8Recipes, plan->precision.low)));
  }
  ApplyDefaults(framework.defaults, arch, model, plan);
  ClearExpertSwitches(model, plan);
  // A default of those who can: their frameworks turn it off for the others.
  if (!workload::CheckTpOverlap(model, *plan).ok()) plan->framework.tp_comm_overlap = false;
  ORRERY_RETURN_IF_ERROR(ReadRecomputeKeeps(section, plan));
  ORRERY_RETURN_IF_ERROR(ReadAttention(section, framework, arch, model, plan, &defaults, assumed));
  ORRERY_RETURN_IF_ERROR(ReadLoss(section, plan));
  if (section.Has("torch_layers")) {
    plan->framework.torch_layers = Choose(kTorchLayers, section.Text("torch_layers"));
  } else if (plan->framework.torch_layers != workload::TorchLayers::kFused) {
    defaults.push_back(
        fmt::format("torch_layers {}", NameOf(kTorchLayers, plan->framework.torch_layers)));
  }
  if (section.Has("grad_reduce_fp32")) {  // what follows from it, unless it is said
    plan->framework.grad_reduce_fp32 = section.Bool("grad_reduce_fp32");
    ApplyGradientSums(framework.defaults, plan);
  }
  ReadSwitches(section, plan, &defaults, &unusual);
  if (section.Has("cp_exchange")) {
    plan->parallel.cp_exchange = Choose(kCpExchanges, section.Text("cp_exchange"));
  } else if (plan->parallel.cp > 1) {
    plan->parallel.cp_exchange = framework.defaults.cp_exchange;
    defaults.push_back(
        fmt::format("cp_exchange {}", NameOf(kCpExchanges, plan->parallel.cp_exchange)));
  }
  ORRERY_RETURN_IF_ERROR(ReadGraphs(section, plan));
  if (section.Has("bucket_bytes")) plan->framework.bucket_bytes = section.Integer("bucket_bytes");
  if (section.Has("bucket_elements"))
    plan->framework.bucket_elements = section.Integer("bucket_elements");
  if (section.Has("deferred_head"))
    plan->framework.deferred_head = section.Integer("deferred_head");
  ORRERY_RETURN_IF_ERROR(ReadReshard(section, plan, &defaults));
  ORRERY_RETURN_IF_ERROR(ReadGatherLimit(section, plan, &defaults));
  if (defaults.empty()) return {};
  workload->defaults =
      fmt::format("framework: {}{}, whose defaults are: {}", framework.name,
                  versioned ? "" : " (no version was given)", fmt::join(defaults, ", "));
  assumed->push_back(workload->defaults);
  if (unusual.empty()) return {};
  workload->switches = fmt::format("{}: {}", framework.name, fmt::join(unusual, ", "));
  return {};
}

// How tokens are spread over experts: by name, or a file.
Status ReadRouting(const Source& source, const Section& training, Plan* plan) {
  plan->experts.routing_alpha = training.Real("moe_alpha");
  plan->experts.routing_exponent = training.Real("moe_zipf");
  plan->experts.routing_seed = static_cast<std::uint64_t>(training.Integer("moe_seed"));
  if (training.Has("moe_capacity_factor")) {
    plan->experts.expert_capacity = training.Real("moe_capacity_factor");
  }
  if (training.Has("moe_pad_to_capacity")) {
    plan->experts.pad_to_capacity = training.Bool("moe_pad_to_capacity");
  }
  const std::string name = training.Text("moe_routing");
  if (const auto routing = Find(kRoutings, name)) {
    plan->experts.routing = *routing;
    return {};
  }
  if (!name.ends_with(".csv")) {
    std::vector<std::string_view> names;
    for (const auto& routing : kRoutings) names.push_back(routing.first);
    return InvalidInput("{}; or a file NAME.csv", UnknownName("moe_routing", name, names))
        .In(training.Where("moe_routing"));
  }
  constexpr std::int64_t kMostBytes = 64 << 20;
  Result<std::string> text = ReadFile(source.Path(name), kMostBytes);
  if (!text.ok()) return std::move(text).TakeStatus().In(training.Where("moe_routing"));
  ORRERY_ASSIGN_OR_RETURN(workload::GivenRouting routing, workload::ParseRouting(name, *text));
  plan->experts.routing = workload::Routing::kGiven;
  plan->experts.given_routing = std::make_shared<const workload::GivenRouting>(std::move(routing));
  return {};
}

// DualPipe is there to hide exchanges of tokens: it does so unless told otherwise.
void OverlapPairs(const Sections& sections, const workload::Model& model, Plan* plan,
                  std::vector<std::string>* assumed) {
  if (!plan->pairs_passes() || sections.training.Has("moe_comm_overlap")) return;
  if (model.experts.count == 0 || !workload::CheckTokenOverlap(*plan).ok()) return;
  plan->experts.moe_comm_overlap = true;
  assumed->push_back("training.moe_comm_overlap: true, as the schedule pairs passes");
}

// Choices that the user left open and that move the answer.
void SayAssumed(const Sections& sections, const Workload& workload,
                std::vector<std::string>* assumed) {
  const Plan& plan = workload.plan;
  const Section& training = sections.training;
  const auto open = [&](const Section& section, std::string_view key, std::string_view why) {
    if (section.Has(key)) return;
    const Option* option = FindOption(section.table().options, key);
    assumed->push_back(
        fmt::format("{}: {}{}", FullName(section.table(), key), option->fallback, why));
  };
  open(training, "micro_batch", "");
  open(training, "precision", "");
  open(training, "recompute", "");
  if (workload.model.experts.count > 0) {
    open(training, "moe_dispatcher", "");
    open(training, "moe_routing", ": every expert as loaded as the others");
  }
  if (plan.parallel.dp > 1)
    open(training, "sharding", ": every replica keeps the whole optimizer state");
  if (plan.parallel.tp > 1) open(sections.parallel, "sequence_parallel", "");
  if (plan.parallel.schedule == workload::Schedule::k1f1bInterleaved &&
      plan.parallel.microbatch_group == 0) {
    assumed->push_back(fmt::format("parallel.microbatch_group: {}, as pp", plan.parallel.pp));
  }
  SayStageLayers(sections.parallel, workload.model, plan, assumed);
}

// A plan that a rule refuses: the message begins with the key, whose place is put before it.
Status Located(const Source& source, const Sections& sections, const Status& status) {
  const std::string& message = status.message();
  const std::string_view key = std::string_view(message).substr(0, message.find(':'));
  for (const Section* section : {&sections.parallel, &sections.training, &sections.framework}) {
    for (const Option& option : section->table().options) {
      if (FullName(section->table(), option.name) != key) continue;
      if (const Setting* setting = section->Find(option.name)) {
        return Status(status).In(setting->where);
      }
    }
  }
  return Status(status).In(source.name());
}

// Keys that would do nothing are mistakes.
Status CheckExpertKeys(const Section& training, const workload::Model& model) {
  if (model.experts.count > 0) return {};
  for (const Option& option : workload::TrainingOptions().options) {
    if (!option.name.starts_with("moe_") || !training.Has(option.name)) continue;
    return InvalidInput("{}: {} has no experts; leave it out", training.Where(option.name),
                        model.name);
  }
  return {};
}

// A key that another must give a meaning.
struct Dependent {
  Section Sections::*section;
  std::string_view key, needs;
  bool (*matters)(const Plan&);
};
constexpr Dependent kDependents[] = {
    {&Sections::training, "recompute_modules", "training.recompute: selective",
     [](const Plan& p) { return p.memory.recompute == workload::Recompute::kSelective; }},
    {&Sections::training, "recompute_method", "training.recompute: full",
     [](const Plan& p) { return p.memory.recompute == workload::Recompute::kFull; }},
    {&Sections::training, "recompute_layers", "training.recompute: full",
     [](const Plan& p) { return p.memory.recompute == workload::Recompute::kFull; }},
    {&Sections::training, "moe_alpha", "training.moe_routing: dirichlet",
     [](const Plan& p) { return p.experts.routing == workload::Routing::kDirichlet; }},
    {&Sections::training, "moe_zipf", "training.moe_routing: drawn-zipf",
     [](const Plan& p) { return p.experts.routing == workload::Routing::kDrawnZipf; }},
    {&Sections::training, "moe_seed", "training.moe_routing: dirichlet, drawn-zipf or a file",
     [](const Plan& p) { return workload::DrawsRouting(p); }},
    {&Sections::training, "param_dtype", "training.precision: fp8, mxfp8 or nvfp4",
     [](const Plan& p) { return p.precision.low != workload::LowPrecision::kNone; }},
    {&Sections::training, "offload_threads", "training.offload: optimizer, parameters or all",
     [](const Plan& p) { return p.memory.offload_optimizer; }},
    {&Sections::training, "offload_layers", "training.offload: activations",
     [](const Plan& p) { return p.memory.offload_activations; }},
    {&Sections::training, "offload_modules", "training.offload: activations",
     [](const Plan& p) { return p.memory.offload_activations; }},
    {&Sections::training, "lora_targets", "training.lora_rank",
     [](const Plan& p) { return p.lora.rank > 0; }},
    {&Sections::training, "lora_experts", "training.lora_rank",
     [](const Plan& p) { return p.lora.rank > 0; }},
    {&Sections::training, "momentum", "training.optimizer: sgd",
     [](const Plan& p) { return p.optimizer == workload::Optimizer::kSgd; }},
    {&Sections::training, "data_workers", "training.sample_read or data_storage",
     [](const Plan& p) { return p.batch.sample_read > 0 || p.batch.object_store; }},
    {&Sections::framework, "cp_exchange", "parallel.cp above 1",
     [](const Plan& p) { return p.parallel.cp > 1; }},
    {&Sections::framework, "fp8_recipe", "training.precision: fp8",
     [](const Plan& p) { return NameOf(kFp8Recipes, p.precision.low) != "?"; }},
};

Status CheckDependents(const Sections& sections, const Plan& plan) {
  for (const Dependent& d : kDependents) {
    const Section& section = sections.*d.section;
    if (!section.Has(d.key) || d.matters(plan)) continue;
    return InvalidInput("does nothing without {}; set that or leave it out", d.needs)
        .In(section.Where(d.key));
  }
  return {};
}

// Number formats that the GPU does not compute in: they would run at another's rate.
Status CheckArithmetic(const cluster::DeviceSpec& device, const Plan& plan) {
  using workload::LowPrecision;
  const auto refuse = [&](std::string_view format, std::string_view since, std::string_view use) {
    return InvalidInput("training.precision: {} does not compute in {} ({}); use {}", device.name,
                        format, since, use);
  };
  const LowPrecision low = plan.precision.low;
  if (low == LowPrecision::kMxfp8 || low == LowPrecision::kNvfp4) {
    if (device.arch == cluster::Arch::kBlackwell) return {};
    const bool fp8 = device.fp8_flops > 0;
    return refuse(low == LowPrecision::kMxfp8 ? "mxfp8" : "nvfp4", "from Blackwell on",
                  fp8 ? "fp8 or bf16" : "bf16");
  }
  if (low != LowPrecision::kNone && device.fp8_flops <= 0) {
    return refuse("fp8", "from Ada and Hopper on", "bf16");
  }
  if (plan.precision.type == workload::Precision::kBf16 && !device.bf16) {
    return refuse("bf16", "from Ampere on", "fp16");
  }
  return {};
}

// What the framework's libraries and its Python are taken for, where the job says otherwise.
void ReadLibraries(const Section& section, const Plan& plan, Workload* workload) {
  if (section.Has("transformer_engine")) {
    workload->libraries.transformer_engine = section.Bool("transformer_engine");
  }
  workload->libraries.deterministic = plan.framework.deterministic;
  if (section.Has("host_work") && !section.Bool("host_work")) {
    workload->host = workload::HostEra::kNone;
  }
}

}  // namespace

Result<Workload> ReadWorkload(const Source& source, const Node& root,
                              const cluster::DeviceSpec& device, std::optional<std::size_t> gpus,
                              const Data& known, std::vector<std::string>* assumed) {
  ORRERY_ASSIGN_OR_RETURN(const Sections sections, ReadSections(source, root));
  Workload workload;
  ORRERY_ASSIGN_OR_RETURN(workload.model,
                          workload::ReadModel(source, root.Find("model"), known.models, assumed));
  workload.name = workload.model.name;
  const std::string name = sections.top.Text("framework");
  Result<const Framework*> framework = known.frameworks.Find(name);
  if (!framework.ok()) {
    return std::move(framework).TakeStatus().In(sections.top.Where("framework"));
  }
  workload.framework = (*framework)->name;
  workload.framework_defaults = (*framework)->defaults;
  workload.libraries = (*framework)->defaults.libraries;
  workload.host = (*framework)->defaults.host;
  workload.optimizer = sections.training.Text("optimizer");
  Plan& plan = workload.plan;
  ORRERY_RETURN_IF_ERROR(ReadParallel(source, sections.parallel, gpus, &plan, assumed));
  ORRERY_RETURN_IF_ERROR(ReadTraining(sections.training, sections.framework, &plan));
  if (sections.training.Has("tokens")) workload.tokens = sections.training.Real("tokens");
  if (workload.model.max_position == workload::kUnstatedPositions) {
    workload.model.max_position = plan.batch.seq_len;
    if (workload.model.position == workload::Position::kLearned) {
      assumed->push_back(
          fmt::format("model: max_position {}, as training.seq_len", plan.batch.seq_len));
    }
  }
  ORRERY_RETURN_IF_ERROR(CheckExpertKeys(sections.training, workload.model));
  ORRERY_RETURN_IF_ERROR(ReadRouting(source, sections.training, &plan));
  ORRERY_RETURN_IF_ERROR(CheckDependents(sections, plan));
  if (plan.memory.recompute == workload::Recompute::kFull &&
      plan.memory.recompute_layers > workload.model.layers) {
    assumed->push_back(fmt::format(
        "training.recompute_layers: {} is more than the {} layers that {} has: {} of them run "
        "again, as with Megatron",
        plan.memory.recompute_layers, workload.model.layers, workload.model.name,
        plan.memory.recompute_method == workload::RecomputeMethod::kEvery ? "none" : "all"));
  }
  if (plan.memory.offload_optimizer && plan.memory.offload_threads == 0) {
    assumed->push_back(
        "training.offload_threads: all cores of a host run the optimizer; torchrun and accelerate "
        "launch give a rank one unless OMP_NUM_THREADS is set");
  }
  ORRERY_RETURN_IF_ERROR(ReadFramework(sections.framework, **framework,
                                       name.find('@') != std::string::npos, device.arch, &workload,
                                       assumed));
  ReadLibraries(sections.framework, plan, &workload);
  workload.libraries.userbuffers = workload.libraries.transformer_engine &&
                                   plan.framework.tp_comm_overlap && plan.parallel.tp > 1;
  ORRERY_RETURN_IF_ERROR(ReadSchedule(source, sections.top, &plan, assumed));
  ORRERY_RETURN_IF_ERROR(ReadStageLayers(sections.parallel, workload.model, &plan));
  OverlapPairs(sections, workload.model, &plan, assumed);
  Status status = CheckSharded(workload.framework, workload.framework_defaults, plan);
  if (status.ok()) status = CheckArithmetic(device, plan);
  if (status.ok()) status = workload::Validate(workload.model, plan);
  if (!status.ok()) {
    return Located(source, sections, status);
  }
  if (plan.framework.tp_comm_overlap) {
    workload.libraries.userbuffer_bytes = workload::UserbufferBytes(workload.model, plan);
  }
  SayAssumed(sections, workload, assumed);
  return workload;
}

}  // namespace orrery::job
