// A shell script's tokens: words as written, quotes and expansions still in them. Internal to
// shell*.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::recipes {

struct Token {
  enum class Kind : std::uint8_t { kWord, kArray, kOperator, kNewline };
  Kind kind = Kind::kWord;
  std::string text;  // kArray: "NAME=" or "NAME+="; kOperator: ";", "&&", "|", …
  // kArray: its elements as written; of the operator "<<" the here document, "quoted" behind it
  // where nothing in it is expanded.
  std::vector<std::string> items;
  std::int32_t line = 0;
};

struct Tokens {
  std::vector<Token> all;
  std::vector<std::pair<std::string, std::int32_t>> here_documents;  // text, and its first line
};
Result<Tokens> Tokenise(std::string_view text, const std::string& name);
// The end of what begins at `at` with "${", "$(", "`" or a quote, one past it; npos: it has none.
std::size_t EndOfExpansion(std::string_view text, std::size_t at);

}  // namespace orrery::recipes
