// verl: what trains in it. Of reinforcement learning one update of the actor is a step here, and
// the job says what is left out; supervised fine-tuning is whole. What one key says alone stands in
// data/recipes/verl.csv. Source of defaults and meaning: volcengine/verl, verl/trainer/config
// (ppo_trainer.yaml, ppo_megatron_trainer.yaml, actor/*.yaml, engine/*.yaml, sft_trainer.yaml),
// verl/workers.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/adapters.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"

namespace orrery::recipes {
namespace {

constexpr std::string_view kActor = "actor_rollout_ref.actor.";

std::string OfActor(std::string_view name) { return std::string(kActor) + std::string(name); }

struct VerlStep {
  std::int64_t sequences = 0;  // of an update
  std::int64_t micro = 1, length = 0;
};

// Sequences of a micro-batch: said, or as many of the longest as the bound of tokens holds.
std::int64_t VerlMicro(std::int64_t length, std::int64_t ranks, Reading* r) {
  const bool fills = r->On(OfActor("use_dynamic_bsz"));
  const auto tokens = r->Whole(OfActor("ppo_max_token_len_per_gpu"));
  const auto each = r->Whole(OfActor("ppo_micro_batch_size_per_gpu"));
  const auto all = r->Whole(OfActor("ppo_micro_batch_size"));
  if (fills && length > 0) {
    const std::int64_t micro = std::max<std::int64_t>(1, tokens.value_or(16384) / length);
    r->draft().Assume(fmt::format(
        "training.micro_batch: {}, as many of the longest sequences as use_dynamic_bsz packs",
        micro));
    return micro;
  }
  if (each) return std::max<std::int64_t>(1, *each);
  if (all && ranks > 0) return std::max<std::int64_t>(1, *all / ranks);
  r->Missing(fmt::format("how large a micro-batch is ({}): give --set training.micro_batch=N",
                         OfActor("ppo_micro_batch_size_per_gpu")));
  return 1;
}

VerlStep ReadPpoStep(std::int64_t ranks, Reading* r) {
  VerlStep step;
  const std::int64_t prompt = r->Whole("data.max_prompt_length").value_or(512);
  const std::int64_t answer = r->Whole("data.max_response_length").value_or(512);
  const std::int64_t answers = r->Whole("actor_rollout_ref.rollout.n").value_or(1);
  const std::int64_t prompts = r->Whole(OfActor("ppo_mini_batch_size")).value_or(256);
  const std::int64_t batch = r->Whole("data.train_batch_size").value_or(1024);
  const std::int64_t epochs = r->Whole(OfActor("ppo_epochs")).value_or(1);
  step.length = prompt + answer;
  step.sequences = Product({std::min(prompts, batch), std::max<std::int64_t>(1, answers)});
  step.micro = VerlMicro(step.length, ranks, r);
  r->draft().Assume(fmt::format(
      "sequences are as long as data.max_prompt_length and max_response_length let them be, {} "
      "tokens",
      step.length));
  r->draft().Assume(fmt::format(
      "a step is one update of the actor, {} sequences: generation, the log probabilities of the "
      "old policy and of the reference, rewards and a critic are not simulated; an iteration has "
      "{} such updates",
      step.sequences,
      Product({epochs, std::max<std::int64_t>(1, batch / std::max<std::int64_t>(1, prompts))})));
  return step;
}

VerlStep ReadSftStep(Reading* r) {
  VerlStep step;
  step.length = r->Whole("data.max_length").value_or(1024);
  step.sequences = r->Whole("data.train_batch_size").value_or(256);
  const auto each = r->Whole("data.micro_batch_size_per_gpu"),
             old = r->Whole("data.micro_batch_size");
  step.micro = std::max<std::int64_t>(1, each ? *each : old.value_or(4));
  r->draft().Assume(
      fmt::format("sequences are as long as data.max_length lets them be, {} tokens", step.length));
  return step;
}

void ReadVerlFsdp(bool tuning, Reading* r) {
  Draft& draft = r->draft();
  const std::string prefix = tuning ? "model.fsdp_config." : OfActor("fsdp_config.");
  const std::string said = r->Text(tuning ? "model.strategy" : OfActor("strategy"));
  draft.SetText("framework", said == "fsdp2" ? "fsdp2" : "fsdp1");
  draft.SetText("training.precision", "bf16");
  draft.Set("framework_options.grad_reduce_fp32", true);
  const Given* reshard = r->Find(prefix + "reshard_after_forward");
  draft.SetText("training.sharding", reshard == nullptr || reshard->on ? "zero3" : "zero2");
  const std::int64_t dp = draft.Whole("parallel.dp", 0), cp = draft.Whole("parallel.cp", 1);
  const std::int64_t group = r->Whole(prefix + "fsdp_size").value_or(-1);
  if (group > 1 && group < dp * cp) draft.Set("parallel.shard_group", group);
  if (dp * cp == 1) draft.SetText("training.sharding", "none");
  if (r->On(prefix + "offload_policy")) draft.SetText("training.offload", "parameters");
  const std::string_view again = tuning ? "model.enable_gradient_checkpointing"
                                        : "actor_rollout_ref.model.enable_gradient_checkpointing";
  draft.SetText("training.recompute", r->Has(again) && !r->On(again) ? "none" : "full");
  const bool liger = r->On(tuning ? "model.use_liger" : "actor_rollout_ref.model.use_liger");
  draft.SetText("framework_options.torch_layers", liger ? "fused" : "eager");
  if (!liger) draft.Set("framework_options.transformers_modules", true);
  draft.SetText("framework_options.attention", "flash2");
  draft.Set("framework_options.repeats_kv", false);
  const std::string_view kernels = "actor_rollout_ref.model.use_fused_kernels";
  if (!tuning && r->On(kernels)) draft.Set("framework_options.chunked_loss", true);
  draft.SetText("training.optimizer", "adamw");
  draft.Set("framework_options.fused_adam", false);
  const std::string_view rank = tuning ? "model.lora_rank" : "actor_rollout_ref.model.lora_rank";
  const std::string_view where =
      tuning ? "model.target_modules" : "actor_rollout_ref.model.target_modules";
  if (const auto size = r->Whole(rank); size && *size > 0) {
    std::vector<std::string> modules = r->Texts(where);
    if (modules.empty()) modules = {"all-linear"};
    draft.Set("training.lora_rank", *size);
    SetLoraTargets(modules, where, r, "modules");
  }
}

void SetVerlBatch(const VerlStep& step, Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  draft.Set("training.seq_len", step.length);
  if (dp < 1) return;
  if (step.sequences % dp != 0) {
    return r->Problem(
        fmt::format("{}: an update's {} sequences are not shared out evenly to {} replicas; give "
                    "another --gpus",
                    r->file(), step.sequences, dp));
  }
  std::int64_t micro = std::min(step.micro, step.sequences / dp);
  while (micro > 1 && step.sequences / dp % micro != 0) --micro;
  draft.Set("training.global_batch", step.sequences);
  draft.Set("training.micro_batch", micro);
}

// Megatron's arguments among the actor's.
void AddVerlMegatron(const formats::Document& document, const Leaf& leaf, Reading* r) {
  const std::string last = leaf.path.substr(leaf.path.rfind('.') + 1);
  const Row* row = MegatronTable().FindField(last);
  const bool valued = leaf.node->kind == formats::Node::Kind::kScalar ||
                      leaf.node->kind == formats::Node::Kind::kList;
  if (row != nullptr && valued) AddLeaf(document, leaf, row, r);
}

}  // namespace

const Table& VerlTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_verl.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsVerl(std::string_view text, const std::string& path) {
  return IsYaml(path) && (HasKey(text, "actor_rollout_ref") || Contains(text, "partial_pretrain:"));
}

Result<Imported> ReadVerl(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "verl"));
  ORRERY_ASSIGN_OR_RETURN(formats::Document document, ParseConfiguration(taken.file));
  ResolveExpressions(&document);
  const Tables tables = {&VerlTable(), &MegatronTable()};
  Reading reading(tables, options, taken.file.path);
  const std::string megatron_part = OfActor("megatron.");
  bool megatron = Contains(taken.file.text, "megatron_trainer");
  const std::vector<Leaf> leaves = Leaves(document.root);
  for (const Leaf& leaf : leaves) {
    const std::string& text = leaf.node->text;
    if (leaf.path == OfActor("strategy") && !text.empty()) megatron = text == "megatron";
  }
  for (const Leaf& leaf : leaves) {
    if (megatron && leaf.path.starts_with(megatron_part)) {
      AddVerlMegatron(document, leaf, &reading);
    } else if (!AddLeaf(document, leaf, VerlTable().Find(leaf.path), &reading)) {
      reading.AddUnknown(leaf.path, document.Where(*leaf.node), {&VerlTable()});
    }
  }
  const bool tuning = document.root.Find("actor_rollout_ref") == nullptr;
  Draft& draft = reading.draft();
  const std::string_view argument =
      tuning ? "model.partial_pretrain" : "actor_rollout_ref.model.path";
  const std::string name = reading.TextIfKnown(argument);
  Launch launch;
  launch.gpus_per_node = reading.Whole("trainer.n_gpus_per_node").value_or(0);
  launch.nodes = reading.Whole("trainer.nnodes").value_or(launch.gpus_per_node > 0 ? 1 : 0);
  if (launch.gpus_per_node == 0) launch.nodes = 0;
  if (megatron) {
    reading.Translate();
    const VerlStep step = ReadPpoStep(0, &reading);
    reading.AddAs("--bf16", "dtype", "true", reading.file());
    reading.AddAs("--use-distributed-optimizer", "use_distributed_optimizer", "true",
                  reading.file());
    draft.Set("training.micro_batch", step.micro);
    draft.Set("training.seq_len", step.length);
    draft.Set("parallel.sequence_parallel", true);
    draft.Set("framework_options.attention", std::string("flash2"));
    reading.AddAs("--global-batch-size", "ppo_mini_batch_size", std::to_string(step.sequences),
                  reading.file());
    if (name.empty() && options.model.empty()) {
      ReadModel("hub", taken.model, name, argument, &reading);
    }
    ReadMegatronRules(&reading, launch, nullptr, name.empty() ? "model" : name);
    if (draft.Whole("parallel.tp", 1) == 1) draft.Drop("parallel.sequence_parallel");
    SetVerlBatch(step, &reading);
    return reading.Finish("verl");
  }
  ReadModel("hub", taken.model, name, argument, &reading);
  reading.Translate();
  const std::int64_t ulysses = reading
                                   .Whole(tuning ? "ulysses_sequence_parallel_size"
                                                 : OfActor("ulysses_sequence_parallel_size"))
                                   .value_or(1);
  if (ulysses > 1) {
    draft.Set("parallel.cp", ulysses);
    draft.SetText("framework_options.cp_exchange", "all-to-all");
  }
  reading.SetSize(launch);
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  const VerlStep step = tuning ? ReadSftStep(&reading) : ReadPpoStep(dp, &reading);
  ReadVerlFsdp(tuning, &reading);
  SetVerlBatch(step, &reading);
  return reading.Finish("verl");
}

}  // namespace orrery::recipes
