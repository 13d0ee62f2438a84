#include "orrery/job/frameworks.h"

#include <algorithm>
#include <array>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/section.h"
#include "orrery/job/plan_keys.h"
#include "orrery/workload/options.h"
#include "orrery/workload/switches.h"

namespace orrery::job {
namespace {

using Yaml = formats::Node;
using formats::Section;
using enum OptionType;

constexpr std::string_view kRows[] = {
#include "orrery_data_frameworks.inc"
};

constexpr std::array<Named<AttentionDefault>, 5> kAttentionDefaults = {
    {{"unfused", AttentionDefault::kUnfused},
     {"flash1", AttentionDefault::kFlash1},
     {"flash2", AttentionDefault::kFlash2},
     {"torch", AttentionDefault::kTorch},
     {"library", AttentionDefault::kLibrary}}};
constexpr std::array<Named<WeightGradientFusion>, 3> kFusions = {
    {{"none", WeightGradientFusion::kNone},
     {"fp32", WeightGradientFusion::kFp32},
     {"any", WeightGradientFusion::kAny}}};
constexpr std::array<Named<workload::GatherLimit>, 3> kGatherLimits = {
    {{"order", workload::GatherLimit::kOrder},
     {"host", workload::GatherLimit::kHost},
     {"none", workload::GatherLimit::kNone}}};
constexpr std::array<Named<LossDefault>, 4> kLosses = {{{"eager", LossDefault::kEager},
                                                        {"fused", LossDefault::kFused},
                                                        {"online", LossDefault::kOnline},
                                                        {"torch", LossDefault::kTorch}}};
constexpr std::array<Named<workload::HostEra>, 4> kHosts = {
    {{"none", workload::HostEra::kNone},
     {"megatron-2021", workload::HostEra::k2021},
     {"megatron-core", workload::HostEra::kCore},
     {"plain-modules", workload::HostEra::kFsdp}}};
constexpr Option kRow[] = {{.name = "assumes"}, {.name = "aliases"}, {.name = "meant_by"}};
constexpr OptionTable kRowTable{.path = "", .doc = "", .options = kRow};
constexpr std::string_view kParts[] = {"framework_options", "defaults", "recipe"};

constexpr Option kDefaults[] = {
    {.name = "attention", .type = kChoice, .choices = "unfused|flash1|flash2|torch|library"},
    {.name = "dense_attention", .type = kChoice, .choices = "unfused|flash1|flash2|torch|library"},
    {.name = "flex_sinks", .type = kBool},
    {.name = "fused_latent_blackwell", .type = kBool},
    {.name = "squared_relu_operators", .type = kBool},
    {.name = "dp_overlap", .type = kBool},
    {.name = "fused_weight_gradient", .type = kChoice, .choices = "none|fp32|any"},
    {.name = "full_keeps",
     .type = kChoice,
     .choices = "nothing|last|qkv|qkv_out|products|every_other"},
    {.name = "selective_keeps", .type = kChoice, .choices = "nothing|every_other"},
    {.name = "align_stages", .type = kBool},
    {.name = "gather_limit", .type = kChoice, .choices = "order|host|none"},
    {.name = "tensor_buckets", .type = kBool},
    {.name = "ddp", .type = kBool},
    {.name = "loss", .type = kChoice, .choices = "eager|fused|online|torch"},
    {.name = "host", .type = kChoice, .choices = "none|megatron-2021|megatron-core|plain-modules"},
    {.name = "transformer_engine", .type = kBool},
    {.name = "cublas_in_torch", .type = kBool},
};
constexpr OptionTable kDefaultsTable{.path = "defaults", .doc = "", .options = kDefaults};

constexpr Option kRecipe[] = {
    {.name = "sequence_parallel", .type = kBool},
    {.name = "recompute", .type = kChoice, .choices = "none|selective|full"},
    {.name = "sharding", .type = kChoice, .choices = "none|zero1|zero2|zero3"},
    {.name = "gpt_dropout", .type = kNumber, .min = 0, .max = 1},
    {.name = "interleaved", .type = kBool},
    {.name = "chunk_layers", .type = kInteger, .min = 1, .max = 1 << 20},
    {.name = "layers_per_stage",
     .type = kChoice,
     .choices = "auto|spread|filled|counted|inner|short|thin_ends"},
    {.name = "local_batch", .type = kChoice, .choices = "whole|samples|stages"},
    {.name = "moe_dispatcher", .type = kChoice, .choices = "allgather|alltoall|deepep|hybridep"},
    {.name = "expert_tp", .type = kBool},
    {.name = "forced_routing", .type = kChoice, .choices = "balanced|round-robin|natural"},
    {.name = "open_routing", .type = kChoice, .choices = "balanced|round-robin|natural"},
    {.name = "limit_all_gathers", .type = kBool},
    {.name = "says_switches", .type = kBool},
    {.name = "allocator"},
    {.name = "meter", .type = kChoice, .choices = "torch_allocated|torch_reserved|nvidia_smi"},
};
constexpr OptionTable kRecipeTable{.path = "recipe", .doc = "", .options = kRecipe};

// A section's values, put where they belong where they are said.
struct Reader {
  const Section& section;

  void Bool(std::string_view key, bool* member) const {
    if (section.Has(key)) *member = section.Bool(key);
  }
  template <class Names, class Member>
  void Choice(std::string_view key, const Names& names, Member* member) const {
    if (section.Has(key)) *member = Choose(names, section.Text(key));
  }
};

// What a job may say of a framework and a row says of every plan.
Status ReadOfEveryPlan(const Section& section, FrameworkDefaults* d) {
  const Reader read{section};
  workload::FrameworkBehaviour& o = d->options;
  std::vector<std::string_view> known = {"torch_layers", "cp_exchange", "fp8_recipe",
                                         "bucket_elements", "bucket_bytes"};
  for (const workload::Switch& s : workload::Switches()) {
    read.Bool(s.key, &(o.*s.member));
    known.push_back(s.key);
  }
  read.Choice("torch_layers", kTorchLayers, &o.torch_layers);
  read.Choice("cp_exchange", kCpExchanges, &d->cp_exchange);
  read.Choice("fp8_recipe", kFp8Recipes, &d->fp8_recipe);
  if (section.Has("bucket_elements")) o.bucket_elements = section.Integer("bucket_elements");
  if (section.Has("bucket_bytes")) o.bucket_bytes = section.Integer("bucket_bytes");
  for (const Option& option : section.table().options) {
    if (!section.Has(option.name) || std::ranges::find(known, option.name) != known.end()) continue;
    return InvalidInput("a framework's row does not say this for every plan; see its `defaults`")
        .In(section.Where(option.name));
  }
  return {};
}

void ReadDefaults(const Section& section, FrameworkDefaults* d) {
  const Reader read{section};
  read.Choice("attention", kAttentionDefaults, &d->attention);
  if (section.Has("dense_attention")) {
    d->dense_attention = Choose(kAttentionDefaults, section.Text("dense_attention"));
  }
  read.Bool("flex_sinks", &d->flex_sinks);
  read.Bool("fused_latent_blackwell", &d->fused_latent_blackwell);
  read.Bool("squared_relu_operators", &d->squared_relu_operators);
  read.Bool("dp_overlap", &d->dp_overlap);
  read.Choice("fused_weight_gradient", kFusions, &d->fused_weight_gradient);
  read.Choice("full_keeps", kRecomputeKeeps, &d->full_keeps);
  read.Choice("selective_keeps", kRecomputeKeeps, &d->selective_keeps);
  read.Bool("align_stages", &d->align_stages);
  read.Choice("gather_limit", kGatherLimits, &d->gather_limit);
  read.Bool("tensor_buckets", &d->tensor_buckets);
  read.Bool("ddp", &d->ddp);
  read.Choice("loss", kLosses, &d->loss);
  read.Choice("host", kHosts, &d->host);
  read.Bool("transformer_engine", &d->libraries.transformer_engine);
  read.Bool("cublas_in_torch", &d->libraries.cublas_in_torch);
}

Result<Framework> ReadRow(const formats::Document& document, const formats::DataRow& row) {
  const auto part = [&](std::string_view name, const OptionTable& table) -> Result<Section> {
    const Yaml* node = row.keys.Find(name);
    if (node == nullptr) return Section(table);
    return Section::Read(document, *node, table);
  };
  Framework f;
  f.name = row.name;
  f.description = row.description;
  f.source = row.sources.back();
  ORRERY_ASSIGN_OR_RETURN(const Section top, Section::Read(document, row.keys, kRowTable, kParts));
  if (top.Has("assumes")) f.assumes = top.Text("assumes");
  if (top.Has("aliases")) {
    const std::string aliases = top.Text("aliases");
    for (const std::string_view alias : SplitBars(aliases)) f.aliases.emplace_back(alias);
  }
  if (top.Has("meant_by")) {
    const std::string words = top.Text("meant_by");
    for (const std::string_view word : SplitBars(words)) f.meant_by.emplace_back(word);
  }
  ORRERY_ASSIGN_OR_RETURN(const Section options,
                          part("framework_options", workload::FrameworkOptions()));
  ORRERY_RETURN_IF_ERROR(ReadOfEveryPlan(options, &f.defaults));
  ORRERY_ASSIGN_OR_RETURN(const Section defaults, part("defaults", kDefaultsTable));
  ReadDefaults(defaults, &f.defaults);
  ORRERY_RETURN_IF_ERROR(part("recipe", kRecipeTable).status());
  f.row = row.keys;
  return f;
}

}  // namespace

std::string_view Framework::Said(std::string_view key) const {
  const Yaml* const node = row.At(key);
  return node == nullptr ? std::string_view() : node->text;
}

bool IsFrameworkKey(std::string_view key) {
  const std::size_t dot = std::min(key.find('.'), key.size());
  const std::string_view part = key.substr(0, dot);
  const OptionTable* const table = part == "framework_options" ? &workload::FrameworkOptions()
                                   : part == "defaults"        ? &kDefaultsTable
                                   : part == "recipe"          ? &kRecipeTable
                                                               : nullptr;
  return table != nullptr && dot < key.size() &&
         FindOption(table->options, key.substr(dot + 1)) != nullptr;
}

std::string_view FamilyOf(const Framework& framework) {
  const std::string_view name = framework.name;
  return name.substr(0, name.find('@'));
}

const FrameworkTable& FrameworkTable::BuiltIn() {
  static const FrameworkTable table =
      formats::Embedded<FrameworkTable>(kRows, "data/frameworks.yaml");
  return table;
}

Status FrameworkTable::Add(std::string_view text, const std::string& file) {
  const std::size_t first = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  for (std::size_t i = first; i < rows_.rows().size(); ++i) {
    const formats::DataRow& row = rows_.rows()[i];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(Framework framework, ReadRow(rows_.document(), row));
    const auto newest = std::ranges::find(frameworks_, FamilyOf(framework), FamilyOf);
    frameworks_.insert(newest, std::move(framework));
  }
  return {};
}

Result<const Framework*> FrameworkTable::Find(std::string_view name) const {
  std::vector<std::string_view> valid;
  for (const Framework& framework : frameworks_) {
    if (name == framework.name || name == FamilyOf(framework)) return &framework;
    if (valid.empty() || valid.back() != FamilyOf(framework)) valid.push_back(FamilyOf(framework));
  }
  for (const Framework& framework : frameworks_) {
    for (const std::string& alias : framework.aliases) {
      if (name == alias) return &framework;
      valid.push_back(alias);
    }
  }
  // Of a family that is known it is the version that is not.
  const std::string_view family = name.substr(0, name.find('@'));
  std::vector<std::string_view> versions;
  for (const Framework& framework : frameworks_) {
    if (family != name && family == FamilyOf(framework)) versions.push_back(framework.name);
    valid.push_back(framework.name);
  }
  if (!versions.empty()) {
    return InvalidInput("{}", UnknownName("version", Printable(name), versions));
  }
  std::vector<std::string_view> meant;
  for (const Framework& framework : frameworks_) {
    const std::string_view of = FamilyOf(framework);
    if (std::ranges::find(framework.meant_by, Lower(name)) != framework.meant_by.end() &&
        std::ranges::find(meant, of) == meant.end()) {
      meant.push_back(of);
    }
  }
  if (!meant.empty()) {
    return InvalidInput("unknown framework '{}'; which of it: {}? 'orrery list frameworks' has all",
                        Printable(name), fmt::join(meant, ", "));
  }
  return InvalidInput("{}", UnknownName("framework", Printable(name), valid));
}

}  // namespace orrery::job
