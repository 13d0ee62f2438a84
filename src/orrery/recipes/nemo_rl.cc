// NeMo-RL: what trains in it. Of reinforcement learning one update of the policy is a step here,
// and the job says what is left out; fine-tuning is whole. Its policy is Automodel's (dtensor_cfg)
// or Megatron's (megatron_cfg), with their rules; names of its own stand in
// data/recipes/nemo_rl.csv. Source of defaults and meaning: NVIDIA-NeMo/RL,
// nemo_rl/utils/config.py, nemo_rl/algorithms/{grpo,sft,dpo}.py,
// nemo_rl/models/{automodel,megatron}/setup.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/formats/rows.h"
#include "orrery/recipes/bridge_runtime.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"

namespace orrery::recipes {
namespace {

using formats::Document;
using formats::Field;
using formats::Node;

constexpr std::string_view kOnFsdp = "policy.dtensor_cfg.";
constexpr std::string_view kOnMegatron = "policy.megatron_cfg.";
constexpr std::string_view kOffTeachers = "on_policy_distillation.non_colocated_teachers.";

// A file and, below it, what its `defaults` name, in their order (load_config_with_inheritance).
class Inherited {
 public:
  Document document;
  std::vector<std::string> missing;

  Status Take(const File& file, int depth) {
    if (depth > kMostDepth || ++taken_ > kMostFiles) {
      return InvalidInput("'{}': of a recipe's files at most {} inherit in turn and {} in all",
                          Printable(file.path), kMostDepth, kMostFiles);
    }
    ORRERY_ASSIGN_OR_RETURN(Document read, ParseConfiguration(file));
    if (const Node* defaults = read.root.Find("defaults")) {
      std::vector<std::string> names;
      if (defaults->kind == Node::Kind::kScalar) names.push_back(defaults->text);
      for (const Node& item : defaults->items) names.push_back(item.text);
      for (const std::string& name : names) {
        const auto folder = std::filesystem::path(file.path).parent_path();
        const std::string path = (folder / name).lexically_normal().string();
        ORRERY_ASSIGN_OR_RETURN(const std::optional<File> base, OpenNamed(path, file.path));
        if (base) {
          ORRERY_RETURN_IF_ERROR(Take(*base, depth + 1));
        } else {
          missing.push_back(name);
        }
      }
      std::erase_if(read.root.fields, [](const Field& field) { return field.key == "defaults"; });
    }
    Lay(std::move(read));
    return {};
  }

 private:
  static constexpr int kMostDepth = 8, kMostFiles = 32;

  void Lay(Document read) {
    Node& root = read.root;
    if (root.kind != Node::Kind::kMap) return;
    for (Field& field : root.fields) {
      const Node* marker = field.value.Find("_override_");
      if (marker == nullptr) continue;
      std::erase_if(document.root.fields,
                    [&](const Field& under) { return under.key == field.key; });
      std::erase_if(field.value.fields, [](const Field& f) { return f.key == "_override_"; });
    }
    document.TakeSources(read.sources, &root);
    if (document.root.kind != Node::Kind::kMap) document.root.kind = Node::Kind::kMap;
    formats::Overlay(root, &document.root);
  }

  int taken_ = 0;
};

// "policy.megatron_cfg".
bool IsOnAt(const Document& document, std::string_view section) {
  const Node* enabled = document.root.At(fmt::format("{}.enabled", section));
  return enabled != nullptr && Lower(enabled->text) == "true";
}

struct PolicyStep {
  std::int64_t sequences = 0, micro = 1, length = 0;
};

PolicyStep ReadPolicyStep(const Document& document, Reading* r) {
  PolicyStep step;
  const auto all = r->Whole("policy.train_global_batch_size");
  const auto micro = r->Whole("policy.train_micro_batch_size");
  const auto length = r->Whole("policy.max_total_sequence_length");
  const auto prompts = r->Whole("grpo.num_prompts_per_step");
  const auto answers = r->Whole("grpo.num_generations_per_prompt");
  if (!all) r->Missing("policy.train_global_batch_size: give --set training.global_batch=N");
  if (!length) r->Missing("policy.max_total_sequence_length: give --set training.seq_len=N");
  // A pair of answers is two sequences of one micro-batch (dpo.py, rm.py).
  const bool pairs = document.root.Find("dpo") != nullptr;
  step.sequences = Product({all.value_or(1), pairs ? 2 : 1});
  step.micro = Product({std::max<std::int64_t>(1, micro.value_or(1)), pairs ? 2 : 1});
  step.length = length.value_or(1);
  for (const std::string_view way : {"policy.sequence_packing", "policy.dynamic_batching"}) {
    const bool fills = r->On(fmt::format("{}.enabled", way));
    const auto tokens = r->Whole(fmt::format("{}.train_mb_tokens", way));
    if (fills && tokens && step.length > 0) {
      step.micro = std::max<std::int64_t>(1, *tokens / step.length);
    }
  }
  r->draft().Assume(fmt::format(
      "sequences are as long as policy.max_total_sequence_length lets them be, {} tokens",
      step.length));
  if (prompts || answers) {
    const std::int64_t made = Product({prompts.value_or(1), answers.value_or(1)});
    r->draft().Assume(fmt::format(
        "a step is one update of the policy, {} sequences: generation, the log probabilities of "
        "the old policy and of the reference and rewards are not simulated; an iteration has {} "
        "such updates",
        step.sequences,
        std::max<std::int64_t>(1, made / std::max<std::int64_t>(1, step.sequences))));
  } else if (pairs) {
    r->draft().Assume("the reference's log probabilities are not simulated");
  }
  return step;
}

// Hosts that train: the cluster's without those that only generate. {}: asked for.
Launch ReadPolicyLaunch(Reading* r) {
  Launch launch;
  launch.nodes = r->Whole("cluster.num_nodes").value_or(1);
  launch.gpus_per_node = r->Whole("cluster.gpus_per_node").value_or(0);
  const auto nodes = r->Whole("policy.generation.colocated.resources.num_nodes");
  const auto gpus = r->Whole("policy.generation.colocated.resources.gpus_per_node");
  const bool apart = r->Has("policy.generation.colocated.enabled") &&
                     !r->On("policy.generation.colocated.enabled");
  const bool rewards = r->On("env.reward_model.enabled");
  const bool teachers = r->On(fmt::format("{}enabled", kOffTeachers));
  r->Whole(fmt::format("{}default_teacher_cfg.num_nodes", kOffTeachers));
  const std::int64_t judges = r->Whole("env.nemo_gym.num_gpu_nodes").value_or(0);
  if (rewards || teachers) return {};
  launch.nodes -= judges;
  if (apart && launch.nodes == 1) {
    launch.gpus_per_node -= gpus.value_or(0);
  } else if (apart) {
    launch.nodes -= nodes.value_or(0);
  }
  if (launch.nodes < 1 || launch.gpus_per_node < 1) return {};
  if (apart || judges > 0) {
    r->draft().Assume(
        fmt::format("{} hosts of {} GPUs train: the cluster's without those that generate or judge",
                    launch.nodes, launch.gpus_per_node));
  }
  return launch;
}

void SetPolicyBatch(const PolicyStep& step, Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  draft.Set("training.seq_len", step.length);
  draft.Drop("training.global_batch");
  if (dp < 1) return;
  if (step.sequences % dp != 0) {
    return r->Problem(fmt::format(
        "{}: an update's {} sequences (policy.train_global_batch_size) are not shared out evenly "
        "to {} replicas; give another --gpus",
        r->Where("policy.train_global_batch_size"), step.sequences, dp));
  }
  std::int64_t micro = std::min(step.micro, step.sequences / dp);
  while (micro > 1 && step.sequences / dp % micro != 0) --micro;
  draft.Set("training.global_batch", step.sequences);
  draft.Set("training.micro_batch", micro);
}

void CheckPrecision(Reading* r) {
  const std::string type = r->Text("policy.precision");
  if (!type.empty() && type != "bfloat16") {
    r->Refuse("policy.precision",
              fmt::format("'{}' is not modelled here; bfloat16 is", Printable(type, 20)));
  }
}

void CheckExcluded(std::string_view argument, Reading* r) {
  if (!r->Texts(argument).empty()) {
    r->Refuse(argument, "modules left out by patterns are not modelled");
  }
}

void ReadOnFsdp(const Configuration& taken, const Document& document, Reading* r) {
  const Launch launch = ReadPolicyLaunch(r);
  const PolicyStep step = ReadPolicyStep(document, r);
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    r->AddAs(argument, std::string(name), std::move(value), r->Where(name));
  };
  if (launch.nodes > 0) {
    add("benchmark.num_nodes", "cluster.num_nodes", std::to_string(launch.nodes));
    add("ci.nproc_per_node", "cluster.gpus_per_node", std::to_string(launch.gpus_per_node));
  }
  add("dataset.seq_len", "policy.max_total_sequence_length", std::to_string(step.length));
  add("step_scheduler.local_batch_size", "policy.train_micro_batch_size",
      std::to_string(step.micro));
  add("model.torch_dtype", "policy.precision", "float32");  // what is trained is kept so
  if (r->On("policy.dtensor_cfg.automodel_kwargs.backend.enable_deepep")) {
    add("model.backend.dispatcher", "policy.dtensor_cfg.automodel_kwargs.backend.enable_deepep",
        "deepep");
  }
  if (r->On("policy.sequence_packing.enabled") && !r->Has("model.attn_implementation") &&
      !r->Has("model.backend.attn")) {
    add("model.attn_implementation", "policy.sequence_packing.enabled", "flash_attention_2");
  }
  const std::string name = r->TextIfKnown("policy.model_name");
  const bool offload = r->On("policy.dtensor_cfg.cpu_offload");
  ReadAutomodelRules(taken.model, name, "policy.model_name", r);
  r->draft().Set("framework_options.grad_reduce_fp32", true);
  // Its own loop (automodel_forward_backward) never leaves a reduction out.
  r->draft().Set("framework_options.defer_grad_reduce", false);
  if (offload) r->draft().SetText("training.offload", "parameters");
  SetPolicyBatch(step, r);
}

void ReadOnMegatron(const Configuration& taken, const Document& document, Reading* r) {
  Draft& draft = r->draft();
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    r->AddAs(argument, std::string(name), std::move(value), r->Where(name));
  };
  const std::string part(kOnMegatron);
  const std::string deep = part + "recompute_granularity", modules = part + "recompute_modules";
  const std::vector<std::string> again = r->Texts(modules);
  const std::string granularity = r->Text(deep);
  if (r->On(part + "activation_checkpointing")) {
    add("--recompute-granularity", part + "activation_checkpointing", granularity);
    if (granularity == "full") {
      add("--recompute-method", deep, "uniform");
      add("--recompute-num-layers", deep, "1");
    }
  }
  const std::string format = r->Text(part + "fp8_cfg.fp8"),
                    recipe = r->Text(part + "fp8_cfg.fp8_recipe");
  const bool gathers = r->On(part + "fp8_cfg.fp8_param");
  if (r->On(part + "fp8_cfg.enabled")) {
    add("--fp8-format", part + "fp8_cfg.fp8", format);
    add("--fp8-recipe", part + "fp8_cfg.fp8_recipe", recipe);
    add("--fp8-param-gather", part + "fp8_cfg.fp8_param", gathers ? "true" : "false");
  }
  if (!r->Has("--bf16")) add("--bf16", "policy.precision", "true");
  const Launch launch = ReadPolicyLaunch(r);
  const PolicyStep step = ReadPolicyStep(document, r);
  add("--seq-length", "policy.max_total_sequence_length", std::to_string(step.length));
  add("--micro-batch-size", "policy.train_micro_batch_size", std::to_string(step.micro));
  add("--global-batch-size", "policy.train_global_batch_size", std::to_string(step.sequences));
  r->Translate();
  if (granularity == "selective" && !again.empty() && r->On(part + "activation_checkpointing")) {
    draft.SetText("training.recompute_modules", fmt::format("{}", fmt::join(again, "+")));
  }
  const std::string name = r->TextIfKnown("policy.model_name");
  if (name.empty() && r->options().model.empty()) {
    ReadModel("hub", taken.model, name, "policy.model_name", r);
  }
  ReadMegatronRules(r, launch, nullptr, name.empty() ? "model" : name);
  draft.SetText("framework", "megatron-bridge");
  ApplyBridgeSwitches(r);
  draft.Set("framework_options.tp_comm_overlap", false);
  if (const auto model = r->Model(); model && model->experts.count == 0) {
    // Every file says these, of experts that its model has not.
    for (const char* key :
         {"parallel.ep", "parallel.etp", "training.moe_dispatcher", "training.moe_shared_overlap",
          "training.moe_routing", "framework_options.moe_fused_permute",
          "framework_options.moe_fused_router"}) {
      draft.Drop(key);
    }
  }
  if (draft.Whole("parallel.tp", 1) == 1) draft.Drop("parallel.sequence_parallel");
  SetPolicyBatch(step, r);
}

// The leaves of the back end that trains, and of everything but back ends.
void AddPolicyLeaves(const Document& document, bool megatron, Reading* r) {
  const Table& table = NemoRlTable();
  const bool no_lora = !IsOnAt(document, "policy.dtensor_cfg.lora_cfg"),
             no_peft = !IsOnAt(document, "policy.megatron_cfg.peft");
  for (const Leaf& leaf : Leaves(document.root)) {
    const std::string_view path = leaf.path;
    if (path.starts_with(megatron ? kOnFsdp : kOnMegatron)) continue;
    if (megatron &&
        (path.starts_with("policy.optimizer") || path.starts_with("policy.scheduler"))) {
      continue;
    }
    if (no_lora && path.starts_with("policy.dtensor_cfg.lora_cfg.")) continue;
    if (no_peft && path.starts_with("policy.megatron_cfg.peft.")) continue;
    const Row* row = table.Find(path);
    if (row == nullptr && megatron && path.starts_with(kOnMegatron)) {
      row = MegatronTable().FindField(path.substr(path.rfind('.') + 1));
    }
    if (!AddLeaf(document, leaf, row, r)) {
      r->AddUnknown(leaf.path, document.Where(*leaf.node), {&table});
    }
  }
  if (!no_lora && !megatron) {
    CheckExcluded("policy.dtensor_cfg.lora_cfg.exclude_modules", r);
  }
  if (!no_peft && megatron) {
    r->AddAs("peft._target_", "policy.megatron_cfg.peft.enabled", "lora", r->file());
    CheckExcluded("policy.megatron_cfg.peft.exclude_modules", r);
  }
}

}  // namespace

const Table& NemoRlTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_nemo_rl.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsNemoRl(std::string_view text, const std::string& path) {
  if (!IsYaml(path)) return false;
  const bool algorithm = HasKey(text, "grpo") || HasKey(text, "sft") || HasKey(text, "dpo");
  const bool inherits = HasKey(text, "defaults") && HasKey(text, "cluster");
  return HasKey(text, "policy") ? algorithm || HasKey(text, "defaults") || HasKey(text, "loss_fn")
                                : inherits && Contains(text, "num_nodes:");
}

Result<Imported> ReadNemoRl(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "NeMo-RL"));
  Inherited inherited;
  ORRERY_RETURN_IF_ERROR(inherited.Take(taken.file, 0));
  Document& document = inherited.document;
  ResolveExpressions(&document);
  const bool megatron = IsOnAt(document, "policy.megatron_cfg");
  const Tables tables = megatron ? Tables{&NemoRlTable(), &NemoTable(), &MegatronTable()}
                                 : Tables{&NemoRlTable(), &AutomodelTable()};
  Reading reading(tables, options, taken.file.path);
  for (const std::string& name : inherited.missing) {
    reading.Missing(
        fmt::format("what '{}' holds (defaults): run where it can be read", Printable(name, 120)));
  }
  AddPolicyLeaves(document, megatron, &reading);
  CheckPrecision(&reading);
  if (megatron) {
    ReadOnMegatron(taken, document, &reading);
    ReadBridgeAdapters(&reading);
  } else {
    ReadOnFsdp(taken, document, &reading);
  }
  return reading.Finish("nemo-rl");
}

}  // namespace orrery::recipes
