// torchtitan's TOML of releases until v0.2.2, and what python_recipes.cc makes of later ones: rules
// that join several keys; what one key says alone stands in data/recipes/torchtitan.csv. Source of
// defaults and meaning: pytorch/torchtitan, torchtitan/config/job_config.py,
// distributed/pipeline_parallel.py, distributed/parallel_dims.py; before v0.1.0 config_manager.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {
namespace {

bool Among(const std::vector<std::string>& texts, std::string_view text) {
  return std::ranges::find(texts, text) != texts.end();
}

std::string ReadFlavor(Reading* r) {
  std::string name = r->Text("model.name");
  const std::string flavor = r->Text("model.flavor");
  const bool flex = r->On("model.use_flex_attn") || flavor.find("flex") != std::string::npos ||
                    flavor.find("irope") != std::string::npos || name == "deepseek_v3" ||
                    name == "gpt_oss";
  if (flex) {
    r->draft().Assume(
        "flex attention is priced as flash attention, over sequences of one document");
  }
  if (name == "llama2" || name == "flux" || name.starts_with("simple_fsdp")) {
    r->Problem(
        fmt::format("{}: model.name '{}' is not known; known: llama3, llama4, deepseek_v3, "
                    "qwen3, gpt_oss; --model NAME takes another's place",
                    r->Where("model.name"), Printable(name, 40)));
  }
  return name + "/" + flavor;
}

// A schedule's name in PyTorch (torch.distributed.pipelining.schedules), ours, and chunks a stage.
struct Schedule {
  std::string_view name, ours;
  int chunks;
};
constexpr std::array<Schedule, 8> kSchedules = {{{"1F1B", "1f1b", 1},
                                                 {"GPipe", "gpipe", 1},
                                                 {"Interleaved1F1B", "1f1b-interleaved", 2},
                                                 {"1f1b", "1f1b", 1},
                                                 {"gpipe", "gpipe", 1},
                                                 {"interleaved_1f1b", "1f1b-interleaved", 2},
                                                 {"ZBVZeroBubble", "zb-v", 2},
                                                 {"DualPipeV", "dualpipe-v", 2}}};

// Layers of each chunk, embedding and output counted as some (generate_llm_fqn_per_model_part).
std::vector<std::int64_t> CutLayers(std::int64_t layers, std::int64_t chunks, std::int64_t first,
                                    std::int64_t last) {
  const std::int64_t all = layers + first + last;
  std::vector<std::int64_t> cut;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const std::int64_t each = all / chunks + (i < all % chunks ? 1 : 0);
    cut.push_back(each - (i == 0 ? first : 0) - (i + 1 == chunks ? last : 0));
  }
  return cut;
}

// "layers.8" of split points: the first layer of each chunk but the first.
std::optional<std::vector<std::int64_t>> CutAt(const std::vector<std::string>& points,
                                               std::int64_t layers) {
  std::vector<std::int64_t> cut;
  std::int64_t before = 0;
  for (const std::string& point : points) {
    if (!point.starts_with("layers.")) return std::nullopt;
    const Result<std::int64_t> at = ParseInteger(point.substr(7));
    if (!at.ok() || *at <= before || *at >= layers) return std::nullopt;
    cut.push_back(*at - before);
    before = *at;
  }
  cut.push_back(layers - before);
  return cut;
}

void ReadStages(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t pp = draft.Whole("parallel.pp", 1);
  const std::string name = r->Text("parallelism.pipeline_parallel_schedule");
  const auto each = r->Whole("parallelism.pipeline_parallel_layers_per_stage");
  const std::int64_t first =
      r->Whole("parallelism.pipeline_parallel_first_stage_less_layers").value_or(1);
  const std::int64_t last =
      r->Whole("parallelism.pipeline_parallel_last_stage_less_layers").value_or(1);
  const std::vector<std::string> points = r->Texts("parallelism.pipeline_parallel_split_points");
  if (pp <= 1) return;
  const auto found = std::ranges::find(kSchedules, name, &Schedule::name);
  if (found == kSchedules.end()) {
    return r->Refuse("parallelism.pipeline_parallel_schedule",
                     fmt::format("'{}' is not modelled; modelled: 1F1B, GPipe, Interleaved1F1B, "
                                 "ZBVZeroBubble, DualPipeV",
                                 Printable(name, 40)));
  }
  draft.SetText("schedule", found->ours);
  const std::optional<workload::Model> model = r->Model();
  if (!model) return;  // asked for elsewhere
  std::int64_t chunks = pp * found->chunks;
  std::vector<std::int64_t> cut;
  if (!points.empty()) {
    const auto list = CutAt(points, model->layers);
    if (!list || static_cast<std::int64_t>(list->size()) % pp != 0) {
      return r->Refuse(
          "parallelism.pipeline_parallel_split_points",
          fmt::format("points are layers.N in order, a multiple of pp {} less one", pp));
    }
    cut = *list;
    chunks = static_cast<std::int64_t>(cut.size());
  } else {
    if (each && *each > 0) {
      chunks = (model->layers + first + last + *each - 1) / *each;
      const bool fits = chunks % pp == 0 && (found->chunks > 1) == (chunks / pp > 1) &&
                        (found->ours == "1f1b-interleaved" || chunks / pp == found->chunks);
      if (!fits) {
        return r->Refuse("parallelism.pipeline_parallel_layers_per_stage",
                         fmt::format("{} layers a chunk make {} chunks, which {} stages of {} do "
                                     "not take",
                                     *each, chunks, pp, name));
      }
    }
    if (first < 0 || last < 0 || (model->layers + first + last) / chunks <= std::max(first, last)) {
      return r->Refuse("parallelism.pipeline_parallel_degree",
                       fmt::format("{} chunks of {} layers, with {} and {} less at the ends, are "
                                   "empty",
                                   chunks, model->layers, first, last));
    }
    cut = CutLayers(model->layers, chunks, first, last);
  }
  if (chunks > pp) draft.Set("parallel.vpp", chunks / pp);
  if (std::ranges::any_of(cut, [&](std::int64_t n) { return n != cut[0]; })) {
    draft.Set("parallel.layers_per_stage", fmt::format("[{}]", fmt::join(cut, ", ")));
  }
}

void ReadTitanDegrees(Reading* r) {
  Draft& draft = r->draft();
  const auto degree = [&](std::string_view name) {
    const std::string argument = fmt::format("parallelism.{}", name);
    const std::int64_t value = r->Whole(argument).value_or(1);
    if (value < 1) {
      r->Problem(fmt::format("{}: {} is {}; write a whole number from 1", r->Where(argument),
                             argument, value));
    }
    return std::max<std::int64_t>(1, value);
  };
  const std::int64_t tp = degree("tensor_parallel_degree");
  const std::int64_t pp = degree("pipeline_parallel_degree");
  const std::int64_t cp = degree("context_parallel_degree");
  const std::int64_t ep = degree("expert_parallel_degree");
  const std::int64_t etp = degree("expert_tensor_parallel_degree");
  const bool async = r->On("parallelism.enable_async_tensor_parallel");
  draft.Set("parallel.tp", tp);
  if (pp > 1) draft.Set("parallel.pp", pp);
  if (tp > 1) {
    draft.Set("parallel.sequence_parallel", true);
    if (async) draft.Set("framework_options.tp_comm_overlap", true);
  }
  const std::string rotate = r->Text("parallelism.context_parallel_rotate_method");
  if (cp > 1) {
    draft.Set("parallel.cp", cp);
    draft.SetText("framework_options.cp_exchange",
                  rotate == "alltoall" ? "ring" : "all-gather");  // it is passed on by all-to-alls
  }
  const std::string dispatch = Lower(r->Text("parallelism.expert_parallel_comm_backend"));
  const std::optional<workload::Model> model = r->Model();
  if (model && model->experts.count > 0) {
    if (ep > 1) draft.Set("parallel.ep", ep);
    if (ep > 1 || tp > 1) draft.Set("parallel.etp", ep > 1 ? etp : tp);
    if (dispatch == "deepep") {
      draft.SetText("training.moe_dispatcher", "deepep");
    } else if (dispatch != "standard") {
      r->Refuse("parallelism.expert_parallel_comm_backend", "modelled: standard, deepep");
    }
    if (r->On("debug.moe_force_load_balance")) draft.SetText("training.moe_routing", "round-robin");
  } else {
    r->On("debug.moe_force_load_balance");
  }
  const bool parallel_loss = !r->On("parallelism.disable_loss_parallel");
  const Given* enabled = r->Find("training.enable_loss_parallel");
  if (tp > 1 && (!parallel_loss || (enabled != nullptr && !enabled->on))) {
    r->Refuse(parallel_loss ? "training.enable_loss_parallel" : "parallelism.disable_loss_parallel",
              "logits gathered over tensor-parallel ranks are not modelled");
  }
}

// Replicas, shards and the batch. `gpus` come from the options.
void ReadSizes(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t copies = r->Whole("parallelism.data_parallel_replicate_degree").value_or(1);
  const std::int64_t shards = r->Whole("parallelism.data_parallel_shard_degree").value_or(-1);
  const std::int64_t cp = draft.Whole("parallel.cp", 1);
  const std::int64_t outer = cp * draft.Whole("parallel.tp", 1) * draft.Whole("parallel.pp", 1);
  Launch launch;
  if (copies < 1 || shards == 0 || shards < -1) {
    return r->Problem(
        fmt::format("{}: replicas {} and shards {}; write whole numbers from 1, "
                    "shards also -1 (all that is left)",
                    r->Where("parallelism.data_parallel_shard_degree"), copies, shards));
  }
  if (shards > 0 && r->options().gpus == 0 && r->options().nodes == 0) {
    launch.gpus = copies * shards * outer;
  }
  r->SetSize(launch);
  if (shards > 0 || copies > 1) r->SayNodes(0);
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  if (dp < 1) return;
  if (shards > 0 && dp != copies * shards) {
    return r->Problem(fmt::format(
        "{}: {} replicas of {} shards are not the {} that the GPUs leave; give --gpus {}",
        r->Where("parallelism.data_parallel_shard_degree"), copies, shards, dp,
        copies * shards * outer));
  }
  if (dp % copies != 0) {
    return r->Problem(fmt::format("{}: {} copies do not divide {} data-parallel ranks",
                                  r->Where("parallelism.data_parallel_replicate_degree"), copies,
                                  dp));
  }
  const std::int64_t sharded = dp / copies * cp;
  if (sharded == 1 && copies > 1) {
    draft.SetText("framework", "ddp");
    draft.SetText("training.sharding", "none");
  } else if (copies > 1) {
    draft.Set("parallel.shard_group", sharded);
  }
  const std::int64_t local = r->Whole("training.local_batch_size").value_or(8);
  const std::int64_t global = r->Whole("training.global_batch_size").value_or(-1);
  const std::int64_t each = r->Whole("parallelism.pipeline_parallel_microbatch_size").value_or(1);
  const auto parts = r->Whole("experimental.pipeline_parallel_microbatches");
  std::int64_t micro = local;
  if (draft.Whole("parallel.pp", 1) > 1) micro = parts && *parts > 0 ? local / *parts : each;
  if (local < 1 || micro < 1 || local % micro != 0) {
    return r->Problem(fmt::format("{}: a local batch of {} is not cut into micro-batches of {}",
                                  r->Where("training.local_batch_size"), local, micro));
  }
  if (global > 0 && global % (local * dp) != 0) {
    return r->Problem(
        fmt::format("{}: global_batch_size {} is no multiple of local_batch_size {} "
                    "· {} replicas; give another --gpus",
                    r->Where("training.global_batch_size"), global, local, dp));
  }
  draft.Set("training.micro_batch", micro);
  draft.Set("training.global_batch", global > 0 ? global : local * dp);
}

void ReadTitanSharding(Reading* r) {
  Draft& draft = r->draft();
  if (!draft.Has("framework")) {
    draft.SetText("framework", "fsdp2");
    draft.SetText("training.sharding", "zero3");
  }
  const std::string reshard = r->Text("parallelism.fsdp_reshard_after_forward");
  const bool host = r->On("training.enable_cpu_offload");
  if (draft.Text("framework") != "fsdp2") return;
  if (reshard == "always" || reshard == "never") {
    draft.SetText("framework_options.reshard", reshard == "always" ? "true" : "false");
  } else if (reshard != "default") {
    r->Refuse("parallelism.fsdp_reshard_after_forward", "valid: default, always, never");
  }
  if (host) draft.SetText("training.offload", "parameters");
}

void ReadTitanPrecision(Reading* r) {
  Draft& draft = r->draft();
  const std::string parameters = r->Text("training.mixed_precision_param");
  const bool states = r->Text("training.dtype") == "bfloat16";
  const std::vector<std::string> converters = r->Texts("model.converters");
  const bool old = r->On("float8.enable_float8_linear") || r->On("training.fp8_linear");
  const bool fp8 =
      old || Among(converters, "float8") || Among(converters, "quantize.linear.float8");
  const bool mx = Among(converters, "mx") || Among(converters, "quantize.linear.mx");
  const bool experts8 = Among(converters, "quantize.grouped_mm.float8") ||
                        !r->Texts("quantize.grouped_mm.float8.fqns").empty();
  const bool experts_mx = Among(converters, "quantize.grouped_mm.mx") ||
                          !r->Texts("quantize.grouped_mm.mx.fqns").empty();
  const std::string recipe = r->Text("quantize.linear.float8.recipe_name");
  const std::string mx_recipe = r->Text("quantize.linear.mx.recipe_name");
  const bool gathers = r->On("quantize.linear.float8.enable_fsdp_float8_all_gather");
  std::vector<std::string> left = r->Texts("quantize.linear.float8.filter_fqns");
  std::vector<std::string> left_mx = r->Texts("quantize.linear.mx.filter_fqns");
  if (!r->Has("quantize.linear.mx.filter_fqns")) left_mx = {"output"};
  draft.SetText("training.precision", fp8                       ? "fp8"
                                      : mx                      ? "mxfp8"
                                      : parameters == "float32" ? "fp32"
                                                                : "bf16");
  if (states) draft.Set("framework_options.model_type_states", true);
  if (!fp8 && !mx) {
    if (experts8 && Among(converters, "quantize.grouped_mm.float8")) {
      r->Refuse("quantize.grouped_mm.float8.fqns",
                "experts in fp8 beside other layers in bf16 are not modelled");
    }
    return;
  }
  draft.Set("framework_options.fp8_output_layer", !Among(fp8 ? left : left_mx, "output"));
  const std::optional<workload::Model> model = r->Model();
  if (model && model->experts.count > 0 && !(fp8 ? experts8 : experts_mx)) {
    draft.SetText("training.bf16_modules", "experts");
  }
  if (mx) {
    if (mx_recipe != "mxfp8" && mx_recipe != "mxfp8_cublas" && mx_recipe != "mxfp8_cublas_rceil") {
      r->Refuse("quantize.linear.mx.recipe_name", "modelled: mxfp8_cublas, mxfp8_cublas_rceil");
    }
    return;
  }
  draft.SetText("framework_options.fp8_recipe", "current");
  draft.Set("framework_options.low_precision_gather", gathers && recipe == "tensorwise");
  if (recipe == "rowwise") {
    draft.Assume("float8 by rows is priced as by tensors");
  } else if (recipe != "tensorwise") {
    r->Refuse("quantize.linear.float8.recipe_name", "modelled: tensorwise, rowwise");
  }
}

void ReadLayers(Reading* r) {
  Draft& draft = r->draft();
  const std::vector<std::string> parts = r->Texts("compile.components");
  const bool on = r->On("compile.enable");
  const bool model = on && (parts.empty() || Among(parts, "model"));
  const bool loss = on && (parts.empty() || Among(parts, "loss"));
  draft.SetText("framework_options.torch_layers", model ? "compiled" : "eager");
  if (loss) {
    draft.Set("framework_options.torch_loss", false);
    draft.Set("framework_options.online_cross_entropy", true);
  }
  const std::string mode = r->Text("activation_checkpoint.mode");
  const std::string option = r->Text("activation_checkpoint.selective_ac_option");
  if (mode == "full" || (mode == "selective" && option == "1")) {
    draft.SetText("training.recompute", "full");
  } else if (mode == "selective" && option == "op") {
    draft.SetText("training.recompute", "selective");
  } else if (mode == "selective") {
    const std::int64_t each = r->Whole("activation_checkpoint.selective_ac_option").value_or(0);
    if (each < 1) {
      return r->Refuse(
          "activation_checkpoint.selective_ac_option",
          fmt::format("'{}' is neither op nor a number of layers from 1", Printable(option, 20)));
    }
    draft.SetText("training.recompute", "full");
    draft.SetText("training.recompute_method", "every");
    draft.Set("training.recompute_layers", each);
  } else if (mode == "none") {
    draft.SetText("training.recompute", "none");
  } else {
    r->Refuse(
        "activation_checkpoint.mode",
        fmt::format("'{}' is not modelled; none, selective and full are", Printable(mode, 40)));
  }
  const std::string optimizer = Lower(r->Text("optimizer.name"));
  const std::string kind = r->Text("optimizer.implementation");
  const Given* fused = r->Find("optimizer.fused");
  if (optimizer == "adam" || optimizer == "adamw") {
    draft.SetText("training.optimizer", optimizer);
  } else {
    r->Refuse("optimizer.name", "modelled: Adam, AdamW");
  }
  const bool one = fused != nullptr ? fused->on : kind.empty() || kind == "fused";
  draft.Set("framework_options.fused_adam", one);
  if (kind == "for-loop") draft.Set("framework_options.adam_loop", true);
}

}  // namespace

const Table& TorchtitanTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_torchtitan.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsTorchtitan(std::string_view text, const std::string& path) {
  if (path.ends_with(".py")) {
    return Contains(text, "torchtitan") && Contains(text, "Trainer.Config(");
  }
  if (!path.ends_with(".toml")) return false;
  return text.find("[training]") != std::string_view::npos &&
         text.find("[model]") != std::string_view::npos;
}

void ReadTorchtitanRules(const std::string& model_file, Reading* r) {
  const std::string flavor = ReadFlavor(r);
  ReadModel("torchtitan", model_file, flavor, "model.name and model.flavor", r);
  r->draft().Set("training.seq_len", r->Whole("training.seq_len").value_or(2048));
  ReadTitanDegrees(r);
  ReadSizes(r);
  ReadTitanSharding(r);
  ReadStages(r);
  ReadTitanPrecision(r);
  ReadLayers(r);
}

Result<Imported> ReadTorchtitan(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken,
                          TakeConfiguration(files, "torchtitan", "TOML"));
  const File& file = taken.file;
  const bool python = file.path.ends_with(".py");
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document,
                          python ? ReadTitanPython(file, options) : ParseConfiguration(file));
  Reading reading({&TorchtitanTable()}, options, file.path);
  AddLeaves(document, document.root, {&TorchtitanTable()}, &reading);
  reading.Translate();
  ReadTorchtitanRules(taken.model, &reading);
  return reading.Finish("torchtitan");
}

}  // namespace orrery::recipes
