// slime (THUDM): an update of its actor by Megatron, or its fine-tuning. A launch script with
// Megatron's arguments beside slime's own (data/recipes/slime.csv). Generation, log probabilities
// and rewards are not simulated. Source: THUDM/slime 624b824, slime/utils/arguments.py,
// slime/backends/megatron_utils.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "orrery/base/units.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/launch.h"

namespace orrery::recipes {
namespace {

// Its models write the layers with experts by a loop over NLAYERS, which leaves the first
// FIRST_K_DENSE_REPLACE without.
void ReadLayersWithExperts(const Script& script, Reading* r) {
  const Given* said = r->Find("--moe-layer-freq");
  const bool unknown = said != nullptr && std::ranges::any_of(said->values, [](const Word& word) {
                         return !word.unknown.empty();
                       });
  const auto number = [&](const char* name) -> std::optional<std::int64_t> {
    const auto found = script.exported.find(name);
    if (found == script.exported.end() || !found->second.unknown.empty()) return std::nullopt;
    const Result<std::int64_t> value = ParseInteger(found->second.text);
    return value.ok() ? std::optional(*value) : std::nullopt;
  };
  const auto layers = number("NLAYERS"), dense = number("FIRST_K_DENSE_REPLACE");
  if (!unknown || !layers || !dense || *dense < 0 || *dense > *layers) return;
  r->AddAs("--moe-layer-freq", "--moe-layer-freq",
           fmt::format("([0]*{}+[1]*{})", *dense, *layers - *dense), r->Where("--moe-layer-freq"));
}

// The actor's GPUs, sequences as long as they may get, and micro-batches of so many tokens.
void SlimeDefaults(const Script& script, Launch* launch, Reading* r) {
  ReadLayersWithExperts(script, r);
  launch->nodes = r->Whole("--actor-num-nodes").value_or(1);
  launch->gpus_per_node = r->Whole("--actor-num-gpus-per-node").value_or(8);
  launch->gpus = 0;
  r->On("--colocate");
  const auto add = [&](std::string_view argument, std::string_view name, std::int64_t value) {
    r->AddAs(argument, std::string(name), std::to_string(value), r->file());
  };
  const auto answer = r->Whole("--rollout-max-response-len");
  const auto context = r->Whole("--rollout-max-context-len");
  const std::int64_t length = context.value_or(answer.value_or(0));
  if (!r->Has("--seq-length") && length > 0) {
    add("--seq-length", context ? "--rollout-max-context-len" : "--rollout-max-response-len",
        length);
    if (!r->Has("--max-position-embeddings")) {
      add("--max-position-embeddings", "--rollout-max-response-len", length);
    }
    r->draft().Assume(fmt::format(
        "sequences are as long as {} lets answers be, {} tokens: --set training.seq_len=N for what "
        "they are",
        context ? "--rollout-max-context-len" : "--rollout-max-response-len", length));
  }
  const bool dynamic = r->On("--use-dynamic-batch-size");
  const auto tokens = r->Whole("--max-tokens-per-gpu");
  if (dynamic && tokens && length > 0 && !r->Has("--micro-batch-size")) {
    const std::int64_t cp =
        std::max<std::int64_t>(1, r->Whole("--context-parallel-size").value_or(1));
    add("--micro-batch-size", "--max-tokens-per-gpu",
        std::max<std::int64_t>(1, Product({*tokens, cp}) / length));
  } else if (!r->Has("--micro-batch-size")) {
    add("--micro-batch-size", "--micro-batch-size", 1);
  }
  const auto prompts = r->Whole("--rollout-batch-size");
  const auto samples = r->Whole("--n-samples-per-prompt");
  const auto steps = r->Whole("--num-steps-per-rollout");
  if (!r->Has("--global-batch-size") && prompts) {
    add("--global-batch-size", "--rollout-batch-size",
        Product({*prompts, samples.value_or(1)}) / std::max<std::int64_t>(1, steps.value_or(1)));
  }
  if (!r->Has("--use-distributed-optimizer")) {  // slime turns it on
    r->AddAs("--use-distributed-optimizer", "--use-distributed-optimizer", "", r->file());
  }
  if (!r->Has("--bf16") && !r->Has("--fp16")) r->AddAs("--bf16", "--bf16", "", r->file());
  r->draft().Assume(
      "one update of the actor; generation, log probabilities, rewards and weights on their way to "
      "the engines are not simulated");
}

}  // namespace

const Table& SlimeTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_slime.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsSlime(std::string_view text, const std::string& path) {
  return !IsYaml(path) && Contains(text, "--actor-num-nodes") &&
         (Contains(text, "--rollout-batch-size") || Contains(text, "ROLLOUT_ARGS") ||
          Contains(text, "SFT_ARGS"));
}

Result<Imported> ReadSlime(const std::vector<File>& files, const Options& options) {
  return ReadMegatronScript(
      files, options,
      {.name = "slime", .tables = {&SlimeTable(), &MegatronTable()}, .defaults = SlimeDefaults});
}

}  // namespace orrery::recipes
