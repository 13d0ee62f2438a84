#include "orrery/search/validate/words.h"

#include <algorithm>
#include <iterator>

#include "orrery/base/schema.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/section.h"
#include "orrery/search/validate/configuration.h"

namespace orrery::search {
namespace {

using formats::Section;

constexpr std::string_view kWords[] = {
#include "orrery_data_words.inc"
};
constexpr Option kOptions[] = {{.name = "column"}, {.name = "words"}, {.name = "means"}};
constexpr OptionTable kTable{.path = "", .doc = "", .options = kOptions};

}  // namespace

const Words& Words::BuiltIn() {
  static const Words words = formats::Embedded<Words>(kWords, "data/words.yaml");
  return words;
}

Status Words::Add(std::string_view text, const std::string& file) {
  const std::size_t first = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  std::vector<Word> added;
  for (std::size_t i = first; i < rows_.rows().size(); ++i) {
    const formats::DataRow& row = rows_.rows()[i];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(const Section keys, Section::Read(rows_.document(), row.keys, kTable));
    for (const Option& option : kOptions) {
      if (keys.Has(option.name)) continue;
      return InvalidInput("{}:{}: '{}' lacks {}", file, row.line, Printable(row.name, 60),
                          option.name);
    }
    const std::span<const std::string_view> columns = ConfigurationColumns(TableKind::kTraining);
    Word word{keys.Text("column"), keys.Text("words"), keys.Text("means")};
    if (std::ranges::find(columns, word.column) == columns.end()) {
      return InvalidInput("{}", UnknownName("column", Printable(word.column, 40), columns))
          .In(keys.Where("column"));
    }
    added.push_back(std::move(word));
  }
  words_.insert(words_.begin(), std::make_move_iterator(added.begin()),
                std::make_move_iterator(added.end()));
  return {};
}

std::string_view Words::Meaning(std::string_view column, std::string_view cell) const {
  std::string plain = Lower(cell);
  std::erase_if(plain, [](char c) { return !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'); });
  for (const Word& word : words_) {
    if (!plain.empty() && word.column == column && IsOneOf(plain, word.words)) return word.means;
  }
  return cell;
}

}  // namespace orrery::search
