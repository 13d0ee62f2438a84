#include "orrery/search/validate/release_recipes.h"

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/workload/plan.h"

namespace orrery::search {
namespace {

using formats::Section;
using enum OptionType;

constexpr std::string_view kRecipes[] = {
#include "orrery_data_release_recipes.inc"
};

constexpr int kEver = 9999;
constexpr std::string_view kScripts =
    "nemo|launcher|maxtext|paxml|jax-toolbox|torchtitan|sc21|mlperf|model-zoo|bridge|automodel|any";
constexpr std::string_view kAbout =
    "run|head|power|container|bf16|dispatcher|router|delays|reduction|gather|loss|adapters|packing|"
    "input";

// Keys of a row: which rows of measured runs it is about, and what it sets.
constexpr Option kOptions[] = {
    {.name = "scripts", .type = kChoice, .choices = kScripts},
    {.name = "about", .type = kChoice, .fallback = "run", .choices = kAbout},
    {.name = "undated", .type = kBool, .fallback = "false"},
    {.name = "from"},  // YY.MM, releases or dates
    {.name = "to"},
    {.name = "frameworks"},  // this and those below, "a|b": one of them begins the row's
    {.name = "versions"},
    {.name = "models"},
    {.name = "gpus"},
    {.name = "precisions"},
    {.name = "tasks"},
    {.name = "counts"},  // "a|b": the row's `gpus` is one of them
    {.name = "extra"},   // stands in config_extra
    // What it sets; a fallback is that nothing is set.
    {.name = "recompute", .type = kChoice, .choices = "none"},
    {.name = "recompute_modules"},
    {.name = "recompute_keeps", .type = kChoice, .choices = "last|qkv|qkv_out|products"},
    {.name = "cuda_graphs",
     .type = kChoice,
     .fallback = "none",
     .choices = "none|layers|iteration"},
    {.name = "expert_graphs",
     .type = kChoice,
     .fallback = "none",
     .choices = "none|layers|iteration"},
    {.name = "cuda_graph_scope"},
    {.name = "dropout", .type = kNumber, .fallback = "0", .min = 0, .max = 1},
    {.name = "deferred_head", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "cuda", .type = kInteger, .fallback = "0", .min = 0, .max = 99},
    {.name = "micro_batch", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "rank_order", .type = kChoice, .choices = "tp-cp-dp-pp|tp-cp-pp-dp"},
    {.name = "shard_hosts", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "shard_from_hosts", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "etp", .type = kInteger, .fallback = "0", .min = 0, .max = 4096},
    {.name = "moe_dispatcher", .type = kChoice, .choices = "allgather|alltoall|deepep|hybridep"},
    {.name = "grad_reduce_fp32", .type = kBool},
    {.name = "fp8_recipe", .type = kChoice, .choices = "current"},
    {.name = "bf16_last_layers", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "bf16_modules"},
    {.name = "cp_exchange", .type = kChoice, .choices = "ring|all-gather|all-to-all"},
    {.name = "lora_rank", .type = kInteger, .fallback = "0", .min = 0, .max = 65536},
    {.name = "lora_targets",
     .type = kChoice,
     .fallback = "qkv",
     .choices = "all|attention|qkv|mlp"},
    {.name = "packed_len", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 26},
    {.name = "data_storage", .type = kChoice, .choices = "object_store"},
    {.name = "fused_cross_entropy", .type = kBool, .fallback = "true"},
    {.name = "fused_attention", .type = kBool, .fallback = "true"},
    {.name = "stacked_layers", .type = kBool, .fallback = "true"},
    {.name = "qkv_bias_kernel", .type = kBool, .fallback = "false"},
    {.name = "copies_units", .type = kBool, .fallback = "false"},
    {.name = "quiet_loop", .type = kBool, .fallback = "false"},
    {.name = "whole_graphs", .type = kBool, .fallback = "false"},
    {.name = "fused_bias_activation", .type = kBool, .fallback = "true"},
    {.name = "fused_weight_gradient", .type = kBool, .fallback = "true"},
    {.name = "compiled_loss", .type = kBool, .fallback = "true"},
    {.name = "fused_loss", .type = kBool, .fallback = "true"},
    {.name = "fused_adam", .type = kBool, .fallback = "true"},
    {.name = "overlaps_and_fuses", .type = kBool, .fallback = "false"},
    {.name = "vboost", .type = kBool, .fallback = "false"},
    {.name = "torch_ddp", .type = kBool, .fallback = "false"},
    {.name = "moe_pad_to_capacity", .type = kBool, .fallback = "false"},
    {.name = "moe_fused_router", .type = kBool, .fallback = "true"},
    {.name = "moe_fused_mlp", .type = kBool, .fallback = "false"},
    {.name = "moe_comm_overlap", .type = kBool, .fallback = "false"},
    {.name = "moe_delayed_weights", .type = kBool, .fallback = "false"},
    {.name = "low_precision_gather", .type = kBool, .fallback = "true"},
    {.name = "fp8_attention", .type = kBool, .fallback = "false"},
    {.name = "fp8_output_layer", .type = kBool, .fallback = "false"},
};
constexpr OptionTable kTable{.path = "", .doc = "", .options = kOptions};

// The texts that are lists of names.
Status CheckNames(const Section& keys) {
  const auto check = [&](std::string_view key, auto parse) -> Status {
    if (!keys.Has(key)) return {};
    auto names = parse(keys.Text(key));
    return names.ok() ? Status() : std::move(names).TakeStatus().In(keys.Where(key));
  };
  ORRERY_RETURN_IF_ERROR(check("recompute_modules", workload::ParseRecomputeModules));
  ORRERY_RETURN_IF_ERROR(check("cuda_graph_scope", workload::ParseGraphScope));
  return check("bf16_modules", workload::ParseBf16Modules);
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

Result<RecipeTable::Line> RecipeTable::ReadLine(const formats::RowValues<Line>& table,
                                                const formats::DataRow& row) {
  const bool by_framework = row.keys.Find("frameworks") != nullptr;
  ORRERY_ASSIGN_OR_RETURN(Section keys, table.Keys(row, kTable, by_framework ? "" : "scripts"));
  Line line{std::move(keys), 0, kEver};
  for (const auto& [key, month] : {std::pair{"from", &line.from}, std::pair{"to", &line.to}}) {
    if (!line.keys.Has(key)) continue;
    *month = Month(line.keys.Text(key));
    if (*month > 0) continue;
    return InvalidInput("'{}' is no month; write YY.MM", Printable(line.keys.Text(key), 20))
        .In(line.keys.Where(key));
  }
  if (line.keys.Bool("undated")) line.from = line.to = 0;
  ORRERY_RETURN_IF_ERROR(CheckNames(line.keys));
  return line;
}

Status RecipeTable::Add(std::string_view text, const std::string& file) {
  return rows_.Add(text, file, ReadLine);
}

Section RecipeTable::Find(const Configuration& row, std::string_view framework) const {
  const Release release = ReleaseOf(row);
  Section found(kTable);
  std::vector<std::string> settled;  // what a line was about
  for (const Line& line : rows_.values()) {
    const Section& keys = line.keys;
    const auto fits = [&](std::string_view key, std::string_view text) {
      return !keys.Has(key) || BeginsWithOneOf(text, keys.Text(key));
    };
    if ((keys.Has("scripts") && keys.Text("scripts") != "any" &&
         keys.Text("scripts") != release.scripts) ||
        release.month < line.from || line.to < release.month || !fits("frameworks", framework) ||
        !fits("versions", row.text("framework_version")) || !fits("models", row.text("model")) ||
        !fits("gpus", row.text("gpu")) || !fits("precisions", row.text("compute_dtype")) ||
        !fits("tasks", row.text("task")) ||
        (keys.Has("extra") &&
         row.text("config_extra").find(keys.Text("extra")) == std::string_view::npos) ||
        (keys.Has("counts") && !IsOneOf(row.text("gpus"), keys.Text("counts")))) {
      continue;
    }
    std::string about = keys.Text("about");
    if (std::ranges::find(settled, about) != settled.end()) continue;
    settled.push_back(std::move(about));
    for (const Option& option : kOptions) {
      if (const formats::Setting* set = keys.Find(option.name)) {
        found.Set(option.name, set->value, set->where);
      }
    }
  }
  return found;
}

}  // namespace orrery::search
