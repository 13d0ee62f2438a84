#include "orrery/search/validate/config_extra.h"

#include <algorithm>

#include "orrery/base/units.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

bool HasToken(const Configuration& row, std::string_view token) {
  return row.text("config_extra").find(token) != std::string_view::npos;
}

bool OwnLayers(const Configuration& row) {
  return HasToken(row, "uninstall_te") ||
         (HasToken(row, "case=gpt3_mcore_tp") && !HasToken(row, "_te_"));
}

int StatedEtp(const Configuration& row) {
  const std::string_view extra = row.text("config_extra");
  const std::size_t at = extra.find("etp");
  if (at == std::string_view::npos) return 0;
  const std::string_view digits = extra.substr(at + 3);
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  const auto value = ParseInteger(digits.substr(0, end));
  return value.ok() && *value >= 1 && *value <= 4096 ? static_cast<int>(*value) : 0;
}

std::uint8_t GraphScope(const Configuration& row) {
  std::string_view extra = row.text("config_extra");
  const std::size_t key = extra.find("cuda_graph=");
  if (key == std::string_view::npos) return workload::kGraphAll;
  extra.remove_prefix(key);
  extra.remove_prefix(std::min(extra.find(':') + 1, extra.size()));
  std::uint8_t scope = 0;
  while (!extra.empty()) {
    const std::size_t end = std::min(extra.find('+'), extra.size());
    const auto part = workload::ParseGraphScope(extra.substr(0, end));
    if (!part.ok()) break;
    scope |= *part;
    extra.remove_prefix(std::min(end + 1, extra.size()));
  }
  return scope == 0 ? std::uint8_t{workload::kGraphAll} : scope;
}

std::string RecomputeModules(const Configuration& row) {
  constexpr std::string_view kKey = "recompute=";
  const std::string_view extra = row.text("config_extra");
  const std::size_t key = extra.find(kKey);
  std::string modules;
  if (key == std::string_view::npos) return modules;
  for (std::size_t at = key + kKey.size(), end = 0; at < extra.size(); at = end + 1) {
    end = std::min(extra.find('+', at), extra.size());
    std::string_view name = extra.substr(at, end - at);
    if (name == "norm") name = "layernorm";
    if (name == "act") name = "moe_act";
    if (!workload::ParseRecomputeModules(name).ok()) break;
    modules += modules.empty() ? "" : "+";
    modules += name;
  }
  return modules;
}

}  // namespace orrery::search
