#include "orrery/search/validate/release_recipes.h"

#include <algorithm>
#include <span>

#include "orrery/base/units.h"

namespace orrery::search {
namespace {

using workload::CudaGraphs;
using workload::Dispatcher;
using workload::RecomputeKeeps;

// Whose scripts.
enum class Scripts : std::uint8_t {
  kUnknown,
  kNemo,
  kLauncher,
  kMaxText,
  kPaxml,       // DGX Cloud's
  kJaxToolbox,  // Paxml as JAX-Toolbox runs it
  kMlperf,
  kModelZoo,
  kBridge,
  kTorchtitan,
  kAutomodel,
  kSc21
};
using enum Scripts;

struct Release {
  Scripts scripts = kUnknown;
  int month = 0;  // year and month, 2411; 0: not said
};

// A line of a table: its recipe is that of every row that fits the key.
struct Line {
  Scripts scripts = kUnknown;
  int from = 0, to = 0;               // months
  std::string_view models;            // "a|b": one of them begins the row's; empty: any
  std::string_view gpus, precisions;  // likewise, of gpu and compute_dtype
  ReleaseRecipe recipe;
  std::string_view tasks = {};   // likewise, of task
  std::string_view counts = {};  // "a|b": gpus is one of them; empty: any
};

constexpr int kEver = 9999;
constexpr std::uint8_t kRouter = workload::kGraphRouter | workload::kGraphPreprocess;
constexpr std::uint8_t kHybrid = workload::kGraphAttention | workload::kGraphMamba;

constexpr ReleaseRecipe LayerGraphs(std::uint8_t scope = workload::kGraphAll,
                                    std::string_view recompute = {}) {
  return {.recompute = recompute, .expert_graphs = CudaGraphs::kLayers, .graph_scope = scope};
}
// On attention models from v0.5.0 on; hybrids keep graphs of parts. In 8 bits: attention, the
// output layer.
constexpr ReleaseRecipe IterationGraph(bool fused_mlp, bool attention, bool output_layer) {
  return {.fused_mlp = fused_mlp,
          .expert_graphs = CudaGraphs::kIteration,
          .ep_overlap = true,
          .fp8_attention = attention,
          .fp8_output_layer = output_layer};
}
constexpr ReleaseRecipe MaxText(RecomputeKeeps keeps) {
  return {.keeps = keeps, .shard_hosts = 16, .shard_from = 64};
}

// How a model's passes run. The first line that fits holds, as in each table below.
constexpr Line kRuns[] = {
    {kNemo, 2411, 2501, "GPT3-175B", "H100", "", {.fused_attention = false, .gpt_dropout = 0.1}},
    {kNemo, 2502, 2502, "GPT3-175B", "H100", "", {.gpt_dropout = 0.1}},
    {kNemo, 2411, 2502, "Nemotron4-340B", "H100", "",
     ReleaseRecipe{.recompute = "core_attn", .fused_attention = false}},
    {kNemo, 2411, 2504, "Grok", "H100", "", {.fused_attention = false, .drops = true}},
    {kNemo, 2505, 2505, "Grok", "GB200|B200", "", {.graphs = CudaGraphs::kLayers, .drops = true}},
    {kNemo, 2505, 2505, "Grok", "H100", "", {.etp = 1, .drops = true}},
    {kNemo, 2505, 2505, "Nemotron4", "GB200", "", {.graphs = CudaGraphs::kLayers}},
    {kNemo, 2505, 2505, "Nemotron-H", "H100", "",
     ReleaseRecipe{.fused_attention = false, .adds_weight_gradients = true}},
    {kNemo, 2504, 2504, "Nemotron4", "H100", "", {.squared_relu_operators = true}},
    {kNemo, 2505, 2505, "Llama4", "H100", "fp8", {.graphs = CudaGraphs::kLayers, .drops = true}},
    {kNemo, 2505, 2505, "Llama4", "", "", {.drops = true}},
    {kNemo, 2505, 2505, "DeepSeek-V3", "GB200", "",
     ReleaseRecipe{.recompute = "core_attn", .etp = 1, .drops = true}},
    {kNemo, 2505, 2505, "DeepSeek-V3", "H100", "",
     ReleaseRecipe{.recompute = "mla_up_proj", .etp = 1, .drops = true}},
    {kLauncher, 2407, 2407, "GPT3-5B", "H100", "", {.gpt_dropout = 0.1}},
    {kMaxText, 2411, 2411, "", "H100", "", MaxText(RecomputeKeeps::kQkvOut)},
    {kMaxText, 2501, 2502, "", "H100", "", MaxText(RecomputeKeeps::kQkv)},
    {kPaxml, 2411, 2501, "GPT3-5B", "H100", "",
     ReleaseRecipe{.keeps = RecomputeKeeps::kProducts,
                   .bias_kernels = true,
                   .copies_carried = true,
                   .shard_hosts = 1}},
    {kPaxml, 2411, 2501, "GPT3-175B", "H100", "",
     ReleaseRecipe{.keeps = RecomputeKeeps::kQkvOut, .copies_carried = true, .shard_hosts = 16}},
    {kJaxToolbox, 0, kEver, "GPT3-5B", "A100", "", {.keeps = RecomputeKeeps::kProducts}},
    {kJaxToolbox, 0, kEver, "GPT3-5B", "", "",
     ReleaseRecipe{.keeps = RecomputeKeeps::kProducts, .bias_kernels = true}},
    {kJaxToolbox, 0, kEver, "GPT3-175B", "", "",
     ReleaseRecipe{.keeps = RecomputeKeeps::kLast, .bias_kernels = true}},
    {kJaxToolbox, 0, kEver, "GPT-126M", "", "",
     ReleaseRecipe{.recomputes = false, .scans = false, .bias_kernels = true}},
    {kTorchtitan, 0, 0, "", "H100", "", {.compiles_loss = false}},
    {kSc21, 2104, 2104, "GPT-1.7B|GPT-3.6B|GPT-7.5B", "A100", "",
     ReleaseRecipe{.micro_batch = 16, .torch_ddp = true}},
    {kSc21, 2104, 2104, "GPT-18B", "A100", "", {.micro_batch = 8, .torch_ddp = true}},
    {kSc21, 2101, 2101, "GPT-1.7B|GPT-3.6B|GPT-7.5B", "A100", "", {.micro_batch = 16}},
    {kSc21, 2101, 2101, "GPT-18B", "A100", "", {.micro_batch = 8}},
    {kSc21, 2101, 2104, "GPT-39B", "A100", "", {.micro_batch = 4}},
    {kSc21, 2101, 2104, "GPT-76B|GPT-145B", "A100", "", {.micro_batch = 2}},
    {kSc21, 2101, 2104, "", "A100", "", {.micro_batch = 1}},
    {kTorchtitan, 1, 2501, "", "", "", {.adam_operators = true}},
    {kTorchtitan, 2502, 2503, "", "", "", {.compiles_loss = false}},
    {kAutomodel, 0, kEver, "GPT-OSS|Moonlight|Llama3.1-8B|Qwen2.5-7B", "", "",
     ReleaseRecipe{.recomputes = false}},
    {kMlperf, 2511, 2511, "Llama3-8B", "B|GB|H200", "",
     ReleaseRecipe{.graphs = CudaGraphs::kIteration, .quiet_loop = true, .current = true}},
    {kMlperf, 2511, 2511, "Llama3.1-405B", "B|GB", "", {.dp_last = true, .current = true}},
    {kMlperf, 2506, 2506, "Llama2-70B", "B|GB", "", {.quiet_loop = true}},
    {kMlperf, 2511, 2511, "Llama2-70B", "B|GB", "", {.quiet_loop = true, .whole_graphs = true}},
    {kModelZoo, 0, kEver, "", "", "", {.overlaps_and_fuses = true, .etp = 1}},
    {kBridge, 2509, 2510, "DeepSeek-V3", "H100", "", {.recompute = "mla_up_proj+mlp"}},
    {kBridge, 2509, 2510, "DeepSeek-V3", "B200|GB200", "", {.recompute = "mla_up_proj"}},
    {kBridge, 2509, 2510, "Qwen3-30B", "B200|GB200", "", LayerGraphs()},
    {kBridge, 2509, 2510, "Qwen3-235B", "GB200", "", LayerGraphs()},
    {kBridge, 2511, 2601, "DeepSeek-V3", "GB300", "", LayerGraphs(workload::kGraphAll, "moe_act")},
    {kBridge, 2511, 2601, "DeepSeek-V3", "GB200", "", LayerGraphs(kRouter, "mla_up_proj")},
    {kBridge, 2511, 2601, "DeepSeek-V3", "B200", "", {.recompute = "mla_up_proj"}},
    {kBridge, 2511, 2601, "DeepSeek-V3", "H100", "",
     ReleaseRecipe{.recompute = "mla_up_proj+mlp", .ep_overlap = true}},
    {kBridge, 2511, 2601, "Qwen3-30B", "GB200", "bf16|fp8", LayerGraphs()},
    {kBridge, 2511, 2601, "Qwen3-30B", "GB|B200", "", LayerGraphs(kRouter)},
    {kBridge, 2511, 2601, "Qwen3-30B", "H100", "bf16", LayerGraphs(kRouter)},
    {kBridge, 2511, 2601, "Qwen3-235B", "GB300", "", LayerGraphs(kRouter)},
    {kBridge, 2511, 2601, "Qwen3-235B", "GB200", "", LayerGraphs()},
    {kBridge, 2511, 2601, "Qwen3-235B", "B200|H100", "", {.ep_overlap = true}},
    {kBridge, 2511, 2601, "GPT-OSS", "GB300", "", LayerGraphs()},
    {kBridge, 2511, 2601, "GPT-OSS", "GB200|B200|H100", "", {.recompute = "layernorm+moe_act"}},
    {kBridge, 2606, kEver, "DeepSeek-V3", "GB300", "mxfp8", IterationGraph(true, true, true)},
    {kBridge, 2606, kEver, "DeepSeek-V3", "GB200", "mxfp8", IterationGraph(true, false, true)},
    {kBridge, 2606, kEver, "Qwen3", "GB", "mxfp8", IterationGraph(true, true, false)},
    {kBridge, 2606, kEver, "GPT-OSS", "GB", "mxfp8", IterationGraph(true, true, true)},
    {kBridge, 2606, kEver, "Kimi", "GB", "mxfp8", IterationGraph(false, false, false)},
    {kBridge, 2608, kEver, "Nemotron-3-Super", "GB", "", LayerGraphs(kRouter | kHybrid)},
    {kBridge, 2608, kEver, "Nemotron-3-Super", "B300", "mxfp8", LayerGraphs(kRouter | kHybrid)},
    {kBridge, 2608, kEver, "Nemotron-3-Super", "B300", "",
     LayerGraphs(kRouter | kHybrid, "layernorm+moe_act")},
    {kBridge, 2608, kEver, "Nemotron-3-Super", "B200", "nvfp4", LayerGraphs(kRouter | kHybrid)},
    {kBridge, 2608, kEver, "Nemotron-3-Super", "B200", "mxfp8", {.recompute = "layernorm+moe_act"}},
    {kBridge, 2608, kEver, "Nemotron-3-Super", "B200", "",
     ReleaseRecipe{.recompute = "layernorm+core_attn+moe+moe_act"}},
    {kBridge, 2608, kEver, "Nemotron-3-Nano", "B|GB", "", LayerGraphs(kRouter | kHybrid)},
    {kBridge, 2608, kEver, "Nemotron-3-Nano", "H100", "bf16",
     LayerGraphs(kHybrid, "layernorm+moe")},
    {kBridge, 2608, kEver, "Nemotron-3-Nano", "H100", "fp8",
     LayerGraphs(workload::kGraphMamba, "layernorm+core_attn+moe+moe_act")},
    {kBridge, 2608, kEver, "Nemotron-H", "B|GB", "fp8", LayerGraphs(kHybrid)},
    {kBridge, 2608, kEver, "Nemotron-H", "H100", "fp8", LayerGraphs(workload::kGraphMamba)},
};

constexpr Line kDeferrals[] = {
    {kNemo, 2411, 2505, "Llama3-70B|Nemotron4-340B", "", "", {.deferred_head = 22}},
    {kNemo, 2411, 2505, "Llama3.1-405B", "", "", {.deferred_head = 50}},
    {kMlperf, 2406, 2506, "Llama3.1-405B", "", "", {.deferred_head = 50}},
    {kMlperf, 2511, 2511, "Llama3.1-405B", "H", "", {.deferred_head = 50}},
    {kBridge, 2509, 2510, "Llama3-70B", "", "", {.deferred_head = 22}},
};

constexpr Line kPower[] = {
    {kNemo, 2502, 2502, "Llama3", "H100", "", {.vboost = true}, "sft|lora"},
    {kNemo, 2504, 2504, "Llama|Nemotron", "H100", "", {.vboost = true}},
    {kNemo, 2505, 2505, "", "H100", "", {.vboost = true}},
    {kMlperf, 2406, 2411, "GPT3-175B", "H100", "", {.vboost = true}, "", "512"},
};

// Of containers that ran on Blackwell.
constexpr Line kCuda[] = {
    {kNemo, 2411, 2505, "", "B|GB", "", {.cuda = 12}},
    {kMlperf, 2411, 2506, "", "B|GB", "", {.cuda = 12}},
    {kBridge, 2509, 2510, "", "B|GB", "", {.cuda = 12}},
};

// What stays in bf16 beside the model's low precision.
constexpr Line kBf16[] = {
    {kBridge, 1, kEver, "Nemotron-3-Super", "", "nvfp4",
     ReleaseRecipe{.bf16_last_layers = 14,
                   .bf16_modules = workload::kBf16Attention | workload::kBf16ExpertLatent |
                                   workload::kBf16Mtp}},
    {kBridge, 1, kEver, "Nemotron-3-Super", "", "mxfp8|fp8",
     ReleaseRecipe{.bf16_modules = workload::kBf16Mtp}},  // keep_mtp_spec_in_bf16
    {kBridge, 1, kEver, "GPT-OSS-20B", "", "nvfp4", {.bf16_last_layers = 4}},
};

constexpr ReleaseRecipe By(Dispatcher dispatcher) { return {.dispatcher = dispatcher}; }
// Where the recipes name none, or type it alltoall (Qwen3-235B on B200 and H100), tokens go by
// all-to-all, NeMo's default.
constexpr Line kDispatchers[] = {
    {kBridge, 2511, 2601, "DeepSeek-V3", "H100", "", By(Dispatcher::kDeepEp)},
    {kBridge, 2602, kEver, "DeepSeek-V3", "", "", By(Dispatcher::kHybridEp)},
    {kBridge, 2602, 2603, "Qwen3-30B", "H100", "", By(Dispatcher::kDeepEp)},
    {kBridge, 2602, kEver, "Qwen3-30B", "B300", "", By(Dispatcher::kHybridEp)},
    {kBridge, 2604, kEver, "Qwen3-30B", "", "", By(Dispatcher::kHybridEp)},
    {kBridge, 2606, kEver, "Qwen3-235B", "B300", "", By(Dispatcher::kHybridEp)},
    {kBridge, 2606, kEver, "Qwen3-235B", "B200", "mxfp8", By(Dispatcher::kHybridEp)},
    {kBridge, 2511, 2603, "GPT-OSS", "GB", "", By(Dispatcher::kAllToAll)},
    {kBridge, 2604, kEver, "GPT-OSS-120B", "B300", "", By(Dispatcher::kHybridEp)},
    {kBridge, 2602, kEver, "Nemotron-3", "", "", By(Dispatcher::kHybridEp)},
    {kBridge, 2511, kEver, "", "GB", "", By(Dispatcher::kHybridEp)},
};
// GB200's recipes, those of others of June 2026 on, and what blank ones take.
constexpr Line kAutomodelDispatchers[] = {
    {kAutomodel, 0, kEver, "", "GB", "", By(Dispatcher::kHybridEp)},
    {kAutomodel, 2606, kEver, "DeepSeek-V3|GLM|Nemotron-3-Super|GPT-OSS-120B", "", "",
     By(Dispatcher::kHybridEp)},
    {kAutomodel, 0, kEver, "", "", "", By(Dispatcher::kDeepEp)},
};
constexpr Line kRouters[] = {
    {kBridge, 0, kEver, "Nemotron-3-Nano|Nemotron-3-Super", "", "", {.router_operators = true}}};
constexpr Line kDelays[] = {{kBridge, 1, kEver, "", "", "", {.delays_weights = true}}};
constexpr Line kReductions[] = {
    {kBridge, 1, kEver, "", "", "", {.reduces_fp32 = false}},
    {kNemo, 2502, 2502, "Nemotron4-15B", "", "", {.reduces_fp32 = true}},
    {kLauncher, 2407, 2407, "Nemotron", "H100", "", {.reduces_fp32 = true}, "pretrain"},
};
constexpr Line kGathers[] = {
    {kPaxml, 2411, 2501, "", "H100", "", {.gathers_16_bits = true}},
    {kLauncher, 2407, 2407, "", "H100", "", {.gathers_16_bits = true}, "pretrain"},
};
constexpr Line kLosses[] = {
    {kNemo, 2411, 2502, "GPT3-175B|Grok", "H100", "", {.plain_loss = true}},
    {kNemo, 2504, 2504, "Grok", "H100", "", {.plain_loss = true}},
    {kNemo, 2411, 2505, "Llama3", "", "", {.plain_loss = true}, "lora"},
    {kBridge, 2511, 2603, "Llama3", "", "", {.plain_loss = true}, "lora"},
    {kLauncher, 2407, 2407, "Llama2|GPT3", "H100", "", {.plain_loss = true}, "pretrain"},
};

// "YY.MM…" or "YY-MM…" as a number; 0: it is not.
int Month(std::string_view text) {
  if (text.size() < 5) return 0;
  const auto year = ParseInteger(text.substr(0, 2)), month = ParseInteger(text.substr(3, 2));
  return year.ok() && month.ok() ? static_cast<int>(*year * 100 + *month) : 0;
}

// DGX Cloud's releases are called vYY.MM, with a patch behind; rounds of MLPerf have a date; rows
// of Megatron Bridge name their container.
Release ReleaseOf(const Configuration& row) {
  const std::string_view framework = row.text("framework");
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  const int measured = date.starts_with("20") ? Month(date.substr(2)) : 0;
  constexpr std::string_view kContainer = "container ";
  const std::size_t container = version.find(kContainer);
  if (framework.find("Bridge") != std::string_view::npos) {
    if (container == std::string_view::npos) return {kBridge, 0};
    const std::string_view number = version.substr(container + kContainer.size());
    const bool dotted = number.size() >= 5 && number[2] == '.';
    return {kBridge, dotted ? Month(number) : 0};
  }
  if (framework.starts_with("NeMo/Megatron-Core (")) return {kMlperf, measured};
  if (framework.starts_with("Megatron-LM")) {
    if (version == "Jan-2021") return {kSc21, 2101};
    if (version.starts_with("PTD-P")) return {kSc21, 2104};
  }
  if (framework.starts_with("torchtitan")) return {kTorchtitan, measured};
  if (framework.find("Automodel") != std::string_view::npos) {
    return {kAutomodel, measured > 0 ? measured : Month(version)};
  }
  if (framework.starts_with("Paxml") && version.starts_with("JAX-Toolbox")) return {kJaxToolbox, 0};
  if (framework.starts_with("NeMo 24.")) return {kLauncher, Month(version)};
  const Scripts scripts = framework.starts_with("NeMo (")                ? kNemo
                          : framework.starts_with("MaxText")             ? kMaxText
                          : framework.starts_with("Paxml")               ? kPaxml
                          : framework.starts_with("Megatron-Core (dev)") ? kModelZoo
                                                                         : kUnknown;
  return {scripts, version.starts_with("v") ? Month(version.substr(1)) : 0};
}

}  // namespace

ReleaseRecipe FindReleaseRecipe(const Configuration& row) {
  const Release release = ReleaseOf(row);
  const auto in = [&](std::span<const Line> table) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const Line& line) {
      return line.scripts == release.scripts && line.from <= release.month &&
             release.month <= line.to && BeginsWithOneOf(row.text("model"), line.models) &&
             BeginsWithOneOf(row.text("gpu"), line.gpus) &&
             BeginsWithOneOf(row.text("compute_dtype"), line.precisions) &&
             BeginsWithOneOf(row.text("task"), line.tasks) &&
             (line.counts.empty() || IsOneOf(row.text("gpus"), line.counts));
    });
    return found == table.end() ? ReleaseRecipe() : found->recipe;
  };
  ReleaseRecipe recipe = in(kRuns);
  recipe.deferred_head = in(kDeferrals).deferred_head;
  recipe.vboost = in(kPower).vboost;
  recipe.cuda = in(kCuda).cuda;
  const ReleaseRecipe bf16 = in(kBf16);
  recipe.bf16_last_layers = bf16.bf16_last_layers;
  recipe.bf16_modules = bf16.bf16_modules;
  recipe.dispatcher = in(kDispatchers).dispatcher;
  if (release.scripts == kAutomodel) recipe.dispatcher = in(kAutomodelDispatchers).dispatcher;
  recipe.router_operators = in(kRouters).router_operators;
  recipe.delays_weights = in(kDelays).delays_weights;
  recipe.reduces_fp32 = in(kReductions).reduces_fp32;
  recipe.gathers_16_bits = in(kGathers).gathers_16_bits;
  recipe.plain_loss = in(kLosses).plain_loss;
  return recipe;
}

}  // namespace orrery::search
