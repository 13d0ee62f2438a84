#include "orrery/recipes/tokenizers.h"

#include <charconv>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"

namespace orrery::recipes {

const Tokenizer* FindTokenizer(std::string_view model) {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_tokenizers.inc"
  };
  static const std::vector<Tokenizer> tokenizers = [] {
    std::vector<Tokenizer> read;
    for (const std::vector<std::string>& cell : formats::DataRows(kLines, 3)) {
      Tokenizer tokenizer{.name = cell[0], .source = cell[2]};
      std::from_chars(cell[1].data(), cell[1].data() + cell[1].size(), tokenizer.vocab);
      read.push_back(std::move(tokenizer));
    }
    return read;
  }();
  const std::string lower = Lower(model);
  const Tokenizer* best = nullptr;
  for (const Tokenizer& tokenizer : tokenizers) {
    if (lower.find(tokenizer.name) == std::string::npos) continue;
    if (best == nullptr || tokenizer.name.size() > best->name.size()) best = &tokenizer;
  }
  return best;
}

}  // namespace orrery::recipes
