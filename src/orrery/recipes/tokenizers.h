// How many tokens a tokenizer has, by its name: data/recipes/tokenizers.csv.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::recipes {

struct Tokenizer {
  std::string name;  // what a path or a repository's name has in it
  std::int64_t vocab = 0;
  std::string source;
};

// The one whose name stands in `model` (a path, or a repository's name), the longest first; null:
// none.
const Tokenizer* FindTokenizer(std::string_view model);

}  // namespace orrery::recipes
