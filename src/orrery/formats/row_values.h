// The rows of a table (rows.h) read as values of one type.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/formats/rows.h"
#include "orrery/formats/section.h"

namespace orrery::formats {

// The keys of a row; those in `others` are left to the caller. One of `needed` ("a|b") that the row
// lacks is an error. `what` a row is, for errors.
Result<Section> KeysOf(const DataTable& table, const DataRow& row, std::string_view what,
                       const OptionTable& options, std::string_view needed,
                       std::span<const std::string_view> others = {});

// The text of a key; empty where it is left out.
inline std::string TextOf(const Section& keys, std::string_view key) {
  return keys.Has(key) ? keys.Text(key) : std::string();
}

// What the rows of a table say, a Value each; those of a later file stand before an earlier's, so
// that a user's hold first.
template <typename Value>
class RowValues {
 public:
  explicit RowValues(std::string what) : what_(std::move(what)), table_(what_) {}

  // The rows of a file that are no parts. `read`: Result<Value>(const RowValues&, const DataRow&).
  template <typename Read>
  Status Add(std::string_view text, const std::string& file, const Read& read) {
    std::size_t next = table_.rows().size();
    ORRERY_RETURN_IF_ERROR(table_.Add(text, file));
    std::vector<Value> added;
    for (; next < table_.rows().size(); ++next) {
      const DataRow& row = table_.rows()[next];
      if (row.part()) continue;
      ORRERY_ASSIGN_OR_RETURN(Value value, read(*this, row));
      added.push_back(std::move(value));
    }
    values_.insert(values_.begin(), std::make_move_iterator(added.begin()),
                   std::make_move_iterator(added.end()));
    return {};
  }
  Result<Section> Keys(const DataRow& row, const OptionTable& options, std::string_view needed,
                       std::span<const std::string_view> others = {}) const {
    return KeysOf(table_, row, what_, options, needed, others);
  }

  const std::vector<Value>& values() const { return values_; }
  const Document& document() const { return table_.document(); }

 private:
  std::string what_;
  DataTable table_;
  std::vector<Value> values_;
};

}  // namespace orrery::formats
