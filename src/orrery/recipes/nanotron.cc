// nanotron's YAML: rules that join several keys; what one key says alone stands in
// data/recipes/nanotron.csv. Source of defaults and meaning: huggingface/nanotron,
// src/nanotron/config (config.py, models_config.py, parallelism_config.py).
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

void ReadNanotronShapes(Reading* r) {
  Draft& draft = r->draft();
  const std::string activation = r->Text("model.model_config.hidden_act");
  if (activation != "silu") {
    r->Refuse("model.model_config.hidden_act",
              fmt::format("'{}' is not modelled; silu, gated, is", Printable(activation, 40)));
  }
  draft.SetText("model.activation", "swiglu");
  draft.SetText("model.norm", "rmsnorm");
  draft.SetText("model.position", "rotary");
  const bool bias = r->On("model.model_config.attention_bias");
  draft.Set("model.attention_bias", bias);
  if (bias) draft.Set("model.projection_bias", false);  // queries, keys and values alone
  draft.Set("model.mlp_bias", false);
  if (!r->Has("model.model_config.tie_word_embeddings")) {
    draft.Set("model.tied_embeddings", false);
  }
  const std::int64_t multiple = Product({r->Whole("model.make_vocab_size_divisible_by").value_or(1),
                                         std::max<std::int64_t>(1, draft.Whole("parallel.tp", 1))});
  if (const auto vocab = r->Whole("model.model_config.vocab_size")) {
    draft.Set("model.vocab", RoundUp(*vocab, multiple));
  }
  const bool shared = r->On("model.model_config.moe_config.enable_shared_expert");
  if (!shared) draft.Drop("model.shared_ffn_hidden");
  if (!draft.Has("model.experts")) return draft.Drop("parallel.ep");
  const std::vector<std::string> layers = r->Texts("model.model_config.moe_config.layers");
  if (!layers.empty() && layers != std::vector<std::string>{"-1"}) {
    r->Refuse("model.model_config.moe_config.layers",
              "experts in some layers are not modelled here; -1 puts them into all");
  }
}

void ReadNanotronTraining(Reading* r) {
  Draft& draft = r->draft();
  const std::string type = r->Text("model.dtype"),
                    name = r->Text("optimizer.optimizer_factory.name");
  const bool half = type == "bfloat16" || type == "float16";
  if (!half && type != "float32" && type != "double") {
    r->Refuse("model.dtype", "modelled: bfloat16, float16, float32");
  }
  draft.SetText("training.precision", type == "bfloat16"  ? "bf16"
                                      : type == "float16" ? "fp16"
                                                          : "fp32");
  const bool whole = r->On("optimizer.accumulate_grad_in_fp32");
  if (half) draft.Set("framework_options.grad_reduce_fp32", whole);
  draft.SetText("training.optimizer", Lower(name) == "sgd" ? "sgd" : "adamw");
  if (r->Has("optimizer.optimizer_factory.torch_adam_is_fused")) {
    draft.Set("framework_options.fused_adam",
              r->On("optimizer.optimizer_factory.torch_adam_is_fused"));
  }
  const std::int64_t stage = r->Whole("optimizer.zero_stage").value_or(0);
  if (stage != 0 && stage != 1) {
    r->Refuse("optimizer.zero_stage", "nanotron has stages 0 and 1");
  }
  draft.SetText("training.sharding", stage == 1 ? "zero1" : "none");
  if (!r->Has("optimizer.clip_grad") || r->Real("optimizer.clip_grad", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
  draft.SetText("training.recompute", r->On("parallelism.recompute_layer") ? "full" : "none");
  const std::string engine = Lower(r->Text("parallelism.pp_engine"));
  const std::string mode = Lower(r->Text("parallelism.tp_mode"));
  if (draft.Whole("parallel.pp", 1) > 1) {
    if (engine != "1f1b" && engine != "afab" && !engine.empty()) {
      r->Refuse("parallelism.pp_engine", "valid: 1f1b, afab");
    }
    draft.SetText("schedule", engine == "afab" ? "gpipe" : "1f1b");
  }
  if (draft.Whole("parallel.tp", 1) > 1) {
    draft.Set("parallel.sequence_parallel", mode == "reduce_scatter");
  }
}

void ReadBatch(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t dp = r->Whole("parallelism.dp").value_or(0);
  const auto passes = r->Whole("tokens.batch_accumulation_per_replica");
  const std::int64_t outer = Product({draft.Whole("parallel.tp", 1), draft.Whole("parallel.pp", 1),
                                      draft.Whole("parallel.cp", 1)});
  Launch launch;
  if (r->options().gpus == 0 && r->options().nodes == 0) launch.gpus = Product({dp, outer});
  r->SetSize(launch);
  r->SayNodes(0);
  const std::int64_t replicas = draft.Whole("parallel.dp", 0);
  if (replicas < 1) return;
  draft.Set("training.global_batch",
            Product({draft.Whole("training.micro_batch", 1), passes.value_or(1), replicas}));
}

}  // namespace

const Table& NanotronTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_nanotron.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsNanotron(std::string_view text, const std::string& path) {
  return IsYaml(path) && Contains(text, "parallelism:") && Contains(text, "tokens:") &&
         Contains(text, "model_config:");
}

Result<Imported> ReadNanotron(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return InvalidInput("nanotron's configuration is one YAML file; {} are given", files.size());
  }
  const Tables tables = {&NanotronTable()};
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, ParseConfiguration(files.front()));
  Reading reading(tables, options, files.front().path);
  AddLeaves(document, document.root, tables, &reading);
  reading.Translate();
  reading.draft().SetText("framework", "nanotron");
  ReadNanotronShapes(&reading);
  ReadNanotronTraining(&reading);
  ReadBatch(&reading);
  return reading.Finish("nanotron");
}

}  // namespace orrery::recipes
