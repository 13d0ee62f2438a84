// ms-swift on Megatron Core: `megatron sft` and `megatron pt`, whose model is one of the hub. Most
// arguments are Megatron's by a name with underscores (data/recipes/ms_swift_megatron.csv). Source
// of defaults and meaning: modelscope/ms-swift, swift/megatron/arguments/megatron_args.py.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/launch.h"

namespace orrery::recipes {
namespace {

void AddDefaults(Reading* r) {
  constexpr std::pair<std::string_view, std::string_view> kDefaults[] = {
      {"--use-distributed-optimizer", "true"},
      {"--recompute-granularity", "selective"},
      {"--cross-entropy-loss-fusion", "true"},
      {"--attention-backend", "flash"},
      {"--micro-batch-size", "1"},
      {"--global-batch-size", "16"}};
  for (const auto& [argument, value] : kDefaults) {
    if (!r->Has(argument)) {
      r->AddAs(argument, std::string(argument), std::string(value), r->file());
    }
  }
  if (!r->Has("--bf16") && !r->Has("--fp16")) r->AddAs("--bf16", "--bf16", "true", r->file());
}

void Defaults(const Script& script, Launch* launch, Reading* r) {
  AddDefaults(r);
  ReadSwiftLaunch(script, launch);
}

void After(Reading* r) {
  std::string kind = r->Text("--tuner_type");
  if (kind.empty()) kind = r->Text("--train_type");
  const auto rank = r->Whole("--lora_rank");
  const std::vector<std::string> targets = r->Texts("--target_modules");
  if (kind.empty() || kind == "full") return;
  if (kind != "lora") {
    return r->Refuse("--tuner_type",
                     fmt::format("'{}' is not modelled; full and lora are", Printable(kind, 40)));
  }
  if (!targets.empty() && targets != std::vector<std::string>{"all-linear"}) {
    r->Refuse("--target_modules", "adapters are modelled beside all-linear");
  }
  r->draft().Set("training.lora_rank", rank.value_or(8));
  r->draft().SetText("training.lora_targets", "all");
  r->draft().SetText("training.lora_experts", "grouped");
}

}  // namespace

const Table& MsSwiftMegatronTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_ms_swift_megatron.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsMsSwiftMegatron(std::string_view text, const std::string& path) {
  if (IsYaml(path)) {
    return Contains(text, "\ntensor_model_parallel_size:") && Contains(text, "model:") &&
           (Contains(text, "tuner_type:") || Contains(text, "\nmax_length:"));
  }
  return Contains(text, "megatron sft") || Contains(text, "megatron pt") ||
         Contains(text, "megatron rlhf") || Contains(text, "cli/_megatron/sft.py") ||
         Contains(text, "cli/_megatron/pt.py");
}

Result<Imported> ReadMsSwiftMegatron(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return InvalidInput("ms-swift's arguments are one file; {} and {} are given", files[0].path,
                        files[1].path);
  }
  const Tables tables = {&MsSwiftMegatronTable(), &MegatronTable()};
  if (!IsYaml(files.front().path)) {
    return ReadMegatronScript(files, options,
                              {.name = "ms-swift-megatron",
                               .tables = tables,
                               .defaults = Defaults,
                               .after = After,
                               .model = "--model"});
  }
  Reading reading(tables, options, files.front().path);
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, ParseConfiguration(files.front()));
  AddLeaves(document, document.root, tables, &reading);
  AddDefaults(&reading);
  reading.Translate();
  ReadMegatronRules(&reading, {}, nullptr, reading.TextIfKnown("--model"));
  After(&reading);
  return reading.Finish("ms-swift-megatron");
}

}  // namespace orrery::recipes
