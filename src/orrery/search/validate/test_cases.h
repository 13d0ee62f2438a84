// Megatron-LM's functional test cases (config_extra: case=NAME): what their YAML says of a model
// and no column does.
//
// Source: NVIDIA/Megatron-LM, tests/functional_tests/test_cases/*/NAME/model_config.yaml, August
// 2026.
#pragma once

#include <string>
#include <vector>

#include "orrery/search/validate/configuration.h"
#include "orrery/workload/model.h"

namespace orrery::search {

// Nothing for rows of no test case. What a column gives stays as it is. REQUIRES: the columns are
// mapped.
void ApplyTestCase(const Configuration& row, workload::Model* model,
                   std::vector<std::string>* assumed);

}  // namespace orrery::search
