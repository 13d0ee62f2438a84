#include "orrery/search/validate/row_tables.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/job/data.h"

namespace orrery::search {

const RowTables& BuiltInRowTables() {
  // Not ours to delete.
  static const RowTables tables{.data = {&job::BuiltInData(), [](const job::Data*) {}}};
  return tables;
}

Result<std::shared_ptr<const RowTables>> ReadRowTables(std::span<const std::string> folders) {
  if (folders.empty()) return std::shared_ptr<const RowTables>();
  constexpr std::int64_t kMostBytes = 4 << 20;
  auto tables = std::make_shared<RowTables>();
  ORRERY_ASSIGN_OR_RETURN(tables->data, job::ReadData(folders));  // and checks the files' names
  for (const std::string& folder : folders) {
    const auto add = [&](const char* name, auto* table) -> Status {
      const std::string path = fmt::format("{}/{}", folder, name);
      std::error_code error;
      if (!std::filesystem::exists(path, error)) return {};
      ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
      return table->Add(text, path);
    };
    ORRERY_RETURN_IF_ERROR(add("columns.yaml", &tables->columns));
    ORRERY_RETURN_IF_ERROR(add("framework_names.yaml", &tables->frameworks));
    ORRERY_RETURN_IF_ERROR(add("model_names.yaml", &tables->models));
    ORRERY_RETURN_IF_ERROR(add("words.yaml", &tables->words));
    ORRERY_RETURN_IF_ERROR(add("release_recipes.yaml", &tables->recipes));
    ORRERY_RETURN_IF_ERROR(add("row_rules.yaml", &tables->rules));
    ORRERY_RETURN_IF_ERROR(add("hosts.yaml", &tables->hosts));
    ORRERY_RETURN_IF_ERROR(add("fabrics.yaml", &tables->fabrics));
  }
  return std::shared_ptr<const RowTables>(std::move(tables));
}

}  // namespace orrery::search
