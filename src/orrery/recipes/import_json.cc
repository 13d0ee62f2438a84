#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orrery/base/text.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {

std::string_view Name(Effect effect) {
  switch (effect) {
    case Effect::kJob:
    case Effect::kRule:
      return "mapped";
    case Effect::kInert:
      return "without effect";
    case Effect::kRefused:
      return "left out";
    case Effect::kAssumed:
      return "assumed";
  }
  return "";
}

std::string ToJson(const Imported& imported) {
  nlohmann::ordered_json json;
  json["schema"] = "orrery.import/1";
  json["recipe"] = imported.dialect;
  json["job"] = imported.job_text;
  json["config_hash"] = fmt::format("{:016x}", imported.job.config_hash);
  json["parameters"] = imported.job.workloads.front().model.parameters();
  json["gpus"] = imported.job.ranks();
  nlohmann::ordered_json arguments = nlohmann::ordered_json::array();
  for (const Use& use : imported.uses) {
    nlohmann::ordered_json one;
    one["argument"] = Printable(use.argument, 200);
    one["value"] = Printable(use.value, 200);
    one["where"] = Printable(use.where, 400);
    one["effect"] = Name(use.effect);
    if (!use.key.empty()) one["key"] = use.key;
    if (!use.why.empty()) one["why"] = use.why;
    arguments.push_back(std::move(one));
  }
  json["arguments"] = std::move(arguments);
  return json.dump(2) + "\n";
}

}  // namespace orrery::recipes
