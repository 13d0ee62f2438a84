// NeMo's and Megatron Bridge's YAML: Megatron's arguments in sections, by the names that its
// classes give them. What differs from Megatron's own names stands in data/recipes/nemo.csv, with
// the argument that says the same; the rules are Megatron's. Source: NVIDIA-NeMo/Megatron-Bridge,
// src/megatron/bridge/training (config.py, mixed_precision.py, comm_overlap.py), peft/lora.py;
// NVIDIA/NeMo, examples/nlp/language_modeling/conf/megatron_gpt_config.yaml.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/adapters.h"
#include "orrery/recipes/bridge_runtime.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {
namespace {

using formats::Document;
using formats::Node;

// A name of NeMo's own or a section without effect, else one of Megatron's under any section. What
// the training data say counts (model.data.train_ds.micro_batch_size), not what an evaluation's do.
const Row* FindLeaf(const std::string& path) {
  const std::string last = path.substr(path.rfind('.') + 1);
  const bool object =
      last.starts_with('_') && path != "peft._target_" && path != "mixed_precision._target_";
  const Row* own = NemoTable().Find(object ? last : path);
  const bool data = path.starts_with("model.data.") && !Contains(path, "validation_ds") &&
                    !Contains(path, "test_ds");
  if (own != nullptr && (!own->many() || !data)) return own;
  const Row* field = MegatronTable().FindField(last);
  return field != nullptr ? field : own;
}

// A type of torch as an object, {_target_: torch.bfloat16, _call_: false}, is its name.
void NameTypes(Node* node) {
  for (Node& item : node->items) NameTypes(&item);
  for (formats::Field& field : node->fields) {
    Node& value = field.value;
    const Node* target = value.Find("_target_");
    if (target == nullptr || value.Find("_call_") == nullptr ||
        !target->text.starts_with("torch.")) {
      NameTypes(&value);
      continue;
    }
    const std::string name = target->text;
    value.kind = Node::Kind::kScalar;
    value.text = name;
    value.fields.clear();
  }
}

// "bf16-mixed", "16": Lightning's word, in NeMo 1.
void ReadLightningPrecision(Reading* r) {
  constexpr std::string_view kArgument = "trainer.precision";
  const std::string text = Lower(r->Text(kArgument));
  const bool bf16 = Contains(text, "bf16");
  if (!bf16 && !Contains(text, "16")) return;
  r->AddAs(bf16 ? "--bf16" : "--fp16", std::string(kArgument), "", r->Where(kArgument));
}

// A pipeline's layout as lists of names, a list a chunk, in Megatron's letters; false: it is none.
bool AddLayout(const Document& document, const Leaf& leaf, Reading* r) {
  constexpr std::string_view kArgument = "--pipeline-model-parallel-layout";
  if (leaf.path != "model.pipeline_model_parallel_layout") return false;
  if (leaf.node->kind != Node::Kind::kList) return false;
  std::string layout;
  for (const Node& chunk : leaf.node->items) {
    if (!layout.empty()) layout += '|';
    for (const Node& part : chunk.items) {
      layout += part.text == "embedding" ? 'E'
                : part.text == "decoder" ? 't'
                : part.text == "mtp"     ? 'm'
                : part.text == "loss"    ? 'L'
                                         : '?';
    }
  }
  r->AddAs(kArgument, leaf.path, layout, document.Where(*leaf.node));
  return true;
}

// What is one argument there and several of Megatron's, or the other way round.
void AddImplied(Reading* r) {
  ReadLightningPrecision(r);
  if (r->Has("--num-query-groups") && !r->Has("--group-query-attention")) {
    r->AddAs("--group-query-attention", "num_query_groups", "", r->Where("--num-query-groups"));
  }
  const std::string old = Lower(r->Text("model.activation"));
  const std::string function = Lower(r->Text("model.activation_func"));
  if (old.find("swiglu") != std::string::npos || old.find("geglu") != std::string::npos) {
    r->AddAs("--swiglu", "model.activation", "", r->Where("model.activation"));
  } else if (old.find("squared") != std::string::npos ||
             function.find("squared") != std::string::npos) {
    r->AddAs("--squared-relu", "model.activation", "", r->Where("model.activation"));
  }
  if (r->Has("model.bias") && !r->On("model.bias")) {
    r->AddAs("--disable-bias-linear", "model.bias", "", r->Where("model.bias"));
  }
  // NeMo's default number of layers counts only where offloading is on.
  if (r->Has("model.cpu_offloading") && !r->On("model.cpu_offloading")) {
    r->AddAs("--cpu-offloading-num-layers", "model.cpu_offloading", "0",
             r->Where("model.cpu_offloading"));
  }
  if (r->Text("model.optim.name").find("distributed") != std::string::npos) {
    r->AddAs("--use-distributed-optimizer", "model.optim.name", "", r->Where("model.optim.name"));
  }
}

// The simulated optimizer steps all chunks at once.
void ReadStepOverlap(Reading* r) {
  if (!r->On("comm_overlap.overlap_param_gather_with_optimizer_step")) return;
  r->draft().Assume(
      "overlap_param_gather_with_optimizer_step: parameters are gathered behind the whole "
      "optimizer step, not behind the first chunk's");
}

// NeMo 1's tokenizer as Megatron's arguments name it.
void AddTokenizer(Reading* r) {
  const std::string library = Lower(r->Text("model.tokenizer.library"));
  const std::string type = r->Text("model.tokenizer.type"),
                    model = r->Text("model.tokenizer.model");
  if (library == "megatron" && !type.empty()) {
    r->AddAs("--tokenizer-type", "model.tokenizer.type", type, r->Where("model.tokenizer.type"));
  } else if (library == "huggingface" && !type.empty()) {
    r->AddAs("--tokenizer-model", "model.tokenizer.type", type, r->Where("model.tokenizer.type"));
  } else if (!model.empty()) {
    r->AddAs("--tokenizer-model", "model.tokenizer.model", model,
             r->Where("model.tokenizer.model"));
  }
}

}  // namespace

void ReadBridgeAdapters(Reading* r) {
  const std::string kind = Lower(r->Text("peft._target_"));
  const std::string scheme = Lower(r->Text("model.peft.peft_scheme"));
  const bool old = !scheme.empty() && scheme != "none" && scheme != "null";
  const std::string_view said =
      old ? "model.peft.lora_tuning.target_modules" : "peft.target_modules";
  const auto rank = r->Whole(old ? "model.peft.lora_tuning.adapter_dim" : "peft.dim");
  const std::vector<std::string> names = r->Texts(said);
  if (old && scheme != "lora") {
    return r->Refuse("model.peft.peft_scheme",
                     fmt::format("'{}' is not modelled; lora and null are", Printable(scheme, 40)));
  }
  if (!old && kind.empty()) return;
  if (!old && (!Contains(kind, "lora") || Contains(kind, "canonical"))) {
    return r->Refuse("peft._target_", "modelled: LoRA");
  }
  std::vector<std::string> modules;
  for (const std::string& name : names) {
    const bool qkv = name == "linear_qkv" || name == "attention_qkv" || name == "attention";
    const bool projection =
        name == "linear_proj" || name == "attention_dense" || name == "attention";
    const bool fc1 = name == "linear_fc1" || name == "mlp_fc1" || name == "mlp";
    const bool fc2 = name == "linear_fc2" || name == "mlp_fc2" || name == "mlp";
    if (qkv) modules.emplace_back("qkv_proj");
    if (projection) modules.emplace_back("o_proj");
    if (fc1) modules.emplace_back("gate_up_proj");
    if (fc2) modules.emplace_back("down_proj");
    if (!qkv && !projection && !fc1 && !fc2) modules.push_back(name);
  }
  if (names.empty()) modules = {old ? "qkv_proj" : "all-linear"};
  r->draft().Set("training.lora_rank", rank.value_or(32));
  SetLoraTargets(modules, said, r, "shared");
}

const Table& NemoTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_nemo.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsNemo(std::string_view text, const std::string& path) {
  if (!IsYaml(path)) return false;
  const auto section = [&](std::string_view name) {
    const std::string line = fmt::format("{}:", name);
    return text.starts_with(line) || text.find("\n" + line) != std::string_view::npos;
  };
  const bool bridge = section("train") && (section("ddp") || section("scheduler"));
  return section("model") && (bridge || (section("trainer") && section("exp_manager")));
}

Result<Imported> ReadNemo(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return InvalidInput("NeMo's configuration is one YAML file; {} are given", files.size());
  }
  return ReadNemoFile(files.front(), options, {&NemoTable(), &MegatronTable()}, "nemo", {});
}

Result<Imported> ReadNemoFile(const File& file, const Options& options, const Tables& tables,
                              const std::string& dialect,
                              const std::function<void(Reading*)>& beside) {
  ORRERY_ASSIGN_OR_RETURN(Document document, ParseConfiguration(file));
  ResolveExpressions(&document);
  NameTypes(&document.root);
  Reading reading(tables, options, file.path);
  if (beside) beside(&reading);
  for (const Leaf& leaf : Leaves(document.root)) {
    if (AddLayout(document, leaf, &reading)) continue;
    const Row* row = FindLeaf(leaf.path);
    const bool same = row != nullptr && row->key.starts_with("--");
    if (same && leaf.node->kind != Node::Kind::kScalar) continue;
    if (!AddLeaf(document, leaf, row, &reading)) {
      reading.AddUnknown(leaf.path, document.Where(*leaf.node), {&NemoTable()});
    }
  }
  const bool lightning = document.root.Find("trainer") != nullptr;
  if (!lightning) ApplyBridgeRuntime(document, &reading);
  AddImplied(&reading);
  AddTokenizer(&reading);
  reading.Translate();
  Launch launch;
  if (reading.Has("trainer.num_nodes"))
    launch.nodes = reading.Whole("trainer.num_nodes").value_or(0);
  if (reading.Has("trainer.devices")) {
    launch.gpus_per_node = reading.Whole("trainer.devices").value_or(0);
  }
  // A recipe of Megatron Bridge takes its shapes from a model of the hub.
  const std::string hub = reading.Has("--num-layers") || reading.Has("--hidden-size")
                              ? ""
                              : reading.TextIfKnown("model.hf_model_id");
  ReadMegatronRules(&reading, launch, nullptr, hub);
  // Falcon's newer layers have a norm each for attention and feed-forward.
  const bool newer = reading.On("model.mcore_customization_config.new_decoder_architecture");
  if (reading.On("model.mcore_customization_config.parallel_attention") && !newer) {
    reading.draft().Set("model.shared_norm", true);
  }
  reading.draft().SetText("framework", lightning ? "nemo" : "megatron-bridge");
  if (!lightning) ApplyBridgeSwitches(&reading);
  ReadBridgeAdapters(&reading);
  ReadStepOverlap(&reading);
  return reading.Finish(dialect);
}

}  // namespace orrery::recipes
