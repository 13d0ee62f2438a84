// AMD's Primus: a YAML whose modules name a back end (Megatron, torchtitan or MaxText), a file of
// defaults, a file of the model and what is laid over both. What is none of theirs stands in
// data/recipes/primus.csv. Source: AMD-AGI/Primus, primus/core/config (merge and
// extends), primus/configs, primus/backends.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "orrery/base/text.h"
#include "orrery/formats/rows.h"
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
  if (backend != "megatron" && backend != "torchtitan" && backend != "maxtext") {
    return InvalidInput(
        "{}: framework: '{}' is not read in Primus's files; megatron, torchtitan and maxtext are",
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
