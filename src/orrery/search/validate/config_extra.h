// What the column config_extra says beside words that set keys of a job
// (data/release_recipes.yaml).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "orrery/search/validate/configuration.h"

namespace orrery::search {

bool HasToken(const Configuration& row, std::string_view token);
// The column behind the first `key` in it ("prec="), to its end; nullopt where it has none.
std::optional<std::string_view> Behind(const Configuration& row, std::string_view key);
// etpN in the name of a test case; 0: it does not say.
int StatedEtp(const Configuration& row);
// What graphs of layers capture, "cuda_graph=HOW:attn+moe_router+…"; all parts where it names none.
std::uint8_t GraphScope(const Configuration& row);
// What "…recompute=a+b" says, of names that stand for modules: "a+b".
std::string RecomputeModules(const Configuration& row);

}  // namespace orrery::search
