// What is known of releases and of test cases beside a row's columns: the tables of data/, and
// those that a user adds from a folder (docs/formats/data.md).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "orrery/base/status.h"
#include "orrery/search/validate/release_recipes.h"
#include "orrery/search/validate/test_cases.h"

namespace orrery::search {

struct RowTables {
  RecipeTable recipes = RecipeTable::BuiltIn();
  TestCaseTable cases = TestCaseTable::BuiltIn();
};

const RowTables& BuiltInRowTables();

// With release_recipes.yaml and test_cases.yaml of the folders, each of which may be missing; null
// where no folder is given. A folder with neither is an error.
Result<std::shared_ptr<const RowTables>> ReadRowTables(std::span<const std::string> folders);

}  // namespace orrery::search
