#include "orrery/search/validate/config_extra.h"

#include <algorithm>

#include "orrery/base/units.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

bool HasToken(const Configuration& row, std::string_view token) {
  return row.text("config_extra").find(token) != std::string_view::npos;
}

std::optional<std::string_view> Behind(const Configuration& row, std::string_view key) {
  const std::string_view extra = row.text("config_extra");
  const std::size_t at = extra.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return extra.substr(at + key.size());
}

int StatedEtp(const Configuration& row) {
  const auto digits = Behind(row, "etp");
  if (!digits) return 0;
  const auto value = ParseInteger(digits->substr(0, digits->find_first_not_of("0123456789")));
  return value.ok() && *value >= 1 && *value <= 4096 ? static_cast<int>(*value) : 0;
}

std::uint8_t GraphScope(const Configuration& row) {
  const std::string_view graph = Behind(row, "cuda_graph=").value_or("");
  const std::size_t colon = graph.find(':');
  if (colon == std::string_view::npos) return workload::kGraphAll;
  std::string_view parts = graph.substr(colon + 1);
  std::uint8_t scope = 0;
  while (!parts.empty()) {
    const std::size_t end = std::min(parts.find('+'), parts.size());
    const auto part = workload::ParseGraphScope(parts.substr(0, end));
    if (!part.ok()) break;
    scope |= *part;
    parts.remove_prefix(std::min(end + 1, parts.size()));
  }
  return scope == 0 ? std::uint8_t{workload::kGraphAll} : scope;
}

std::string RecomputeModules(const Configuration& row) {
  const std::string_view names = Behind(row, "recompute=").value_or("");
  std::string modules;
  for (std::size_t at = 0, end = 0; at < names.size(); at = end + 1) {
    end = std::min(names.find('+', at), names.size());
    std::string_view name = names.substr(at, end - at);
    if (name == "norm") name = "layernorm";
    if (name == "act") name = "moe_act";
    if (!workload::ParseRecomputeModules(name).ok()) break;
    modules += modules.empty() ? "" : "+";
    modules += name;
  }
  return modules;
}

}  // namespace orrery::search
