// What each framework is assumed to do, as its row and its defaults say it.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "orrery/job/frameworks.h"
#include "orrery/job/plan_keys.h"
#include "orrery/workload/options.h"
#include "orrery/workload/switches.h"

namespace orrery::job {
namespace {

using workload::FrameworkBehaviour;
using workload::Plan;
using workload::Reducer;
using workload::Sharding;

constexpr std::string_view kUsualGradients = "buffer, buckets of 40 million";

// Defaults of a 16-bit plan.
Plan Defaults(const Framework& framework, Sharding sharding = Sharding::kNone) {
  Plan plan;
  plan.memory.sharding = sharding;
  ApplyDefaults(framework.defaults, cluster::Arch::kHopper, workload::Model(), &plan);
  return plan;
}

std::string AttentionText(const Framework& framework) {
  if (framework.defaults.attention == AttentionDefault::kLibrary) {
    const FrameworkDefaults& d = framework.defaults;
    std::string text = "cudnn; before Hopper flash2";
    if (d.libraries.transformer_engine) text += "; on Blackwell flash2 for heads of more than 128";
    if (d.libraries.transformer_engine && !d.fused_latent_blackwell) text += ", unfused for latent";
    return text;
  }
  if (framework.defaults.attention == AttentionDefault::kTorch) return "flash2; on Blackwell cudnn";
  return std::string(NameOf(kAttentions, Defaults(framework).framework.attention));
}

std::string KeepsText(const Framework& framework) {
  const FrameworkDefaults& d = framework.defaults;
  std::string full(NameOf(kRecomputeKeeps, d.full_keeps));
  if (d.selective_keeps == workload::RecomputeKeeps::kNothing) return full;
  return fmt::format("{}; selective: {}", full, NameOf(kRecomputeKeeps, d.selective_keeps));
}

std::string RecipeText(const Framework& framework) {
  std::string text;
  const auto add = [&](bool said, std::string_view what) {
    if (said) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  const auto is = [&](std::string_view key) {
    return framework.Said(fmt::format("recipe.{}", key));
  };
  const auto add_key = [&](std::string_view key, std::string_view what) {
    add(!is(key).empty(), fmt::format("{}{}", what, is(key)));
  };
  add(is("sequence_parallel") == "true", "sequence parallelism with tp");
  add_key("recompute", "recompute ");
  add_key("sharding", "");
  add(is("gpt_dropout") == "0", "no dropout");
  add(is("interleaved") == "true", "chunks of a layer");
  add(!is("chunk_layers").empty(), fmt::format("chunks of {} layers", is("chunk_layers")));
  add_key("layers_per_stage", "layers_per_stage ");
  add_key("moe_dispatcher", "moe_dispatcher ");
  add(is("says_switches") == "true", "switches as said");
  return text.empty() ? "nothing" : text;
}

std::string_view HostText(workload::HostEra era) {
  switch (era) {
    case workload::HostEra::kNone:
      return "launches only";
    case workload::HostEra::k2021:
      return "eager, 2020 to 2022";
    case workload::HostEra::kCore:
      return "eager, Megatron Core";
    case workload::HostEra::kFsdp:
      return "eager, plain modules";
  }
  return "?";
}

std::string ReducerText(const Framework& framework) {
  const Plan plan = Defaults(framework);
  if (plan.framework.reducer == Reducer::kDdp) {
    return fmt::format("tensors, buckets of {} MiB", plan.framework.bucket_bytes >> 20);
  }
  std::string buffer =
      fmt::format("buffer, buckets of {} million", plan.framework.bucket_elements / 1'000'000);
  if (Defaults(framework, Sharding::kZero2).framework.reducer != Reducer::kDeepSpeed) return buffer;
  return buffer + "; zero2: tensors, buckets of 500 million";
}

class Page {
 public:
  explicit Page(std::vector<const Framework*> versions) : versions_(std::move(versions)) {}

  std::string Text() {
    text_ = fmt::format("\n## {}\n\n", FamilyOf(*versions_.front()));
    for (const Framework* f : versions_) {
      text_ += fmt::format("**`{}`**. {}. {}\nSource: {}.\n\n", f->name, f->description, f->assumes,
                           f->source);
    }
    Row("attention", "", AttentionText);
    Row("gradients", kUsualGradients, ReducerText);
    for (const workload::Switch& s : workload::Switches()) {
      const auto text = [](bool on) { return std::string(on ? "yes" : "no"); };
      Row(s.key, text(FrameworkBehaviour().*s.member),
          [&](const Framework& f) { return text(Defaults(f).framework.*s.member); });
    }
    Row("recompute_keeps", "nothing", KeepsText);
    Row("cp_exchange", "ring", [](const Framework& f) {
      return std::string(NameOf(kCpExchanges, f.defaults.cp_exchange));
    });
    Row("torch_layers", "fused", [](const Framework& f) {
      return std::string(NameOf(kTorchLayers, f.defaults.options.torch_layers));
    });
    Row("limit_all_gathers", "-", [](const Framework& f) {
      const auto limit = f.defaults.gather_limit;
      return std::string(limit == workload::GatherLimit::kHost   ? "yes"
                         : limit == workload::GatherLimit::kNone ? "no"
                                                                 : "-");
    });
    Row("host", "", [](const Framework& f) { return std::string(HostText(f.defaults.host)); });
    Row("cublas_in_torch", "yes", [](const Framework& f) {
      return std::string(f.defaults.libraries.cublas_in_torch ? "yes" : "no");
    });
    Row("fp8_recipe", "delayed",
        [](const Framework& f) { return std::string(NameOf(kFp8Recipes, f.defaults.fp8_recipe)); });
    Row("assumed of measured runs", "nothing", RecipeText);
    if (versions_.size() > 1) {
      Table();
    } else {
      List();
    }
    return text_;
  }

 private:
  struct Entry {
    std::string name, value;
    std::string older;  // each value before it with the last version that had it
  };

  // No entry where all versions have the usual value, which the list at the end says.
  template <class Cell>
  void Row(std::string_view name, std::string_view usual, const Cell& cell) {
    Entry entry{std::string(name), cell(*versions_.front()), ""};
    std::string value = entry.value;
    for (const Framework* f : versions_) {
      std::string before = cell(*f);
      if (before == value) continue;
      const std::string_view version = std::string_view(f->name).substr(f->name.find('@') + 1);
      entry.older +=
          fmt::format("{}up to {}: {}", entry.older.empty() ? "" : " · ", version, before);
      value = std::move(before);
    }
    if (entry.value != usual || !entry.older.empty()) entries_.push_back(std::move(entry));
  }

  void Table() {
    text_ += fmt::format("| | {} | older versions |\n|---|---|---|\n", versions_.front()->name);
    for (const Entry& e : entries_) {
      text_ += fmt::format("| {} | {} | {} |\n", e.name, e.value, e.older);
    }
  }

  // The switches that are on on one line, those that are off on another.
  void List() {
    for (const std::string_view value : {"yes", "no"}) {
      std::string names;
      for (const Entry& e : entries_) {
        if (e.value == value) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", e.name);
      }
      if (!names.empty()) text_ += fmt::format("- {}: {}\n", value, names);
    }
    for (const Entry& e : entries_) {
      if (e.value != "yes" && e.value != "no") text_ += fmt::format("- {}: {}\n", e.name, e.value);
    }
  }

  std::vector<const Framework*> versions_;
  std::vector<Entry> entries_;
  std::string text_;
};

std::vector<std::vector<const Framework*>> Families() {
  std::vector<std::vector<const Framework*>> families;
  for (const Framework& framework : FrameworkTable::BuiltIn().rows()) {
    if (families.empty() || FamilyOf(*families.back().front()) != FamilyOf(framework)) {
      families.emplace_back();
    }
    families.back().push_back(&framework);
  }
  return families;
}

}  // namespace

std::string FrameworkPage(std::string_view family) {
  for (auto& versions : Families()) {
    if (FamilyOf(*versions.front()) == family) return Page(std::move(versions)).Text();
  }
  return {};
}

std::string FrameworkSummary() {
  std::string text = "| family | newest version | older ones |\n|---|---|---|\n";
  for (const auto& versions : Families()) {
    std::string older;
    for (std::size_t i = 1; i < versions.size(); ++i) {
      const std::string_view name = versions[i]->name;
      older += fmt::format("{}`{}`", i > 1 ? ", " : "", name.substr(name.find('@') + 1));
    }
    text += fmt::format("| `{}` | {} | {} |\n", FamilyOf(*versions.front()),
                        versions.front()->description, older);
  }
  std::string on;
  for (const workload::Switch& s : workload::Switches()) {
    if (FrameworkBehaviour().*s.member) on += fmt::format("{}`{}`", on.empty() ? "" : ", ", s.key);
  }
  text += fmt::format(
      "\n"
      "## What the words mean\n"
      "\n"
      "[job.md](formats/job.md#framework_options) describes each switch. A family's list leaves "
      "out what all of its versions have as usual:\n"
      "\n"
      "- yes: {}; every other switch no\n"
      "- gradients, where they lie until they are reduced, and in what portions: {}\n"
      "- `recompute_keeps`: nothing; `cp_exchange`: ring; `torch_layers`: fused; `fp8_recipe`: "
      "delayed\n"
      "- `limit_all_gathers`: - (gathers are bounded by the order of the GPU's own work)\n"
      "- `cublas_in_torch`, cuBLAS's workspaces lie in PyTorch's allocator: yes\n"
      "- assumed of measured runs, what `orrery validate` takes a run to have where its row does "
      "not say: nothing. \"switches as said\": gradients and experts' fused kernels are off where "
      "the row does not name them. A job file sets these itself.\n"
      "\n"
      "*host* says whose Python runs beside the kernels.\n",
      on, kUsualGradients);
  return text;
}

}  // namespace orrery::job
