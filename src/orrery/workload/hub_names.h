// Names that models have on the hub of Hugging Face, as data/recipes/models.csv knows them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::workload {

// Without owner, case and words like -Instruct, which change nothing of its shapes.
std::string HubName(std::string_view name);

// The keys of a job's `model` that a name stands for ("preset=llama3-8b|window=4096"; `beside` is
// what stands beside the text model); empty: it is not known. O(log names).
std::string_view HubKeys(std::string_view name);

std::vector<std::string> NearestHubNames(std::string_view name);

}  // namespace orrery::workload
