// What is known beside a row's columns: the tables of data/, and those that a user adds from a
// folder (docs/formats/data.md).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "orrery/base/status.h"
#include "orrery/cluster/fabrics.h"
#include "orrery/job/data.h"
#include "orrery/search/validate/hosts.h"
#include "orrery/search/validate/names.h"
#include "orrery/search/validate/release_recipes.h"
#include "orrery/search/validate/row_rules.h"

namespace orrery::search {

struct RowTables {
  std::shared_ptr<const job::Data> data;  // devices, clusters, models, frameworks
  Columns columns = Columns::BuiltIn();
  FrameworkNames frameworks = FrameworkNames::BuiltIn();
  ModelNames models = ModelNames::BuiltIn();
  Words words = Words::BuiltIn();
  RecipeTable recipes = RecipeTable::BuiltIn();
  RowRules rules = RowRules::BuiltIn();
  Hosts hosts = Hosts::BuiltIn();
  cluster::Fabrics fabrics = cluster::Fabrics::BuiltIn();
};

const RowTables& BuiltInRowTables();

// With the tables of the folders, each of which may be missing; null where no folder is given.
Result<std::shared_ptr<const RowTables>> ReadRowTables(std::span<const std::string> folders);

}  // namespace orrery::search
