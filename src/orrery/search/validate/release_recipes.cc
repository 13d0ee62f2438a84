#include "orrery/search/validate/release_recipes.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/job/expert_keys.h"
#include "orrery/job/plan_keys.h"

namespace orrery::search {
namespace {

using formats::Section;
using enum OptionType;

constexpr std::string_view kRecipes[] = {
#include "orrery_data_release_recipes.inc"
};

constexpr int kEver = 9999;
constexpr std::string_view kScripts =
    "nemo|launcher|maxtext|paxml|jax-toolbox|torchtitan|sc21|mlperf|model-zoo|bridge|automodel";
constexpr std::string_view kAbout =
    "run|head|power|container|bf16|dispatcher|router|delays|reduction|gather|loss";

// Keys of a row: which rows of measured runs it is about, and what it sets.
constexpr Option kOptions[] = {
    {.name = "scripts", .type = kChoice, .choices = kScripts},
    {.name = "about", .type = kChoice, .fallback = "run", .choices = kAbout},
    {.name = "undated", .type = kBool, .fallback = "false"},
    {.name = "from"},  // YY.MM, releases or dates
    {.name = "to"},
    {.name = "models"},  // "a|b": one of them begins the row's
    {.name = "gpus"},
    {.name = "precisions"},
    {.name = "tasks"},
    {.name = "counts"},  // "a|b": the row's `gpus` is one of them
    {.name = "recompute", .type = kChoice, .choices = "none"},
    {.name = "recompute_modules"},
    {.name = "recompute_keeps", .type = kChoice, .choices = "last|qkv|qkv_out|products"},
    {.name = "cuda_graphs", .type = kChoice, .choices = "layers|iteration"},
    {.name = "expert_graphs", .type = kChoice, .choices = "layers|iteration"},
    {.name = "cuda_graph_scope"},
    {.name = "dropout", .type = kNumber, .min = 0, .max = 1},
    {.name = "deferred_head", .type = kInteger, .min = 1, .max = 1 << 20},
    {.name = "cuda", .type = kInteger, .min = 8, .max = 99},
    {.name = "micro_batch", .type = kInteger, .min = 1, .max = 1 << 20},
    {.name = "rank_order", .type = kChoice, .choices = "tp-cp-dp-pp|tp-cp-pp-dp"},
    {.name = "shard_hosts", .type = kInteger, .min = 1, .max = 1 << 20},
    {.name = "shard_from_hosts", .type = kInteger, .min = 0, .max = 1 << 20},
    {.name = "etp", .type = kInteger, .min = 1, .max = 4096},
    {.name = "moe_dispatcher", .type = kChoice, .choices = "allgather|alltoall|deepep|hybridep"},
    {.name = "grad_reduce_fp32", .type = kBool},
    {.name = "fp8_recipe", .type = kChoice, .choices = "current"},
    {.name = "bf16_last_layers", .type = kInteger, .min = 1, .max = 1 << 20},
    {.name = "bf16_modules"},
    {.name = "fused_attention", .type = kBool},
    {.name = "stacked_layers", .type = kBool},
    {.name = "qkv_bias_kernel", .type = kBool},
    {.name = "copies_units", .type = kBool},
    {.name = "quiet_loop", .type = kBool},
    {.name = "whole_graphs", .type = kBool},
    {.name = "fused_bias_activation", .type = kBool},
    {.name = "fused_weight_gradient", .type = kBool},
    {.name = "compiled_loss", .type = kBool},
    {.name = "fused_loss", .type = kBool},
    {.name = "fused_adam", .type = kBool},
    {.name = "overlaps_and_fuses", .type = kBool},
    {.name = "vboost", .type = kBool},
    {.name = "torch_ddp", .type = kBool},
    {.name = "moe_pad_to_capacity", .type = kBool},
    {.name = "moe_fused_router", .type = kBool},
    {.name = "moe_fused_mlp", .type = kBool},
    {.name = "moe_comm_overlap", .type = kBool},
    {.name = "moe_delayed_weights", .type = kBool},
    {.name = "low_precision_gather", .type = kBool},
    {.name = "fp8_attention", .type = kBool},
    {.name = "fp8_output_layer", .type = kBool},
};
constexpr OptionTable kTable{.path = "", .doc = "", .options = kOptions};

// A member that is `says` where the key is true.
struct Flag {
  std::string_view key;
  bool ReleaseRecipe::*member;
  bool says = true;
};
constexpr Flag kFlags[] = {
    {"fused_attention", &ReleaseRecipe::fused_attention},
    {"stacked_layers", &ReleaseRecipe::scans},
    {"qkv_bias_kernel", &ReleaseRecipe::bias_kernels},
    {"copies_units", &ReleaseRecipe::copies_carried},
    {"quiet_loop", &ReleaseRecipe::quiet_loop},
    {"whole_graphs", &ReleaseRecipe::whole_graphs},
    {"fused_bias_activation", &ReleaseRecipe::squared_relu_operators, false},
    {"fused_weight_gradient", &ReleaseRecipe::adds_weight_gradients, false},
    {"compiled_loss", &ReleaseRecipe::compiles_loss},
    {"fused_loss", &ReleaseRecipe::plain_loss, false},
    {"fused_adam", &ReleaseRecipe::adam_operators, false},
    {"overlaps_and_fuses", &ReleaseRecipe::overlaps_and_fuses},
    {"vboost", &ReleaseRecipe::vboost},
    {"torch_ddp", &ReleaseRecipe::torch_ddp},
    {"moe_pad_to_capacity", &ReleaseRecipe::drops},
    {"moe_fused_router", &ReleaseRecipe::router_operators, false},
    {"moe_fused_mlp", &ReleaseRecipe::fused_mlp},
    {"moe_comm_overlap", &ReleaseRecipe::ep_overlap},
    {"moe_delayed_weights", &ReleaseRecipe::delays_weights},
    {"low_precision_gather", &ReleaseRecipe::gathers_16_bits, false},
    {"fp8_attention", &ReleaseRecipe::fp8_attention},
    {"fp8_output_layer", &ReleaseRecipe::fp8_output_layer},
};

Status Apply(const Section& keys, ReleaseRecipe* recipe) {
  for (const Flag& flag : kFlags) {
    if (keys.Has(flag.key)) recipe->*flag.member = keys.Bool(flag.key) == flag.says;
  }
  const auto whole = [&](std::string_view key, auto* member) {
    using Member = std::remove_pointer_t<decltype(member)>;
    if (keys.Has(key)) *member = static_cast<Member>(keys.Integer(key));
  };
  whole("deferred_head", &recipe->deferred_head);
  whole("cuda", &recipe->cuda);
  whole("micro_batch", &recipe->micro_batch);
  whole("shard_hosts", &recipe->shard_hosts);
  whole("shard_from_hosts", &recipe->shard_from);
  whole("etp", &recipe->etp);
  whole("bf16_last_layers", &recipe->bf16_last_layers);
  const auto chosen = [&](std::string_view key, const auto& names, auto* member) {
    if (keys.Has(key)) *member = job::Choose(names, keys.Text(key));
  };
  chosen("recompute_keeps", job::kRecomputeKeeps, &recipe->keeps);
  chosen("cuda_graphs", job::kCudaGraphs, &recipe->graphs);
  chosen("expert_graphs", job::kCudaGraphs, &recipe->expert_graphs);
  chosen("moe_dispatcher", job::kDispatchers, &recipe->dispatcher);
  if (keys.Has("recompute")) recipe->recomputes = false;
  if (keys.Has("fp8_recipe")) recipe->current = true;
  if (keys.Has("rank_order")) recipe->dp_last = keys.Text("rank_order") == "tp-cp-pp-dp";
  if (keys.Has("dropout")) recipe->gpt_dropout = keys.Real("dropout");
  if (keys.Has("grad_reduce_fp32")) recipe->reduces_fp32 = keys.Bool("grad_reduce_fp32");
  if (keys.Has("recompute_modules")) {
    recipe->recompute = keys.Text("recompute_modules");
    const auto modules = workload::ParseRecomputeModules(recipe->recompute);
    if (!modules.ok()) return Status(modules.status()).In(keys.Where("recompute_modules"));
  }
  if (keys.Has("cuda_graph_scope")) {
    const auto scope = workload::ParseGraphScope(keys.Text("cuda_graph_scope"));
    if (!scope.ok()) return Status(scope.status()).In(keys.Where("cuda_graph_scope"));
    recipe->graph_scope = *scope;
  }
  if (keys.Has("bf16_modules")) {
    const auto modules = workload::ParseBf16Modules(keys.Text("bf16_modules"));
    if (!modules.ok()) return Status(modules.status()).In(keys.Where("bf16_modules"));
    recipe->bf16_modules = *modules;
  }
  return {};
}

// Whose scripts, and which release: year and month, 2411; 0: not said.
struct Release {
  std::string_view scripts;
  int month = 0;
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
    if (container == std::string_view::npos) return {"bridge", 0};
    const std::string_view number = version.substr(container + kContainer.size());
    const bool dotted = number.size() >= 5 && number[2] == '.';
    return {"bridge", dotted ? Month(number) : 0};
  }
  if (framework.starts_with("NeMo/Megatron-Core (")) return {"mlperf", measured};
  if (framework.starts_with("Megatron-LM")) {
    if (version == "Jan-2021") return {"sc21", 2101};
    if (version.starts_with("PTD-P")) return {"sc21", 2104};
  }
  if (framework.starts_with("torchtitan")) return {"torchtitan", measured};
  if (framework.find("Automodel") != std::string_view::npos) {
    return {"automodel", measured > 0 ? measured : Month(version)};
  }
  if (framework.starts_with("Paxml") && version.starts_with("JAX-Toolbox"))
    return {"jax-toolbox", 0};
  if (framework.starts_with("NeMo 24.")) return {"launcher", Month(version)};
  const std::string_view scripts = framework.starts_with("NeMo (")                ? "nemo"
                                   : framework.starts_with("MaxText")             ? "maxtext"
                                   : framework.starts_with("Paxml")               ? "paxml"
                                   : framework.starts_with("Megatron-Core (dev)") ? "model-zoo"
                                                                                  : "";
  return {scripts, version.starts_with("v") ? Month(version.substr(1)) : 0};
}

}  // namespace

const RecipeTable& RecipeTable::BuiltIn() {
  static const RecipeTable table =
      formats::Embedded<RecipeTable>(kRecipes, "data/release_recipes.yaml");
  return table;
}

Result<RecipeTable::Line> RecipeTable::ReadLine(const formats::DataRow& row) const {
  ORRERY_ASSIGN_OR_RETURN(Section keys, Section::Read(rows_.document(), row.keys, kTable));
  if (!keys.Has("scripts")) {
    return InvalidInput("{}:{}: the recipe '{}' lacks scripts, one of {}",
                        rows_.document().sources[row.keys.source], row.line,
                        Printable(row.name, 60), kScripts);
  }
  Line line{std::move(keys), 0, kEver};
  for (const auto& [key, month] : {std::pair{"from", &line.from}, std::pair{"to", &line.to}}) {
    if (!line.keys.Has(key)) continue;
    *month = Month(line.keys.Text(key));
    if (*month > 0) continue;
    return InvalidInput("'{}' is no month; write YY.MM", Printable(line.keys.Text(key), 20))
        .In(line.keys.Where(key));
  }
  if (line.keys.Bool("undated")) line.from = line.to = 0;
  ReleaseRecipe ignored;
  ORRERY_RETURN_IF_ERROR(Apply(line.keys, &ignored));
  return line;
}

Status RecipeTable::Add(std::string_view text, const std::string& file) {
  const std::size_t first = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  std::vector<Line> lines;
  for (std::size_t i = first; i < rows_.rows().size(); ++i) {
    if (rows_.rows()[i].part()) continue;
    ORRERY_ASSIGN_OR_RETURN(Line line, ReadLine(rows_.rows()[i]));
    lines.push_back(std::move(line));
  }
  lines_.insert(lines_.begin(), std::make_move_iterator(lines.begin()),
                std::make_move_iterator(lines.end()));
  return {};
}

ReleaseRecipe RecipeTable::Find(const Configuration& row) const {
  const Release release = ReleaseOf(row);
  ReleaseRecipe recipe;
  std::vector<std::string> settled;  // what a line was about
  for (const Line& line : lines_) {
    const Section& keys = line.keys;
    const auto fits = [&](std::string_view key, std::string_view column) {
      return !keys.Has(key) || BeginsWithOneOf(row.text(column), keys.Text(key));
    };
    if (keys.Text("scripts") != release.scripts || release.month < line.from ||
        line.to < release.month || !fits("models", "model") || !fits("gpus", "gpu") ||
        !fits("precisions", "compute_dtype") || !fits("tasks", "task") ||
        (keys.Has("counts") && !IsOneOf(row.text("gpus"), keys.Text("counts")))) {
      continue;
    }
    std::string about = keys.Text("about");
    if (std::ranges::find(settled, about) != settled.end()) continue;
    settled.push_back(std::move(about));
    ORRERY_CHECK(Apply(keys, &recipe).ok(), "a row was checked when it was read");
  }
  return recipe;
}

}  // namespace orrery::search
