#include "orrery/results/document.h"

namespace orrery::results {
namespace {

// A job file, of at most 64 (formats::Limits), stands some levels down in a result.
constexpr int kDeepestDocument = 100;

}  // namespace

bool HasSchema(const nlohmann::ordered_json& json, std::string_view schema) {
  return json.is_object() && json.contains("schema") && json.at("schema").is_string() &&
         json.at("schema").get_ref<const std::string&>() == schema;
}

Result<nlohmann::ordered_json> ReadDocument(std::string_view text, const std::string& name,
                                            std::string_view command, std::string_view schema) {
  using Json = nlohmann::ordered_json;
  bool deep = false;
  const auto keep = [&deep](int depth, Json::parse_event_t, const Json&) {
    deep = deep || depth > kDeepestDocument;
    return !deep;
  };
  Json json = Json::parse(text, keep, false);
  if (deep) {
    return InvalidInput("{}: is nested more than {} deep, which no result of 'orrery {}' is", name,
                        kDeepestDocument, command);
  }
  if (json.is_discarded() || !HasSchema(json, schema)) {
    return InvalidInput("{}: is no result of 'orrery {} --json' ({})", name, command, schema);
  }
  return json;
}

}  // namespace orrery::results
