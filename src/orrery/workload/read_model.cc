#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <array>

#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"
#include "orrery/formats/tree.h"
#include "orrery/workload/families/config.h"
#include "orrery/workload/known_models.h"
#include "orrery/workload/layer_sizes.h"
#include "orrery/workload/model_keys.h"
#include "orrery/workload/models.h"
#include "orrery/workload/options.h"

namespace orrery::workload {
namespace {

using formats::LooksLikeFile;
using formats::Node;
using formats::Section;
using formats::Source;

bool IsFolder(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

// "owner/name", as the hub has them.
bool NamesHub(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && slash > 0 && slash + 1 < name.size() &&
         name.find('/', slash + 1) == std::string_view::npos && name[0] != '.' && name[0] != '~' &&
         !name.ends_with(".json");
}

Result<Model> ReadInline(const Source& source, const Node& node, const Models& models,
                         std::vector<std::string>* assumed);

// As a job that has these keys of a hub's model under `model`.
Result<Model> ReadHubName(const std::string& name, std::string_view keys, const Models& models,
                          std::vector<std::string>* assumed) {
  std::string text;
  for (const auto& [key, value] : formats::NamedValues(keys)) {
    if (key == "beside") {
      assumed->push_back(fmt::format("model {}: its text model; {} beside it is not counted",
                                     Printable(name, 80), value));
    } else {
      text += fmt::format("{}: {}\n", key, value);
    }
  }
  const bool preset = text.starts_with("preset: ");
  if (!preset && text.find("\nname: ") == std::string::npos) {
    text += fmt::format("name: \"{}\"\n", HubName(name));
  }
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, formats::ParseYaml(text, name));
  const Source source{.document = &document, .folder = ""};
  return ReadInline(source, document.root, models, assumed);
}

Result<Model> FindOrRead(const Source& source, const std::string& name, const std::string& where,
                         const Models& models, std::vector<std::string>* assumed) {
  Result<Model> model = [&]() -> Result<Model> {
    const auto hub = [&] { return KnownModelKeys("hub", HubName(name)); };
    if (!LooksLikeFile(name)) {
      Result<Model> preset = models.Find(Printable(name));
      if (preset.ok() || hub().empty()) return preset;
      return ReadHubName(name, hub(), models, assumed);
    }
    std::string path = source.Path(name);
    if (IsFolder(path)) path += "/config.json";
    if (!Exists(path) && NamesHub(name)) {
      if (!hub().empty()) return ReadHubName(name, hub(), models, assumed);
      const std::vector<std::string> near = NearestKnownModels("hub", HubName(name));
      return InvalidInput(
          "'{}' is no file here, and no model of the hub whose shapes are known{}{}; give the path "
          "of its config.json",
          Printable(name, 80),
          near.empty() ? "" : "; known names near it: ", fmt::join(near, ", "));
    }
    return ReadConfig(path, models.families(), assumed);
  }();
  if (!model.ok()) return std::move(model).TakeStatus().In(where + ": model");
  return model;
}

struct SizeField {
  std::string_view key;
  std::int64_t Model::*member;
};
constexpr std::array<SizeField, 8> kSizeFields = {{{"layers", &Model::layers},
                                                   {"hidden", &Model::hidden},
                                                   {"heads", &Model::heads},
                                                   {"kv_heads", &Model::kv_heads},
                                                   {"head_dim", &Model::head_dim},
                                                   {"ffn_hidden", &Model::ffn_hidden},
                                                   {"vocab", &Model::vocab},
                                                   {"max_position", &Model::max_position}}};

void ApplyKinds(const Section& section, Model* model) {
  if (section.Has("norm")) {
    model->norm = section.Text("norm") == "rmsnorm" ? Norm::kRmsNorm : Norm::kLayerNorm;
  }
  if (section.Has("activation")) {
    model->activation = Choose(kActivations, section.Text("activation"));
  }
  if (section.Has("position")) {
    model->position = Choose(kPositions, section.Text("position"));
  }
  if (section.Has("mixer")) model->mamba.kind = Choose(kMixers, section.Text("mixer"));
  if (section.Has("tied_embeddings")) model->tied_embeddings = section.Bool("tied_embeddings");
  if (section.Has("attention_bias")) model->attention_bias = section.Bool("attention_bias");
  if (section.Has("mlp_bias")) model->mlp_bias = section.Bool("mlp_bias");
  if (section.Has("router_bias")) model->experts.router_bias = section.Bool("router_bias");
  for (const ModelSwitch& s : kModelSwitches) {
    if (section.Has(s.key)) model->*s.member = section.Bool(s.key);
  }
  if (section.Has("pattern")) model->pattern = section.Text("pattern");
  if (model->pattern.size() == 1 && model->layers > 1) {  // all layers are of this kind
    model->pattern.resize(static_cast<std::size_t>(model->layers), model->pattern.front());
  }
  if (section.Has("dropout")) model->dropout = section.Real("dropout");
}

// Shapes that follow from others when the user leaves them out.
void Derive(const Section& section, bool preset, Model* model) {
  const bool reshaped = section.Has("hidden") || section.Has("heads");
  if (!section.Has("kv_heads") && (!preset || section.Has("heads"))) {
    model->kv_heads = model->heads;
  }
  if (!section.Has("head_dim") && reshaped && model->heads > 0) {
    model->head_dim = model->hidden / model->heads;
  }
  if (!section.Has("ffn_hidden") && (!preset || section.Has("hidden"))) {
    model->ffn_hidden = 4 * model->hidden;
  }
}

Status ApplySizes(const Section& section, Model* model) {
  if (!section.Has("layer_sizes")) return {};
  Result<std::vector<LayerSizes>> sizes = ParseLayerSizes(section.Text("layer_sizes"));
  if (sizes.ok()) return model->SetSizes(*sizes);
  return std::move(sizes).TakeStatus().In(section.Find("layer_sizes")->where +
                                          ": model.layer_sizes");
}

Status CheckComplete(const std::string& where, const Section& section) {
  for (const std::string_view key : {"layers", "hidden", "heads", "vocab"}) {
    if (section.Has(key)) continue;
    return InvalidInput("{}: model.{} is missing; give it, or name a preset to start from", where,
                        key);
  }
  return {};
}

void SayAssumed(const Section& section, std::vector<std::string>* assumed) {
  std::vector<std::string> filled;
  const auto say = [&](std::string_view key, std::string_view value) {
    if (!section.Has(key)) filled.push_back(fmt::format("{} {}", key, value));
  };
  say("norm", "layernorm");
  say("activation", "gelu");
  say("position", "learned");
  say("tied_embeddings", "true");
  say("attention_bias", "true");
  say("mlp_bias", "true");
  if (filled.empty()) return;
  assumed->push_back(fmt::format("model: not said, so as in GPT: {}", fmt::join(filled, ", ")));
}

Result<Model> ReadInline(const Source& source, const Node& node, const Models& models,
                         std::vector<std::string>* assumed) {
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, node, ModelOptions()));
  Model model;
  const bool preset = section.Has("preset");
  if (preset) {
    ORRERY_ASSIGN_OR_RETURN(model, FindOrRead(source, section.Text("preset"),
                                              section.Find("preset")->where, models, assumed));
  } else {
    ORRERY_RETURN_IF_ERROR(CheckComplete(source.Where(node), section));
    SayAssumed(section, assumed);
    model.name = "inline model";
    model.source = source.name();
  }
  ApplyModelKeys(section, preset, &model);
  ORRERY_RETURN_IF_ERROR(ApplySizes(section, &model));
  if (section.Has("name")) model.name = section.Text("name");
  return model;
}

}  // namespace

void ApplyModelKeys(const Section& section, bool preset, Model* model) {
  for (const SizeField& field : kSizeFields) {
    if (section.Has(field.key)) model->*field.member = section.Integer(field.key);
  }
  for (const ModelSize& size : kModelSizes) {
    if (section.Has(size.key)) size.of(*model) = section.Integer(size.key);
  }
  if (!preset && !section.Has("max_position")) model->max_position = kUnstatedPositions;
  ApplyKinds(section, model);
  Derive(section, preset, model);
}

Result<Model> ReadModelRow(const formats::DataTable& table, const formats::DataRow& row) {
  const std::string where =
      fmt::format("{}: the model '{}'", table.document().Where(row.keys), Printable(row.name, 60));
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(table.document(), row.keys, ModelOptions()));
  ORRERY_RETURN_IF_ERROR(CheckComplete(where, section));
  Model model;
  model.name = row.name;
  model.source = row.sources.back();
  ApplyModelKeys(section, false, &model);
  ORRERY_RETURN_IF_ERROR(ApplySizes(section, &model));
  if (Status status = Validate(model); !status.ok()) return std::move(status).In(where);
  return model;
}

Result<Model> ReadModel(const Source& source, const Node* node, const Models& models,
                        std::vector<std::string>* assumed) {
  if (node == nullptr || node->kind == Node::Kind::kNull) {
    return InvalidInput(
        "{}: model is missing; name a preset ('orrery list models') or a Hugging Face config.json",
        source.name());
  }
  if (node->kind == Node::Kind::kScalar) {
    return FindOrRead(source, node->text, source.Where(*node), models, assumed);
  }
  ORRERY_ASSIGN_OR_RETURN(Model model, ReadInline(source, *node, models, assumed));
  if (Status status = Validate(model); !status.ok()) {
    return std::move(status).In(source.Where(*node) + ": model");
  }
  return model;
}

}  // namespace orrery::workload
