// Megatron-LM's functional test cases (config_extra: case=NAME): what their YAML says of a model
// and no column does. The table is data/test_cases.yaml; a user's file adds rows
// (docs/formats/data.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rows.h"
#include "orrery/formats/section.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/workload/model.h"

namespace orrery::search {

class TestCaseTable {
 public:
  // data/test_cases.yaml, embedded.
  static const TestCaseTable& BuiltIn();

  // The rows of a file, behind those that are there; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  // Nothing for rows of no test case. What a column gives stays as it is. REQUIRES: the columns are
  // mapped.
  void Apply(const Configuration& row, workload::Model* model,
             std::vector<std::string>* assumed) const;

 private:
  // A row: which cases it is about, and what it says of the model.
  struct Fact {
    std::string says;
    formats::Section about, model;
  };

  formats::DataTable rows_{"test case"};
  std::vector<Fact> facts_;
};

}  // namespace orrery::search
