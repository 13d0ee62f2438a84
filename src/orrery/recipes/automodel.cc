// NeMo Automodel's YAML: rules that join several keys; what one key says alone stands in
// data/recipes/automodel.csv. Source of defaults and meaning: NVIDIA-NeMo/Automodel,
// nemo_automodel/recipes/llm/train_ft.py, components/distributed, components/moe/parallelizer.py,
// components/models/common/utils.py (BackendConfig).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/adapters.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"

namespace orrery::recipes {
namespace {

std::int64_t Degree(std::string_view argument, Reading* r) {
  const std::string text = Lower(r->Text(argument));
  if (text.empty() || text == "none") return 1;
  return std::max<std::int64_t>(1, r->Whole(argument).value_or(1));
}

// layers_per_stage is of a chunk; how many there are is rounded to a multiple of the stages.
void ReadAutomodelStages(std::int64_t layers, Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t pp = draft.Whole("parallel.pp", 1);
  std::string schedule = Lower(r->Text("distributed.pipeline.pp_schedule"));
  const auto each = r->Whole("distributed.pipeline.layers_per_stage");
  const bool up = r->Text("distributed.pipeline.round_virtual_stages_to_pp_multiple") == "up";
  if (pp <= 1) return;
  std::erase(schedule, '_');
  const bool interleaved = schedule == "interleaved1f1b";
  if (!interleaved && schedule != "1f1b" && schedule != "gpipe") {
    r->Refuse("distributed.pipeline.pp_schedule",
              fmt::format("'{}' is not modelled; 1f1b, interleaved1f1b and gpipe are",
                          Printable(schedule, 40)));
  }
  draft.SetText("schedule", interleaved ? "1f1b-interleaved" : schedule);
  if (!interleaved || layers <= 0) return;
  const std::int64_t chunk = each && *each > 0 ? *each : (layers + 2 * pp - 1) / (2 * pp);
  std::int64_t chunks = (layers + chunk - 1) / chunk;
  chunks = std::max(pp, up ? RoundUp(chunks, pp) : chunks / pp * pp);
  if (chunks / pp < 2) return draft.SetText("schedule", "1f1b");
  draft.Set("parallel.vpp", chunks / pp);
  if (layers % chunks != 0) draft.Set("parallel.layers_per_stage", "spread");
}

// Transformer Engine's or torch's layers; the dispatcher of tokens.
void ReadBackend(bool experts, Reading* r) {
  Draft& draft = r->draft();
  const std::string attention = Lower(r->Text("model.backend.attn"));
  const std::string hub = Lower(r->Text("model.attn_implementation"));
  const std::string dispatcher = Lower(r->Text("model.backend.dispatcher"));
  const std::string fp8 = Lower(r->Text("model.backend.te_fp8.recipe"));
  const bool dealt = r->On("model.backend.fake_balanced_gate");
  const std::string linear = r->Text("model.backend.linear");
  const bool compiled = r->On("compile.enabled");
  const bool liger = r->On("model.use_liger_kernel");
  const bool te = linear == "te" || (experts && linear.empty());
  if (attention == "te" || (attention.empty() && te)) {
    draft.SetText("framework_options.attention", "te");
  } else if (attention == "flex") {
    draft.SetText("framework_options.attention", "flex");
  } else if (attention == "sdpa" || hub == "sdpa" || (attention.empty() && hub.empty())) {
    draft.SetText("framework_options.attention", "sdpa");
  } else if (hub == "flash_attention_2") {
    draft.SetText("framework_options.attention", "flash2");
  } else if (hub == "eager" || attention == "eager") {
    draft.SetText("framework_options.attention", "unfused");
  } else {
    r->Refuse(attention.empty() ? "model.attn_implementation" : "model.backend.attn",
              fmt::format("attention '{}' is not modelled; te, sdpa, flex, flash_attention_2 and "
                          "eager are",
                          Printable(attention.empty() ? hub : attention, 40)));
  }
  if (compiled && !te) draft.SetText("framework_options.torch_layers", "compiled");
  if (liger && !te) draft.SetText("framework_options.torch_layers", "fused");
  if (!experts) return;
  if (dispatcher == "deepep" || dispatcher == "hybridep") {
    draft.SetText("training.moe_dispatcher", dispatcher);
  } else if (dispatcher == "torch") {
    draft.SetText("training.moe_dispatcher", "allgather");
  } else if (!dispatcher.empty()) {
    r->Refuse("model.backend.dispatcher",
              fmt::format("'{}' is not modelled; torch, deepep and hybridep are",
                          Printable(dispatcher, 40)));
  }
  if (dealt) draft.SetText("training.moe_routing", "round-robin");
  if (fp8.empty()) return;
  draft.SetText("training.precision", fp8 == "mxfp8" ? "mxfp8" : "fp8");
  if (fp8 != "mxfp8") {
    draft.SetText("framework_options.fp8_recipe", fp8 == "block" ? "blockwise" : "current");
  }
}

void ReadAutomodelTraining(bool experts, Reading* r) {
  Draft& draft = r->draft();
  const std::string strategy = Lower(r->Text("distributed.strategy"));
  const std::string type = Lower(r->Text("model.torch_dtype"));
  if (strategy == "ddp") {
    draft.SetText("framework", "ddp");
    draft.SetText("training.sharding", "none");
  } else {
    if (strategy != "fsdp2") {
      r->Refuse("distributed.strategy", fmt::format("'{}' is not modelled here; fsdp2 and ddp are",
                                                    Printable(strategy, 40)));
    }
    draft.SetText("framework", experts ? "automodel" : "fsdp2");
    draft.SetText(
        "training.sharding",
        draft.Whole("parallel.dp", 2) > 1 || draft.Whole("parallel.cp", 1) > 1 ? "zero3" : "none");
  }
  // get_sync_ctx; fully_shard's units with experts are held whole (hold_units).
  const bool defers = r->Text("distributed.defer_fsdp_grad_sync") != "false";
  if (strategy != "ddp") draft.Set("framework_options.defer_grad_reduce", defers);
  const bool wide = type == "float32" || type == "fp32";
  draft.SetText("training.precision", "bf16");
  if (strategy != "ddp") draft.Set("framework_options.model_type_states", !wide);
  draft.SetText("training.recompute",
                r->On("distributed.activation_checkpointing") ? "full" : "none");
  if (r->On("distributed.enable_async_tensor_parallel") && draft.Whole("parallel.tp", 1) > 1) {
    draft.Set("framework_options.tp_comm_overlap", true);
  }
  const Given* reshard = r->Find("distributed.moe.reshard_after_forward");
  if (experts && reshard != nullptr) draft.Set("framework_options.reshard", reshard->on);
  const std::string path = r->Text("optimizer._target_");
  const std::string optimizer = Lower(path.substr(path.rfind('.') + 1));
  const bool fused = r->On("optimizer.fused") || optimizer == "fusedadam";
  if (optimizer == "adam" || optimizer == "adamw" || optimizer == "fusedadam") {
    draft.SetText("training.optimizer", optimizer == "adamw" ? "adamw" : "adam");
    draft.Set("framework_options.fused_adam", fused);
    // What its master weights hold beside 16-bit parameters makes them fp32.
    const bool half =
        ReadMomentTypes("optimizer.exp_avg_dtype", "optimizer.exp_avg_sq_dtype", r) && fused;
    if (half && strategy != "ddp" && (wide || r->On("optimizer.master_weights"))) {
      draft.Set("framework_options.model_type_states", false);
    } else if (half && strategy != "ddp") {
      draft.Drop("training.optimizer_states");  // the model's type
    }
  } else if (optimizer == "muon" || optimizer == "sgd") {
    draft.SetText("training.optimizer", optimizer);
    draft.Drop("framework_options.model_type_states");
  } else {
    r->Refuse("optimizer._target_",
              fmt::format("'{}' is not modelled; Adam, AdamW, FusedAdam, Muon and SGD are",
                          Printable(path, 60)));
  }
  const std::string loss = r->Text("loss_fn._target_");
  if (loss.ends_with("FusedLinearCrossEntropy") || loss.ends_with("ChunkedCrossEntropy")) {
    draft.Set("framework_options.chunked_loss", true);
  } else if (loss.ends_with("TEParallelCrossEntropy")) {
    draft.Set("framework_options.online_cross_entropy", true);
  } else if (!loss.empty() && !loss.ends_with("MaskedCrossEntropy")) {
    r->Refuse("loss_fn._target_", "another loss than the likelihood is not modelled");
  }
  ReadBackend(experts, r);
  if (r->On("fp8.enabled")) {
    draft.SetText("training.precision", "fp8");
    draft.SetText("framework_options.fp8_recipe", "current");
    draft.Set("framework_options.low_precision_gather", r->On("fp8.enable_fsdp_float8_all_gather"));
    const std::vector<std::string> left = r->Texts("fp8.filter_fqns");
    draft.Set("framework_options.fp8_output_layer",
              std::ranges::find(left, "lm_head") == left.end());
    const std::string recipe = r->Text("fp8.recipe_name");
    if (!recipe.empty() && recipe != "tensorwise" && recipe != "rowwise") {
      r->Refuse("fp8.recipe_name", "modelled: tensorwise, rowwise");
    }
  }
}

void ReadAutomodelAdapters(Reading* r) {
  const auto rank = r->Whole("peft.dim");
  const bool all = r->On("peft.match_all_linear");
  const std::vector<std::string> names = r->Texts("peft.target_modules");
  const bool takes = r->Has("peft.target_modules") || all || r->Has("peft._target_");
  if (!takes) return;
  std::vector<std::string> modules;
  for (const std::string& name : names) {  // patterns with stars
    const bool every = name == "*" || name == "*_proj" || name == "*proj";
    modules.push_back(every ? "all-linear" : name);
  }
  if (all || names.empty()) modules = {"all-linear"};
  r->draft().Set("training.lora_rank", rank.value_or(8));
  SetLoraTargets(modules, "peft.target_modules", r);
}

// Hosts: a benchmark's num_nodes, else what its nightly run takes.
Launch ReadAutomodelLaunch(Reading* r) {
  Launch launch;
  launch.gpus_per_node = r->Whole("ci.nproc_per_node").value_or(0);
  const auto benchmark = r->Whole("benchmark.num_nodes");
  const auto nodes = benchmark ? benchmark : r->Whole("ci.nodes");
  if (nodes && *nodes > 0) {
    launch.nodes = *nodes;
    if (launch.gpus_per_node == 0) launch.gpus_per_node = r->ClusterGpusPerNode();
  }
  return launch;
}

void ReadAutomodelBatch(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t dp = draft.Whole("parallel.dp", 0), pp = draft.Whole("parallel.pp", 1);
  const auto all = r->Whole("step_scheduler.global_batch_size");
  const auto local = r->Whole("step_scheduler.local_batch_size");
  const auto part = r->Whole("distributed.pipeline.pp_microbatch_size");
  if (!local) {
    return r->Missing(
        "step_scheduler.local_batch_size (sequences of a replica's pass): give --set "
        "training.micro_batch=N");
  }
  draft.Set("training.micro_batch", pp > 1 ? part.value_or(1) : *local);
  if (dp < 1) return;
  const std::int64_t step = Product({*local, dp});
  if (all && *all % std::max<std::int64_t>(step, 1) != 0) {
    return r->Problem(
        fmt::format("{}: step_scheduler.global_batch_size {} is no multiple of {} ranks · "
                    "local_batch_size {}; give another --gpus",
                    r->Where("step_scheduler.global_batch_size"), *all, dp, *local));
  }
  draft.Set("training.global_batch", all.value_or(step));
  if (pp > 1 && all && *all > step) {
    draft.Assume(fmt::format(
        "a step's {} pipeline runs of {} sequences are priced as one, without draining between",
        *all / step, step));
  }
}

void ReadAutomodelLength(Reading* r) {
  std::optional<std::int64_t> length = r->Whole("packed_sequence.packed_sequence_size");
  std::string_view said = "packed_sequence.packed_sequence_size";
  for (const std::string_view name :
       {"dataset.seq_len", "dataset.seq_length", "distributed.pipeline.pp_seq_len"}) {
    const auto other = r->Whole(name);
    if (length && *length > 0) continue;
    length = other;
    said = name;
  }
  if (length && *length > 0) {
    r->draft().Set("training.seq_len", *length);
    if (said.starts_with("packed_sequence")) {
      r->Suppose(said, "samples packed into it are priced as one, which is the dearest",
                 "training.packed_len");
    }
    if (said == "dataset.seq_length") {
      r->draft().Assume(
          fmt::format("sequences are as long as {} lets them be, {} tokens", said, *length));
    }
  } else if (!r->IsSet("training.seq_len")) {
    r->Missing("how long sequences are: give --set training.seq_len=N");
  }
}

}  // namespace

const Table& AutomodelTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_automodel.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsAutomodel(std::string_view text, const std::string& path) {
  return IsYaml(path) && HasKey(text, "step_scheduler") && Contains(text, "_target_:");
}

void ReadAutomodelRules(const std::string& model_file, const std::string& name,
                        std::string_view argument, Reading* r) {
  Draft& draft = r->draft();
  ReadModel("hub", model_file, name, argument, r);
  r->Translate();  // what the file says of shapes counts, over the model's
  const auto shapes = r->Model();
  const bool experts = shapes && shapes->experts.count > 0;
  const std::int64_t tp = Degree("distributed.tp_size", r);
  const std::int64_t pp = Degree("distributed.pp_size", r);
  const std::int64_t cp = Degree("distributed.cp_size", r);
  const std::int64_t ep = Degree("distributed.ep_size", r);
  const std::int64_t copies = Degree("distributed.dp_replicate_size", r);
  const std::int64_t dp = Degree("distributed.dp_size", r);
  if (tp > 1) draft.Set("parallel.tp", tp);
  if (pp > 1) draft.Set("parallel.pp", pp);
  if (cp > 1) draft.Set("parallel.cp", cp);
  if (experts && ep > 1) draft.Set("parallel.ep", ep);
  if (experts && tp > 1) draft.Set("parallel.etp", std::int64_t{1});
  if (tp > 1 && r->On("distributed.sequence_parallel")) {
    draft.Set("parallel.sequence_parallel", true);
  }
  Launch launch = ReadAutomodelLaunch(r);
  if (launch.nodes == 0 && dp > 1) launch.gpus = Product({dp, tp, pp, cp});
  r->SetSize(launch);
  const std::int64_t ranks = draft.Whole("parallel.dp", 0);
  if (copies > 1 && ranks > 0 && ranks % copies == 0 && ranks / copies > 1) {
    draft.Set("parallel.shard_group", ranks / copies * cp);
  }
  ReadAutomodelStages(shapes ? shapes->layers : 0, r);
  ReadAutomodelTraining(experts, r);
  ReadAutomodelAdapters(r);
  ReadAutomodelBatch(r);
  ReadAutomodelLength(r);
}

Result<Imported> ReadAutomodel(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "Automodel"));
  ORRERY_ASSIGN_OR_RETURN(formats::Document document, ParseConfiguration(taken.file));
  ResolveExpressions(&document);
  const Tables tables = {&AutomodelTable()};
  Reading reading(tables, options, taken.file.path);
  AddLeaves(document, document.root, tables, &reading);
  std::string name;
  for (const std::string_view key :
       {"model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path",
        "model.config.name_or_path", "model.config"}) {
    if (name.empty()) name = reading.TextIfKnown(key);
    reading.Find(key);
  }
  ReadAutomodelRules(taken.model, name, "model.pretrained_model_name_or_path", &reading);
  return reading.Finish("automodel");
}

}  // namespace orrery::recipes
