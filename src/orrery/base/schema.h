// Typed option tables: one row per key, from which parser, --help, docs, JSON Schema and web form
// come.
//
// A stage declares the tables of its own options; `job` joins them. A row says what the key is
// called, what it takes, in which unit a bare number is, what it is when left out, and what it
// means.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/units.h"

namespace orrery {

enum class OptionType : std::uint8_t {
  kBool,
  kInteger,
  kNumber,
  kText,
  kChoice,     // one of `choices`
  kIntegers,   // a list of integers, or one of `choices`
  kTime,       // ps
  kBytes,      // bytes
  kBandwidth,  // bytes/s
  kFraction,   // double
  kFlops,      // FLOP/s, double
};
Dimension DimensionOf(OptionType type);

inline constexpr double kUnbounded = 9e18;  // Option::max of what has no bound of its own

struct Option {
  std::string_view name;
  OptionType type = OptionType::kText;
  std::string_view unit = "";      // of a bare number; dimensional types only
  std::string_view fallback = "";  // as a user would write it; empty: see doc
  double min = 0;                  // in `unit`, inclusive; numbers only
  double max = kUnbounded;
  std::string_view choices = "";  // "a|b|c"
  std::string_view doc = "";
  std::string_view words = "";  // other frameworks' words for choices: "fsdp=zero3|zero_3=zero3"
};

struct OptionTable {
  std::string_view path;  // "parallel": where the keys stand in the job file; "" at the top
  std::string_view doc;
  std::span<const Option> options;
};

using OptionValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

// Reads a scalar as the row says; kIntegers takes only its words here. Errors name value and
// remedy, not the key: the caller knows where it stands.
Result<OptionValue> ParseOption(const Option& option, std::string_view text);
// A list, for kIntegers.
Result<OptionValue> ParseOptionList(const Option& option, std::span<const std::string> items);

// As a user could write it back without loss: "2500000ps", "50000000000B/s", "true".
std::string FormatOption(const Option& option, const OptionValue& value);

const Option* FindOption(std::span<const Option> options, std::string_view name);
std::vector<std::string_view> OptionNames(std::span<const Option> options);
std::vector<std::string_view> Choices(const Option& option);
std::vector<std::string_view> SplitBars(std::string_view text);  // "a|b" → a, b
// Another framework's word and the choice that it means, of `words`.
struct Word {
  std::string_view word, choice;
};
std::vector<Word> Words(const Option& option);
// `doc`, and other frameworks' words for the choices.
std::string Meaning(const Option& option);
// "a whole number from 1 to 65,536", "a time; a bare number is in us".
std::string Expected(const Option& option);

}  // namespace orrery
