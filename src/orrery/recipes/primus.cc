// AMD's Primus: a YAML whose modules name a back end (Megatron, torchtitan or MaxText), a file of
// defaults, a file of the model and what is laid over both. What is none of theirs stands in
// data/recipes/primus.csv. Source: AMD-AGI/Primus, primus/core/config (merge and
// extends), primus/configs, primus/backends.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "orrery/base/text.h"
#include "orrery/formats/rows.h"
#include "orrery/recipes/bridge_recipes.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

using formats::Document;
using formats::Field;
using formats::Node;

constexpr int kMostDepth = 8;         // of files that extend files
constexpr int kMostRecipeFiles = 64;  // of one recipe

// The text behind ${NAME:default}, by what the user says of NAME; one that has no default stays.
std::string FromEnvironment(std::string text, const Options& options) {
  for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at)) {
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) break;
    const std::string inside = text.substr(at + 2, end - at - 2);
    const std::size_t colon = inside.find(':');
    const auto said = options.variables.find(inside.substr(0, colon));
    if (said == options.variables.end() && colon == std::string::npos) {
      at = end;
      continue;
    }
    const std::string value =
        said != options.variables.end() ? said->second : inside.substr(colon + 1);
    text.replace(at, end + 1 - at, value);
    at += value.size();
  }
  return text;
}

void Expand(const Options& options, Node* node) {
  if (node->kind == Node::Kind::kScalar && Contains(node->text, "${")) {
    node->text = FromEnvironment(node->text, options);
    if (node->text == "null" || node->text.empty()) node->kind = Node::Kind::kNull;
  }
  for (Field& field : node->fields) Expand(options, &field.value);
  for (Node& item : node->items) Expand(options, &item);
}

class Merged {
 public:
  Merged(const std::vector<File>& files, const Options& options)
      : files_(files), options_(options) {}

  Document document;
  std::vector<std::string> missing;

  // A file of Primus under `folder`, with what it extends, over what is there already.
  Status Take(const std::string& folder, const std::string& name, int depth = 0) {
    if (depth > kMostDepth || ++taken_ > kMostRecipeFiles) {
      return InvalidInput(
          "'{}': of a recipe's files at most {} extend each other in turn and {} in all",
          Printable(name), kMostDepth, kMostRecipeFiles);
    }
    std::optional<File> file;
    const std::string base = name.substr(name.rfind('/') + 1);
    for (const File& given : files_) {
      if (given.path.substr(given.path.rfind('/') + 1) == base && &given != &files_.front()) {
        file = given;
      }
    }
    const std::string path = folder + "/" + name;
    if (!file) {
      ORRERY_ASSIGN_OR_RETURN(file, OpenNamed(path, files_.front().path));
    }
    if (!file) {
      missing.push_back(path);
      return {};
    }
    ORRERY_ASSIGN_OR_RETURN(Document read, ParseConfiguration(*file));
    for (const char* key : {"extends", "bases"}) {
      const Node* others = read.root.Find(key);
      if (others == nullptr) continue;
      const std::string beside = name.find('/') == std::string::npos
                                     ? folder
                                     : folder + "/" + name.substr(0, name.rfind('/'));
      for (const Node& other : others->items) {
        ORRERY_RETURN_IF_ERROR(Take(beside, other.text, depth + 1));
      }
    }
    Over(read.root, file->path);
    return {};
  }

  void Over(Node root, const std::string& source) {
    std::erase_if(root.fields, [](const Field& field) {
      return field.key == "extends" || field.key == "bases" || field.key == "includes";
    });
    document.sources.push_back(source);
    SetSource(static_cast<std::uint32_t>(document.sources.size() - 1), &root);
    Expand(options_, &root);
    if (document.root.kind != Node::Kind::kMap) document.root.kind = Node::Kind::kMap;
    formats::Overlay(root, &document.root);
  }

 private:
  static void SetSource(std::uint32_t source, Node* node) {
    node->source = source;
    for (Field& field : node->fields) SetSource(source, &field.value);
    for (Node& item : node->items) SetSource(source, &item);
  }

  const std::vector<File>& files_;
  const Options& options_;
  int taken_ = 0;
};

// The module that trains: pre_trainer, sft_trainer, post_trainer.
const Node* Trainer(const Document& document) {
  const Node* modules = document.root.Find("modules");
  if (modules == nullptr) return nullptr;
  for (const Field& field : modules->fields) {
    if (field.key.ends_with("trainer")) return &field.value;
  }
  return nullptr;
}

std::string TextAt(const Node& node, std::string_view key, const Options& options) {
  const Node* value = node.Find(key);
  return value == nullptr ? "" : FromEnvironment(value->text, options);
}

// Kernels of Primus-Turbo, and its dispatcher in place of Megatron's.
void ReadTurbo(Reading* r) {
  const bool turbo = r->On("enable_primus_turbo");
  const bool attention = r->On("use_turbo_attention"), deepep = r->On("use_turbo_deepep");
  if (!turbo) return;
  if (attention) r->AddAs("--attention-backend", "use_turbo_attention", "flash", r->file());
  if (deepep) {
    r->AddAs("--moe-token-dispatcher-type", "use_turbo_deepep", "flex", r->file());
    r->AddAs("--moe-enable-deepep", "use_turbo_deepep", "true", r->file());
  }
}

// Bridge's recipe by the name that Primus has for it, in its names of release 0.6: what trained
// adapters or the whole model by an argument are two recipes there.
std::string BridgeFlavor(std::string flavor, const Node& root) {
  constexpr std::string_view kOld = "_finetune_config";
  if (!flavor.ends_with(kOld)) return flavor;
  const Node* peft = root.Find("peft");
  const bool adapters = peft != nullptr && peft->kind == Node::Kind::kScalar &&
                        (Lower(peft->text) == "lora" || Lower(peft->text) == "dora");
  flavor.resize(flavor.size() - kOld.size());
  return flavor + (adapters ? "_peft_config" : "_sft_config");
}

// What a key of Primus's sets in Bridge's configuration; empty: it is not Bridge's.
std::string BridgePath(const std::string& path) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNames = {
      {{"precision_config", "mixed_precision"},
       {"global_batch_size", "train.global_batch_size"},
       {"micro_batch_size", "train.micro_batch_size"},
       {"seq_length", "model.seq_length"},
       {"peft_dim", "peft.dim"},
       {"use_megatron_fsdp", "ddp.use_megatron_fsdp"},
       {"use_distributed_optimizer", "ddp.use_distributed_optimizer"}}};
  for (const auto& [name, bridge] : kNames) {
    if (path == name) return std::string(bridge);
  }
  if (PrimusTable().Find(path) != nullptr) return "";
  const std::size_t dot = path.find('.');
  if (dot != std::string::npos) {
    const std::string section = path.substr(0, dot);
    const bool own = section == "model" || section == "peft" || section == "train" ||
                     section == "ddp" || section == "optimizer" || section == "dataset" ||
                     section == "comm_overlap" || section == "mixed_precision";
    return own ? path : "";
  }
  return MegatronTable().FindField(path) != nullptr ? "model." + path : "";
}

// Primus on Megatron Bridge: a recipe of Bridge's (`flavor`), with what the file sets in it.
Result<Imported> ReadPrimusBridge(const Document& document, const std::string& path,
                                  const Options& options) {
  const Node* flavor = document.root.Find("flavor");
  if (flavor == nullptr || flavor->text.empty()) {
    return InvalidInput(
        "{}: it names no recipe of Megatron Bridge (flavor); give the model's file "
        "(primus/configs/models/megatron_bridge) as another FILE",
        path);
  }
  ORRERY_ASSIGN_OR_RETURN(std::string text, BridgeRecipe(BridgeFlavor(flavor->text, document.root),
                                                         document.Where(*flavor) + ": flavor"));
  File bridge{.path = path, .text = std::move(text)};
  std::vector<Leaf> beside;
  for (const Leaf& leaf : Leaves(document.root)) {
    const std::string to = BridgePath(leaf.path);
    const bool scalar = leaf.node->kind != Node::Kind::kList;
    if (leaf.path == "peft" && scalar) {
      const std::string kind = Lower(leaf.node->text);
      if (kind.empty() || kind == "none") continue;
      bridge.overrides.push_back({.path = "peft._target_",
                                  .value = kind,
                                  .source = document.sources[leaf.node->source],
                                  .line = leaf.node->line});
    } else if (to.empty() || !scalar) {
      beside.push_back(leaf);
    } else if (leaf.node->kind == Node::Kind::kScalar) {
      bridge.overrides.push_back({.path = to,
                                  .value = leaf.node->text,
                                  .source = document.sources[leaf.node->source],
                                  .line = leaf.node->line});
    }
  }
  const Tables tables = {&PrimusTable(), &NemoTable(), &MegatronTable()};
  return ReadNemoFile(bridge, options, tables, "primus", [&](Reading* r) {
    for (const Leaf& leaf : beside) {
      const Row* row = PrimusTable().Find(leaf.path);
      if (!AddLeaf(document, leaf, row, r)) {
        r->AddUnknown(leaf.path, document.Where(*leaf.node), {&PrimusTable()});
      }
    }
    ReadTurbo(r);
  });
}

}  // namespace

const Table& PrimusTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_primus.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsPrimus(std::string_view text, const std::string& path) {
  return IsYaml(path) && Contains(text, "modules:") && Contains(text, "_trainer:") &&
         Contains(text, "framework:");
}

Result<Imported> ReadPrimus(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Document recipe, ParseConfiguration(files.front()));
  const Node* trainer = Trainer(recipe);
  if (trainer == nullptr) {
    return InvalidInput("'{}': none of its modules trains (pre_trainer, sft_trainer, post_trainer)",
                        Printable(files.front().path));
  }
  const std::string backend = TextAt(*trainer, "framework", options);
  const bool bridge = backend == "megatron_bridge";
  if (backend != "megatron" && backend != "torchtitan" && backend != "maxtext" && !bridge) {
    return InvalidInput(
        "{}: framework: '{}' is not read in Primus's files; megatron, megatron_bridge, torchtitan "
        "and maxtext are",
        recipe.Where(*trainer), Printable(backend, 40));
  }
  Merged merged(files, options);
  const std::string model = TextAt(*trainer, "model", options);
  const std::string defaults = TextAt(*trainer, "config", options);
  ORRERY_RETURN_IF_ERROR(merged.Take("primus/configs/modules/" + backend, defaults));
  ORRERY_RETURN_IF_ERROR(merged.Take("primus/configs/models/" + backend, model));
  if (const Node* overrides = trainer->Find("overrides")) {
    merged.Over(*overrides, files.front().path);
  }
  if (bridge) {
    for (const Field& field : recipe.root.fields) {  // beside `modules`, laid over its overrides
      if (field.value.kind != Node::Kind::kMap || field.key == "modules") continue;
      Node section{.kind = Node::Kind::kMap};
      section.fields.push_back(field);
      merged.Over(section, files.front().path);
    }
    if (!merged.missing.empty()) {
      return InvalidInput(
          "{} does not say what '{}' holds: give it as another FILE, or name the recipe where it "
          "lies in a copy of Primus",
          files.front().path, merged.missing.front());
    }
    return ReadPrimusBridge(merged.document, files.front().path, options);
  }
  const bool megatron = backend == "megatron";
  const Tables tables = {&PrimusTable(), megatron               ? &MegatronTable()
                                         : backend == "maxtext" ? &MaxTextTable()
                                                                : &TorchtitanTable()};
  Reading reading(tables, options, files.front().path);
  const Document& document = merged.document;
  for (const std::string& name : merged.missing) {
    reading.Missing(fmt::format(
        "what '{}' holds: give it as another FILE, or name the recipe where it lies in a copy of "
        "Primus",
        Printable(name, 120)));
  }
  if (megatron) {
    AddMegatronLeaves(document, document.root, &PrimusTable(), &reading);
    ReadTurbo(&reading);
    reading.Translate();
    ReadMegatronRules(&reading, {}, nullptr);
  } else {
    AddLeaves(document, document.root, tables, &reading);
    reading.Translate();
    backend == "maxtext" ? ReadMaxTextRules("", &reading) : ReadTorchtitanRules("", &reading);
  }
  return reading.Finish("primus");
}

}  // namespace orrery::recipes
