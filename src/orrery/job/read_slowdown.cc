#include "orrery/job/read_slowdown.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "orrery/base/file.h"
#include "orrery/base/hash.h"
#include "orrery/base/text.h"

namespace orrery::job {
namespace {

using TreeJson = nlohmann::json;

constexpr std::int64_t kMostBytes = 64 << 20;

// XGBoost writes numbers of its parameters as text: "5E-1", and newer releases "[5E-1]".
bool NumberOf(const TreeJson& text, float* out) {
  if (!text.is_string()) return false;
  std::string s = text.get<std::string>();
  if (s.size() > 2 && s.front() == '[' && s.back() == ']') s = s.substr(1, s.size() - 2);
  const auto end = s.data() + s.size();
  return std::from_chars(s.data(), end, *out).ptr == end;
}

Result<interference::Tree> TreeOf(const TreeJson& json) {
  const std::vector<std::int32_t> left = json.at("left_children"),
                                  right = json.at("right_children");
  const std::vector<std::int32_t> feature = json.at("split_indices");
  const std::vector<float> value = json.at("split_conditions");
  if (right.size() != left.size() || feature.size() != left.size() || value.size() != left.size()) {
    return InvalidInput("lists of its nodes differ in length");
  }
  for (const TreeJson& type : json.value("split_type", TreeJson::array())) {
    if (type != 0) return InvalidInput("a split by category; features are numbers");
  }
  interference::Tree tree;
  for (std::size_t i = 0; i < left.size(); ++i) {
    tree.nodes.push_back({left[i], right[i], feature[i], value[i]});
  }
  return tree;
}

Result<interference::Trees> TreesOf(const TreeJson& json) {
  const TreeJson& learner = json.at("learner");
  const std::string objective = learner.at("objective").at("name");
  if (objective != "reg:squarederror") {
    return InvalidInput("objective '{}'; only reg:squarederror is read", Printable(objective));
  }
  const TreeJson& booster = learner.at("gradient_booster");
  if (booster.at("name") != "gbtree") return InvalidInput("a booster that is no gbtree");
  interference::Trees out;
  out.features = learner.at("feature_names").get<std::vector<std::string>>();
  if (!NumberOf(learner.at("learner_model_param").at("base_score"), &out.base)) {
    return InvalidInput("base_score is no number");
  }
  const TreeJson& trees = booster.at("model").at("trees");
  for (std::size_t t = 0; t < trees.size(); ++t) {
    Result<interference::Tree> tree = TreeOf(trees[t]);
    if (!tree.ok()) return std::move(tree).TakeStatus().In(fmt::format("tree {}", t));
    out.trees.push_back(*std::move(tree));
  }
  return out;
}

}  // namespace

Result<interference::Trees> ParseTrees(std::string_view json, const std::string& name) {
  const std::string what = fmt::format("'{}', no model of XGBoost (JSON)", Printable(name));
  const TreeJson parsed = TreeJson::parse(json, nullptr, false);
  if (parsed.is_discarded() || !parsed.is_object()) return InvalidInput("{}", what);
  try {
    Result<interference::Trees> trees = TreesOf(parsed);
    if (!trees.ok()) return std::move(trees).TakeStatus().In(what);
    ORRERY_RETURN_IF_ERROR(trees->Check().In(what));
    return trees;
  } catch (const TreeJson::exception& error) {  // a key that is missing, or of another type
    return InvalidInput("{}: {}", what, Printable(error.what()));
  }
}

Result<std::shared_ptr<const interference::Learned>> ReadSlowdown(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  ORRERY_ASSIGN_OR_RETURN(interference::Trees trees, ParseTrees(text, path));
  Result<interference::Learned> learned =
      interference::Learned::Create(std::move(trees), Hasher().Add(text).value());
  if (!learned.ok()) {
    return std::move(learned).TakeStatus().In(fmt::format("'{}'", Printable(path)));
  }
  return std::make_shared<const interference::Learned>(*std::move(learned));
}

}  // namespace orrery::job
