// Models by the names that frameworks and the hub of Hugging Face have for them:
// data/recipes/models.csv.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::workload {

// A name of the hub without owner, case and words like -Instruct, which change nothing of its
// shapes.
std::string HubName(std::string_view name);

// The keys of a job's `model` that a framework's name ("hub", "litgpt", "torchtitan") stands for:
// "preset=llama3-8b|window=4096"; `beside` is what stands beside the text model. Empty: it is not
// known. O(log names).
std::string_view KnownModelKeys(std::string_view framework, std::string_view name);

std::vector<std::string> NearestKnownModels(std::string_view framework, std::string_view name);

}  // namespace orrery::workload
