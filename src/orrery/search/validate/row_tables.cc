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
    const auto read = [&](const char* name, const auto& add) -> Status {
      const std::string path = fmt::format("{}/{}", folder, name);
      std::error_code error;
      if (!std::filesystem::exists(path, error)) return {};
      ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
      return add(text, path);
    };
    const auto into = [](auto* table) {
      return [table](const std::string& text, const std::string& path) {
        return table->Add(text, path);
      };
    };
    ORRERY_RETURN_IF_ERROR(read("columns.yaml", into(&tables->columns)));
    ORRERY_RETURN_IF_ERROR(read("columns.yaml", [&](const auto& text, const auto& path) {
      return tables->rules.AddColumns(text, path);
    }));
    ORRERY_RETURN_IF_ERROR(read("framework_names.yaml", into(&tables->frameworks)));
    ORRERY_RETURN_IF_ERROR(read("model_names.yaml", into(&tables->models)));
    ORRERY_RETURN_IF_ERROR(read("words.yaml", into(&tables->words)));
    ORRERY_RETURN_IF_ERROR(read("release_recipes.yaml", into(&tables->recipes)));
    ORRERY_RETURN_IF_ERROR(read("row_rules.yaml", into(&tables->rules)));
    ORRERY_RETURN_IF_ERROR(read("hosts.yaml", into(&tables->hosts)));
    ORRERY_RETURN_IF_ERROR(read("fabrics.yaml", into(&tables->fabrics)));
  }
  return std::shared_ptr<const RowTables>(std::move(tables));
}

}  // namespace orrery::search
