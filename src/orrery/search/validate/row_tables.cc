#include "orrery/search/validate/row_tables.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/job/data.h"

namespace orrery::search {

const RowTables& BuiltInRowTables() {
  static const RowTables tables;
  return tables;
}

Result<std::shared_ptr<const RowTables>> ReadRowTables(std::span<const std::string> folders) {
  if (folders.empty()) return std::shared_ptr<const RowTables>();
  ORRERY_RETURN_IF_ERROR(job::ReadData(folders).status());  // names of files, and the other tables
  constexpr std::int64_t kMostBytes = 4 << 20;
  auto tables = std::make_shared<RowTables>();
  for (const std::string& folder : folders) {
    bool any = false;
    const auto add = [&](const char* name, auto* table) -> Status {
      const std::string path = fmt::format("{}/{}", folder, name);
      std::error_code error;
      if (!std::filesystem::exists(path, error)) return {};
      any = true;
      ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
      return table->Add(text, path);
    };
    ORRERY_RETURN_IF_ERROR(add("release_recipes.yaml", &tables->recipes));
    ORRERY_RETURN_IF_ERROR(add("test_cases.yaml", &tables->cases));
    if (any) continue;
    return InvalidInput(
        "--data: {}: holds neither release_recipes.yaml nor test_cases.yaml, which rows are read "
        "by",
        Printable(folder));
  }
  return std::shared_ptr<const RowTables>(std::move(tables));
}

}  // namespace orrery::search
