// Forks of Megatron-LM whose scripts people have: what their own arguments say, around Megatron's
// rules. Source of defaults and meaning: deepspeedai/Megatron-DeepSpeed and
// bigscience-workshop/Megatron-DeepSpeed (megatron/arguments.py, megatron/model/gpt_model.py),
// alibaba/Pai-Megatron-Patch (megatron_patch/arguments.py).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/launch.h"

namespace orrery::recipes {
namespace {

// DeepSpeed's JSON: given beside the script, written by it, or a file that can be read. Nothing of
// it is known where a command writes it (sed over a template).
Status AddConfig(const Script& script, std::span<const File> files, Reading* r) {
  std::optional<File> config;
  for (const File& file : files) {
    if (config || !IsDeepSpeed(file.text, file.path)) {
      return InvalidInput("'{}' is no JSON of DeepSpeed's that goes with {}", Printable(file.path),
                          r->file());
    }
    config = file;
  }
  const Given* named = r->Find("--deepspeed_config");
  const std::string name = named == nullptr || named->values.empty() ? "" : named->values[0].text;
  if (const auto written = script.files.find(name); !config && written != script.files.end()) {
    const Word& text = written->second;
    if (!text.unknown.empty()) {
      r->Missing(fmt::format("what its {} holds, for {} is not set: give --env {}=VALUE",
                             Printable(name, 80), Printable(text.unknown, 60),
                             Printable(text.unknown, 60)));
      return {};
    }
    config = File{.path = name, .text = text.text};
  }
  if (!config && !name.empty()) {
    ORRERY_ASSIGN_OR_RETURN(config, OpenNamed(name, r->file()));
  }
  if (!config) {
    if (!name.empty()) {
      r->draft().Assume(
          fmt::format("{} of {} cannot be read: --zero-stage and the other arguments hold",
                      Printable(name, 80), r->file()));
    }
    return {};
  }
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document,
                          formats::ParseJson(config->text, config->path));
  AddLeaves(document, document.root, {&DeepSpeedTable()}, r);
  return {};
}

// Experts stand in the last of every --expert-interval layers, without tensor parallelism unless
// that is asked for; one choice a token.
void ReadDeepSpeedExperts(Reading* r) {
  Draft& draft = r->draft();
  const std::vector<std::string> counts = r->Texts("--num-experts");
  const auto top_k = r->Whole("--topk"), interval = r->Whole("--expert-interval");
  const double capacity = r->Real("--moe-train-capacity-factor", 1);
  const bool drops = !r->On("--disable-moe-token-dropping");
  const bool sliced = r->On("--enable-expert-tensor-parallelism");
  const std::string type = r->Text("--mlp-type");
  const auto many = [](const std::string& count) { return count != "1"; };
  if (std::ranges::none_of(counts, many)) return draft.Drop("parallel.ep");
  if (counts.size() > 1) {
    return r->Refuse("--num-experts",
                     fmt::format("layers with different numbers of experts ({}) are not modelled",
                                 fmt::join(counts, ", ")));
  }
  if (type == "residual") {
    return r->Refuse("--mlp-type", "a dense layer beside each token's expert is not modelled");
  }
  draft.Set("model.experts", counts.front());
  draft.Set("model.expert_top_k", top_k.value_or(1));
  if (interval.value_or(2) > 1) draft.Set("model.expert_every", interval.value_or(2));
  if (drops) draft.Set("training.moe_capacity_factor", fmt::format("{}", capacity));
  if (!sliced && draft.Whole("parallel.tp", 1) > 1) draft.Set("parallel.etp", std::int64_t{1});
}

void BeforeDeepSpeed(Reading* r) {
  Draft& draft = r->draft();
  ReadDeepSpeedExperts(r);
  if (const auto ulysses = r->Whole("--ds-sequence-parallel-size"); ulysses && *ulysses > 1) {
    draft.Set("parallel.cp", *ulysses);
    draft.Assume("--ds-sequence-parallel-size: Ulysses, parallel.cp with all-to-alls");
  }
}

// Layers that pp does not divide fill the stages from the first; type:transformer|embedding counts
// what is before and behind them as a layer each.
void ReadPartition(Reading* r) {
  Draft& draft = r->draft();
  const std::string method = r->Text("--pp-partition-method");
  const std::int64_t pp = draft.Whole("parallel.pp", 1), layers = draft.Whole("model.layers", 0);
  if (pp <= 1 || layers < pp) return;
  if (!Contains(method, "embedding")) {
    if (layers % pp != 0) draft.Set("parallel.layers_per_stage", "filled");
  } else if ((layers + 2) % pp != 0) {
    r->Refuse("--pp-partition-method",
              fmt::format("{} layers, embedding and head are not shared by {} stages", layers, pp));
  }  // else as `auto`
}

void AfterDeepSpeed(Reading* r) {
  Draft& draft = r->draft();
  draft.SetText("framework", "megatron-deepspeed");
  ReadPartition(r);
  if (r->On("--partition-activations") && draft.Whole("parallel.tp", 1) > 1) {
    r->Refuse("--partition-activations",
              "checkpoints split over tensor-parallel ranks are not modelled");
  }
  const bool engine = r->On("--deepspeed");
  const bool configured = r->Has("zero_optimization.stage");
  const std::int64_t stage = r->Whole("--zero-stage").value_or(1);
  if (engine || configured) {
    for (const char* key : {"overlap_grad_reduce", "overlap_param_gather"}) {
      draft.Drop(fmt::format("framework_options.{}", key));
    }
    ReadZero(r);
    if (!configured) {
      draft.Set("training.sharding",
                stage == 0 ? std::string("none") : fmt::format("zero{}", stage));
    }
  }
  if (r->On("--cpu-optimizer")) draft.Set("training.offload", std::string("optimizer"));
  if (r->On("--checkpoint-in-cpu")) {
    draft.Set("training.offload",
              std::string(draft.Has("training.offload") ? "all" : "activations"));
  }
  if (draft.Whole("parallel.cp", 1) > 1) {
    draft.Set("framework_options.cp_exchange", std::string("all-to-all"));
  }
  if (draft.Has("model.experts")) draft.Set("training.moe_dispatcher", std::string("alltoall"));
  const bool first = r->On("--use-flash-attn");
  const bool second = r->On("--use-flash-attn-v2"), triton = r->On("--use-flash-attn-triton"),
             builder = r->On("--use-flash-attn-builder");
  if (second || triton || builder) {
    draft.Set("framework_options.attention", std::string("flash2"));
  } else if (first) {
    draft.Set("framework_options.attention", std::string("flash1"));
  }
  if (const std::string gate = r->Text("--glu-activation"); !gate.empty() && gate != "None") {
    draft.Set("model.activation", std::string("swiglu"));
    if (gate != "swiglu") draft.Assume(fmt::format("--glu-activation {}: priced as swiglu", gate));
  }
}

void AfterPatch(Reading* r) {
  Draft& draft = r->draft();
  const auto width = r->Whole("--intermediate-size");
  if (width && !r->Has("--ffn-hidden-size")) draft.Set("model.ffn_hidden", *width);
  const bool llama = r->On("--use-llama2-rotary-position-embeddings");
  const bool mistral = r->On("--use-mistral-rotary-position-embeddings");
  const bool alibi = r->On("--use-alibi-mask"), bloom = r->On("--use-bloom-alibi-mask");
  if (llama || mistral) draft.Set("model.position", std::string("rotary"));
  if (alibi || bloom) draft.Set("model.position", std::string("none"));
  if (r->On("--disable-bias-linear-fc")) draft.Set("model.mlp_bias", false);
  if (r->On("--disable-bias-attn-fc")) draft.Set("model.projection_bias", false);
  const auto shared = r->Whole("--num-shared-experts");
  const std::int64_t expert = draft.Whole("model.expert_ffn_hidden", 0);
  if (shared && *shared > 0 && expert > 0 && !draft.Has("model.shared_ffn_hidden")) {
    draft.Set("model.shared_ffn_hidden", *shared * expert);
  }
  const auto capacity = r->Whole("--moe-train-capacity-factor");
  const bool keeps = r->On("--disable-moe-token-dropping");
  if (capacity && !keeps && draft.Has("model.experts")) {
    draft.Set("training.moe_capacity_factor", *capacity);
  }
  if (r->On("--expert-tensor-parallelism")) draft.Drop("parallel.etp");
}

}  // namespace

const Table& MegatronDeepSpeedTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_megatron_deepspeed.inc"
  };
  static const Table table(kLines);
  return table;
}

const Table& MegatronPatchTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_megatron_patch.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsMegatronDeepSpeed(std::string_view text, const std::string& path) {
  return !IsYaml(path) && IsMegatron(text, path) && Contains(text, "--deepspeed");
}

bool IsMegatronPatch(std::string_view text, const std::string& path) {
  return !IsYaml(path) && IsMegatron(text, path) &&
         (Contains(text, "--patch-tokenizer-type") || Contains(text, "--extra-vocab-size"));
}

Result<Imported> ReadMegatronDeepSpeed(const std::vector<File>& files, const Options& options) {
  std::vector<File> ordered = files;  // the script first
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const File& file) { return !IsDeepSpeed(file.text, file.path); });
  return ReadMegatronScript(ordered, options,
                            {.name = "megatron-deepspeed",
                             .tables = {&MegatronDeepSpeedTable(), &MegatronTable()},
                             .add_files = AddConfig,
                             .before = BeforeDeepSpeed,
                             .after = AfterDeepSpeed});
}

Result<Imported> ReadMegatronPatch(const std::vector<File>& files, const Options& options) {
  return ReadMegatronScript(files, options,
                            {.name = "megatron-patch",
                             .tables = {&MegatronPatchTable(), &MegatronTable()},
                             .after = AfterPatch});
}

}  // namespace orrery::recipes
