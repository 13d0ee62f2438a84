#include "orrery/workload/models.h"

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/workload/conv_net.h"

namespace orrery::workload {
namespace {

constexpr std::string_view kModels[] = {
#include "orrery_data_models.inc"
};

Model OfNet(const ConvNet& net) {
  Model m;
  m.name = net.name;
  m.source = net.source;
  m.layers = static_cast<std::int64_t>(net.order.size());
  m.hidden = m.heads = m.kv_heads = m.head_dim = m.ffn_hidden = m.vocab = m.max_position = 1;
  m.position = Position::kNone;
  m.tied_embeddings = false;
  m.net = &net;
  return m;
}

}  // namespace

const Models& Models::BuiltIn() {
  static const Models models = [] {
    Models built_in;
    const Status status = built_in.Add(formats::Lines(kModels), "data/models.yaml");
    ORRERY_CHECK(status.ok(), status.message().c_str());
    for (const ConvNet& net : ConvNets()) {
      built_in.list_.push_back({std::string(net.name), std::string(net.description)});
      built_in.models_.push_back(OfNet(net));
    }
    return built_in;
  }();
  return models;
}

Status Models::Add(std::string_view text, const std::string& file) {
  std::size_t next = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  for (; next < rows_.rows().size(); ++next) {
    const formats::DataRow& row = rows_.rows()[next];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(Model model, ReadModelRow(rows_, row));
    list_.push_back({row.name, row.description});
    models_.push_back(std::move(model));
  }
  return {};
}

Status Models::AddFamilies(std::string_view text, const std::string& file) {
  auto families = std::make_shared<families::Families>(this->families());
  ORRERY_RETURN_IF_ERROR(families->Add(text, file));
  families_ = std::move(families);
  return {};
}

Status Models::AddConfigKeys(std::string_view text, const std::string& file) {
  auto families = std::make_shared<families::Families>(this->families());
  ORRERY_RETURN_IF_ERROR(families->AddKeys(text, file));
  families_ = std::move(families);
  return {};
}

Result<Model> Models::Find(std::string_view name) const {
  std::vector<std::string_view> valid;
  for (const Model& model : models_) {
    if (model.name == name) return model;
    valid.push_back(model.name);
  }
  return InvalidInput("{}", UnknownName("model", name, valid));
}

std::span<const ModelPreset> ModelPresets() { return Models::BuiltIn().list(); }

Result<Model> FindModel(std::string_view name) { return Models::BuiltIn().Find(name); }

}  // namespace orrery::workload
