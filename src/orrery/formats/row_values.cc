#include "orrery/formats/row_values.h"

#include "orrery/base/text.h"

namespace orrery::formats {

Result<Section> KeysOf(const DataTable& table, const DataRow& row, std::string_view what,
                       const OptionTable& options, std::string_view needed,
                       std::span<const std::string_view> others) {
  ORRERY_ASSIGN_OR_RETURN(Section keys, Section::Read(table.document(), row.keys, options, others));
  for (const std::string_view key : SplitBars(needed)) {
    if (keys.Has(key)) continue;
    const Option* const option = FindOption(options.options, key);
    const bool choice = option != nullptr && option->type == OptionType::kChoice;
    return InvalidInput("{}:{}: the {} '{}' lacks {}{}", table.document().sources[row.keys.source],
                        row.line, what, Printable(row.name, 60), key,
                        choice ? ": " + Expected(*option) : "");
  }
  return keys;
}

}  // namespace orrery::formats
