// Megatron-LM and Megatron Core: a launch script, a command line, or its YAML. Rules that join
// several arguments; what one argument says alone stands in data/recipes/megatron.csv. Source of
// defaults and meaning: NVIDIA/Megatron-LM, megatron/training/arguments.py (validate_args) and
// megatron/core/transformer/transformer_config.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"
#include "orrery/recipes/launch.h"

namespace orrery::recipes {
namespace {

void ReadMegatronPrecision(Reading* r) {
  Draft& draft = r->draft();
  const bool fp16 = r->On("--fp16"), bf16 = r->On("--bf16");
  const bool fp8 = !r->Text("--fp8-format").empty() || r->On("--fp8-hybrid") || r->On("--fp8-e4m3");
  const bool fp4 = !r->Text("--fp4-format").empty();
  const std::string recipe = r->Text("--fp8-recipe"), recipe4 = r->Text("--fp4-recipe");
  std::string precision = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
  if (fp4) {
    precision = "nvfp4";
    if (recipe4 != "nvfp4") r->Refuse("--fp4-recipe", "modelled: nvfp4");
  } else if (fp8 && recipe == "mxfp8") {
    precision = "mxfp8";
  } else if (fp8) {
    precision = "fp8";
    const std::string name = recipe == "tensorwise" ? "current" : recipe;
    if (name != "delayed" && name != "current" && name != "blockwise") {
      r->Refuse("--fp8-recipe", "modelled: delayed, tensorwise, blockwise, mxfp8");
    }
    draft.SetText("framework_options.fp8_recipe", name);
  }
  draft.SetText("training.precision", precision);
  const bool low = fp8 || fp4;
  const bool ends = r->On("--first-last-layers-bf16");
  const auto first = r->Whole("--num-layers-at-start-in-bf16");
  const auto last = r->Whole("--num-layers-at-end-in-bf16");
  if (low && ends) {
    draft.Set("training.bf16_first_layers", first.value_or(1));
    draft.Set("training.bf16_last_layers", last.value_or(1));
  }
  if (!low) {
    for (const char* key : {"low_precision_gather", "fp8_output_layer", "moe_separate_padding"}) {
      draft.Drop(fmt::format("framework_options.{}", key));
    }
  }
  // bf16 runs reduce in fp32 unless told otherwise, fp16 ones if told.
  const bool in16 = r->On("--grad-reduce-in-bf16"),
             in32 = r->On("--accumulate-allreduce-grads-in-fp32") || r->On("--fp32-allreduce");
  if (bf16) draft.Set("framework_options.grad_reduce_fp32", !in16);
  if (fp16) draft.Set("framework_options.grad_reduce_fp32", in32);
}

// Whole layers: which of them, and how many at once.
void ReadFullRecompute(const std::string& method, std::int64_t layers, Reading* r) {
  if (method == "block" && layers == 0) return;  // none of a stage's layers
  Draft& draft = r->draft();
  draft.SetText("training.recompute", "full");
  if (!method.empty() && method != "null" && method != "uniform" && method != "block") {
    return r->Problem(
        fmt::format("{}: layers are recomputed by the method uniform or block, not "
                    "'{}'",
                    r->file(), Printable(method, 40)));
  }
  if (method == "block") draft.SetText("training.recompute_method", method);
  if (method == "block" || layers > 1) draft.Set("training.recompute_layers", layers);
}

void ReadRecompute(Reading* r) {
  Draft& draft = r->draft();
  const std::string granularity = r->Text("--recompute-granularity");
  const std::string method = r->Text("--recompute-method");
  const std::int64_t each = r->Whole("--recompute-num-layers").value_or(1);
  const bool oldest = r->On("--checkpoint-activations");
  const std::int64_t oldest_each = r->Whole("--checkpoint-num-layers").value_or(1);
  const std::string old_method = r->Text("--activations-checkpoint-method");
  const std::int64_t old_each = r->Whole("--activations-checkpoint-num-layers").value_or(1);
  const std::vector<std::string> modules = r->Texts("--recompute-modules");
  if (r->On("--recompute-activations") && granularity.empty()) {
    draft.Set("training.recompute", std::string("selective"));
  }
  if (granularity == "selective") {
    draft.Set("training.recompute", std::string("selective"));
    if (!modules.empty()) {
      draft.Set("training.recompute_modules", fmt::format("{}", fmt::join(modules, "+")));
    }
  }
  if (granularity == "full") return ReadFullRecompute(method, each, r);
  if (!old_method.empty()) return ReadFullRecompute(old_method, old_each, r);
  if (oldest) ReadFullRecompute("uniform", oldest_each, r);
}

void ReadMegatronSharding(Reading* r) {
  Draft& draft = r->draft();
  const bool distributed = r->On("--use-distributed-optimizer") || r->On("--distributed-optimizer");
  const bool torch = r->On("--use-torch-fsdp2");
  const bool keeps = r->On("--torch-fsdp2-no-reshard-after-forward");
  const bool fsdp = r->On("--use-megatron-fsdp") || r->On("--use-custom-fsdp") || torch;
  const std::string strategy = r->Text("--data-parallel-sharding-strategy");
  std::string sharding = distributed ? "zero1" : "none";
  if (fsdp) {
    sharding = strategy == "no_shard"      ? "none"
               : strategy == "optim"       ? "zero1"
               : strategy == "optim_grads" ? "zero2"
                                           : "zero3";
  }
  if (torch) {
    sharding = keeps ? "zero2" : "zero3";
    draft.Assume("PyTorch's FSDP2 around Megatron's layers is priced as Megatron FSDP");
  }
  draft.SetText("training.sharding", sharding);
  if (!draft.Has("framework_options.overlap_grad_reduce")) {
    draft.Set("framework_options.overlap_grad_reduce", fsdp);
  }
  if (sharding == "none") {
    draft.Drop("framework_options.overlap_param_gather");
  } else if (!draft.Has("framework_options.overlap_param_gather")) {
    draft.Set("framework_options.overlap_param_gather", fsdp);
  }
  ReadMomentTypes("--exp-avg-dtype", "--exp-avg-sq-dtype", r);
  const bool cpu = r->On("--optimizer-cpu-offload");
  const double share = r->Real("--optimizer-offload-fraction", 1);
  if (cpu && share < 1 && share > 0) {
    r->Refuse("--optimizer-offload-fraction",
              "a part of the optimizer in host memory is not modelled; all of it is");
  }
  const std::int64_t layers = r->Whole("--cpu-offloading-num-layers").value_or(0);
  const std::vector<std::string> modules = r->Texts("--offload-modules");
  const bool by_module = r->On("--fine-grained-activation-offloading") && !modules.empty();
  if (layers > 0) draft.Set("training.offload_layers", layers);
  if (by_module) {
    draft.Set("training.offload_modules", fmt::format("{}", fmt::join(modules, "+")));
  }
  const bool activations = layers > 0 || by_module;
  if (cpu || activations) {
    draft.Set("training.offload", std::string(cpu && activations ? "all"
                                              : cpu              ? "optimizer"
                                                                 : "activations"));
  }
  const std::string clip = r->Text("--clip-grad");
  if (r->Has("--clip-grad") && r->Real("--clip-grad", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
}

// Megatron Core's own layers: PyTorch's products and norms, unfused attention whose scores lie in a
// buffer that stays, or flash-attn with --use-flash-attn (core/models/gpt/gpt_layer_specs.py,
// core/transformer/dot_product_attention.py).
void ReadTransformerImpl(Reading* r) {
  constexpr std::string_view kArgument = "--transformer-impl";
  const Given* given = r->Find(kArgument);
  if (given == nullptr || given->row->effect != Effect::kRule) return;  // a fork has its own
  const std::string kind = Lower(r->Text(kArgument));
  if (kind.empty() || kind == "transformer_engine" || kind == "inference_optimized") return;
  if (kind != "local") {
    return r->Refuse(
        kArgument,
        fmt::format("'{}' is not modelled; transformer_engine and local are", Printable(kind, 40)));
  }
  Draft& draft = r->draft();
  const bool low = draft.Text("training.precision") != "bf16" &&
                   draft.Text("training.precision") != "fp16" &&
                   draft.Text("training.precision") != "fp32";
  if (low) r->Refuse(kArgument, "Megatron's own layers have no products of 8 or 4 bits");
  if (draft.Whole("parallel.cp", 1) > 1) {
    r->Refuse(kArgument, "Megatron's own layers have no context parallelism");
  }
  draft.Set("framework_options.transformer_engine", false);
  const bool flash = draft.Text("framework_options.attention") == "flash2";
  if (flash) return;
  draft.SetText("framework_options.attention", "unfused");
  draft.Set("framework_options.keeps_scores", true);
}

void ReadKernels(Reading* r, const Script* script) {
  Draft& draft = r->draft();
  std::string backend = r->Text("--attention-backend");
  if (const std::size_t dot = backend.find('.'); dot != std::string::npos)
    backend.erase(0, dot + 1);
  const bool flash = r->On("--use-flash-attn");
  const auto variable = [&](const char* name) {
    if (script == nullptr) return std::string();
    const auto found = script->exported.find(name);
    return found == script->exported.end() ? std::string() : found->second.text;
  };
  if (backend == "auto" || backend.empty()) {
    if (variable("NVTE_FUSED_ATTN") == "0" && variable("NVTE_FLASH_ATTN") != "0") backend = "flash";
    if (variable("NVTE_FLASH_ATTN") == "0" && variable("NVTE_FUSED_ATTN") != "0") backend = "fused";
  }
  if (backend == "flash" || (backend.empty() && flash)) {
    draft.Set("framework_options.attention", std::string("flash2"));
  } else if (backend == "fused") {
    draft.Set("framework_options.attention", std::string("cudnn"));
  } else if (backend == "unfused" || backend == "local") {
    draft.Set("framework_options.attention", std::string("unfused"));
  }
  const bool loss = r->On("--cross-entropy-loss-fusion");
  const bool te = r->Text("--cross-entropy-fusion-impl") == "te";
  if (loss) {
    draft.Set(
        te ? "framework_options.online_cross_entropy" : "framework_options.fused_cross_entropy",
        true);
  }
  const bool deferred = r->On("--defer-embedding-wgrad-compute");
  const std::int64_t limit = r->Whole("--wgrad-deferral-limit").value_or(0);
  if (deferred) draft.Set("framework_options.deferred_head", limit > 0 ? limit : 1 << 20);
  const std::vector<std::string> exchange = r->Texts("--cp-comm-type");
  if (draft.Whole("parallel.cp", 1) > 1 && !exchange.empty()) {
    const std::string& type = exchange.front();
    if (exchange.size() > 1 || type == "a2a+p2p") {
      r->Refuse("--cp-comm-type",
                "one exchange for all layers is modelled: p2p, all_gather or a2a");
    } else {
      draft.SetText("framework_options.cp_exchange", type == "p2p"   ? "ring"
                                                     : type == "a2a" ? "all-to-all"
                                                                     : "all-gather");
    }
  }
}

void ReadGraphs(Reading* r) {
  Draft& draft = r->draft();
  std::string impl = r->Text("--cuda-graph-impl");
  if (r->On("--enable-cuda-graph")) impl = "local";
  if (r->On("--external-cuda-graph")) impl = "transformer_engine";
  std::vector<std::string> scope = r->Texts("--cuda-graph-modules");
  if (scope.empty()) scope = r->Texts("--cuda-graph-scope");
  r->Find("--cuda-graph-scope");
  if (impl == "full_iteration") scope = {"full_iteration"};
  if (impl.empty() || impl == "none") return;
  if (scope.size() == 1 && scope[0] == "full_iteration") {
    draft.Set("framework_options.cuda_graphs", std::string("iteration"));
    return;
  }
  draft.Set("framework_options.cuda_graphs", std::string("layers"));
  if (scope.empty() || scope[0] == "full") return;
  draft.Set("framework_options.cuda_graph_scope", fmt::format("{}", fmt::join(scope, "+")));
}

// What only the training script's name says.
void ReadProgram(const std::string& program, Reading* r) {
  if (program.find("bert") != std::string::npos) r->draft().Set("model.encoder", true);
  if (Contains(program, "_t5")) r->draft().Set("model.encoder_layers", std::int64_t{1});  // below
  for (const char* other : {"retro", "ict", "vision", "vlm", "mimo"}) {
    if (program.find(fmt::format("_{}", other)) == std::string::npos) continue;
    r->Problem(
        fmt::format("{}: {} trains a model that is not modelled here (valid: GPT, BERT, T5 and "
                    "hybrids with Mamba)",
                    r->file(), Printable(program, 60)));
  }
}

}  // namespace

bool ReadMomentTypes(std::string_view first, std::string_view second, Reading* r) {
  const auto type = [r](std::string_view argument) -> std::string {
    const std::string said = Lower(r->Text(argument));
    const std::string name = said.starts_with("torch.") ? said.substr(6) : said;
    return name.empty() || name == "float32" ? "fp32" : name == "bfloat16" ? "bf16" : name;
  };
  const std::string one = type(first), other = type(second);
  if (one == "fp32" && other == "fp32") return false;
  if (one == "bf16" && other == "bf16") {
    r->draft().SetText("training.optimizer_states", "bf16");
    return true;
  }
  r->Refuse(one == "fp32" ? second : first,
            fmt::format("moments in {} and {} are not modelled; both in fp32 or bf16 are",
                        Printable(one, 20), Printable(other, 20)));
  return false;
}

const Table& MegatronTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_megatron.inc"
  };
  static const Table table(kLines);
  return table;
}

void AddMegatronLeaves(const formats::Document& document, const formats::Node& root,
                       const Table* own, Reading* r) {
  const Table& table = MegatronTable();
  for (const Leaf& leaf : Leaves(root)) {
    const Row* ours = own == nullptr ? nullptr : own->Find(leaf.path);
    if (ours != nullptr && AddLeaf(document, leaf, ours, r)) continue;
    const std::string name = leaf.path.substr(leaf.path.rfind('.') + 1);
    std::string argument = name;  // as on the command line, with underscores in some files
    std::ranges::replace(argument, '_', '-');
    if (!argument.starts_with("--")) argument.insert(0, "--");
    const Row* row = table.Find(name);
    if (row == nullptr) row = table.FindField(name);
    if (row == nullptr && (row = table.Find(argument)) != nullptr) {
      if (AddLeaf(document, {argument, leaf.node}, row, r)) continue;
    }
    if (AddLeaf(document, leaf, row, r)) continue;
    Tables tables = {&table};
    if (own != nullptr) tables.insert(tables.begin(), own);
    r->AddUnknown(name, document.Where(*leaf.node), tables);
  }
}

void ReadMegatronRules(Reading* r, const Launch& launch, const Script* script,
                       const std::string& hub) {
  Draft& draft = r->draft();
  draft.SetText("framework", "megatron");
  const bool named = !r->options().model.empty() || !hub.empty();
  Draft known;
  // Modules that predict further tokens are the training's choice, whatever the model has.
  std::int64_t further = draft.Whole("model.mtp_layers", -1);
  const bool repeats = draft.Has("model.mtp_repeats");
  std::int64_t own = 0;  // what the model has
  const auto keep_further = [&] {
    if (further >= 0 && further != own) draft.Set("model.mtp_layers", further);
    if (further > 0 && repeats) draft.Set("model.mtp_repeats", true);
  };
  if (named) {  // its shapes are not the recipe's to say, and rules below ask for some
    draft.Replace("model", known);
    ReadModel("hub", "", hub, "--model", r);
    known = draft.Only("model");
    if (const auto model = r->Model()) {
      draft.Set("model.layers", model->layers);
      if (model->experts.count > 0) draft.Set("model.experts", model->experts.count);
      own = model->mtp_layers;
    }
    keep_further();
  }
  ReadMegatronModel(named, r);
  ReadMegatronStages(r);
  ReadMegatronPrecision(r);
  ReadRecompute(r);
  ReadMegatronSharding(r);
  ReadKernels(r, script);
  ReadTransformerImpl(r);
  ReadGraphs(r);
  r->SetSize(launch);
  const auto batch = r->Whole("--global-batch-size");
  if (const auto instances = r->Whole("--num-distributed-optimizer-instances");
      instances && *instances > 1) {
    const std::int64_t replicas = draft.Whole("parallel.dp", 0) * draft.Whole("parallel.cp", 1);
    if (replicas > 0 && replicas % *instances == 0) {
      draft.Set("parallel.shard_group", replicas / *instances);
      r->SayNodes(0);
    } else {
      r->Refuse("--num-distributed-optimizer-instances",
                fmt::format("{} replicas are not split into {} instances", replicas, *instances));
    }
  }
  if (batch) {
    draft.Set("training.global_batch", *batch);
  } else if (draft.Has("parallel.dp")) {
    draft.Set("training.global_batch",
              draft.Whole("training.micro_batch", 1) * draft.Whole("parallel.dp", 1));
    draft.Assume("training.global_batch: one micro-batch a replica, Megatron's default");
  }
  if (!r->IsSet("training.sample_read")) draft.Drop("training.data_workers");
  constexpr std::pair<const char*, const char*> kNeeded[] = {
      {"model.layers", "--num-layers"},
      {"model.hidden", "--hidden-size"},
      {"model.heads", "--num-attention-heads"},
      {"training.seq_len", "--seq-length"},
      {"training.micro_batch", "--micro-batch-size"}};
  if (named) {
    further = draft.Whole("model.mtp_layers", further);
    draft.Replace("model", known);
    keep_further();
  }
  for (const auto& [key, argument] : kNeeded) {
    if (named && std::string_view(key).starts_with("model.")) continue;
    if (!draft.Has(key) && !r->Has(argument) && !r->IsSet(key))
      r->Missing(fmt::format("{} ({}): give --set {}=N", argument, key, key));
  }
}

bool IsMegatron(std::string_view text, const std::string& path) {
  if (path.ends_with(".json") || path.ends_with(".toml")) return false;
  int known = 0;
  for (const std::string_view sign :
       {"num-layers", "hidden-size", "num-attention-heads", "tensor-model-parallel-size",
        "micro-batch-size", "seq-length"}) {
    std::string field(sign);
    std::ranges::replace(field, '-', '_');
    known += text.find("--" + std::string(sign)) != std::string_view::npos ? 1 : 0;
    known += text.find("\n" + field + ":") != std::string_view::npos ||
                     text.find("  " + field + ":") != std::string_view::npos
                 ? 1
                 : 0;
  }
  return known >= 3;
}

Result<Imported> ReadMegatronScript(const std::vector<File>& files, const Options& options,
                                    const MegatronFork& fork) {
  if (fork.add_files == nullptr && files.size() > 1) {
    return InvalidInput("a launch script's arguments are one file; {} and {} are given",
                        files[0].path, files[1].path);
  }
  const File& file = files.front();
  Tables tables = fork.tables;
  if (fork.add_files != nullptr) tables.push_back(&DeepSpeedTable());
  Reading reading(tables, options, file.path);
  ORRERY_ASSIGN_OR_RETURN(const Script script, ReadScript(file.text, file.path, options.variables));
  ORRERY_ASSIGN_OR_RETURN(const CommandLine line, FindTraining(script, fork.tables, file.path));
  AddWords(line.words, fork.tables, &reading);
  if (fork.add_files != nullptr) {
    ORRERY_RETURN_IF_ERROR(fork.add_files(script, std::span(files).subspan(1), &reading));
  }
  Launch launch = line.launch;
  if (fork.defaults != nullptr) fork.defaults(script, &launch, &reading);
  reading.Translate();
  for (const std::string& note : script.notes) {
    reading.draft().Assume(fmt::format("{} {}", file.path, note));
  }
  ReadProgram(line.program, &reading);
  if (fork.before != nullptr) fork.before(&reading);
  const std::string hub = fork.model.empty() ? "" : reading.TextIfKnown(fork.model);
  ReadMegatronRules(&reading, launch, &script, hub);
  if (fork.after != nullptr) fork.after(&reading);
  return reading.Finish(std::string(fork.name));
}

Result<Imported> ReadMegatron(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return InvalidInput("Megatron's arguments are one file; {} and {} are given", files[0].path,
                        files[1].path);
  }
  const File& file = files.front();
  const bool yaml = IsYaml(file.path);
  if (!yaml) {
    return ReadMegatronScript(files, options, {.name = "megatron", .tables = {&MegatronTable()}});
  }
  Reading reading({&MegatronTable()}, options, file.path);
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document,
                          formats::ParseYaml(file.text, file.path));
  const formats::Node* arguments =
      document.root.Find("MODEL_ARGS");  // names as on the command line
  AddMegatronLeaves(document, arguments != nullptr ? *arguments : document.root, nullptr, &reading);
  reading.Translate();
  ReadMegatronRules(&reading, {}, nullptr);
  return reading.Finish("megatron");
}

}  // namespace orrery::recipes
