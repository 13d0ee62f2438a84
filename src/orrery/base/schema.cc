#include "orrery/base/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery {
namespace {

std::string Number(double value) {
  if (std::abs(value) < 1e15 && value == std::trunc(value)) {
    return HumanCount(static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string WithUnit(const Option& option, double value) {
  return Number(value) + std::string(option.unit);
}

Status InRange(const Option& option, std::string_view text, double value_in_unit) {
  if (value_in_unit >= option.min && value_in_unit <= option.max) return {};
  if (option.max >= kUnbounded) {
    return InvalidInput("{} is too small: at least {}", Printable(text),
                        WithUnit(option, option.min));
  }
  return InvalidInput("{} is out of range: {} to {}", Printable(text), WithUnit(option, option.min),
                      WithUnit(option, option.max));
}

Result<OptionValue> ParseBool(std::string_view text) {
  constexpr std::array<std::string_view, 4> kTrue = {"true", "True", "TRUE", "yes"};
  constexpr std::array<std::string_view, 4> kFalse = {"false", "False", "FALSE", "no"};
  if (std::find(kTrue.begin(), kTrue.end(), text) != kTrue.end()) return OptionValue(true);
  if (std::find(kFalse.begin(), kFalse.end(), text) != kFalse.end()) return OptionValue(false);
  return InvalidInput("'{}' is neither true nor false", Printable(text));
}

// As words are compared: RMSNorm and rmsnorm, all_gather and all-gather are the same.
std::string Plain(std::string_view word) {
  std::string plain(word);
  for (char& c : plain) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

Result<OptionValue> ParseChoice(const Option& option, std::string_view text) {
  const std::vector<std::string_view> choices = Choices(option);
  const std::string plain = Plain(text);
  for (const std::string_view choice : choices) {
    if (Plain(choice) == plain) return OptionValue(std::string(choice));
  }
  for (const auto& [word, choice] : Words(option)) {
    if (Plain(word) == plain) return OptionValue(std::string(choice));
  }
  return InvalidInput("{}", UnknownName(option.name, Printable(text), choices));
}

Result<OptionValue> ParseWholeOption(const Option& option, std::string_view text) {
  const Dimension dimension = DimensionOf(option.type);
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t value, ParseWhole(text, dimension, option.unit));
  ORRERY_RETURN_IF_ERROR(
      InRange(option, text, static_cast<double>(value) / ScaleOf(dimension, option.unit)));
  return OptionValue(value);
}

Result<OptionValue> ParseRealOption(const Option& option, std::string_view text) {
  const Dimension dimension = DimensionOf(option.type);
  ORRERY_ASSIGN_OR_RETURN(const double value, ParseReal(text, dimension, option.unit));
  ORRERY_RETURN_IF_ERROR(InRange(option, text, value / ScaleOf(dimension, option.unit)));
  return OptionValue(value);
}

}  // namespace

Dimension DimensionOf(OptionType type) {
  switch (type) {
    case OptionType::kTime:
      return Dimension::kTime;
    case OptionType::kBytes:
      return Dimension::kBytes;
    case OptionType::kBandwidth:
      return Dimension::kBandwidth;
    case OptionType::kFraction:
      return Dimension::kFraction;
    case OptionType::kFlops:
      return Dimension::kFlops;
    default:
      return Dimension::kNone;
  }
}

Result<OptionValue> ParseOption(const Option& option, std::string_view text) {
  switch (option.type) {
    case OptionType::kBool:
      return ParseBool(text);
    case OptionType::kInteger: {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t value, ParseInteger(text));
      ORRERY_RETURN_IF_ERROR(InRange(option, text, static_cast<double>(value)));
      return OptionValue(value);
    }
    case OptionType::kText:
      if (text.empty()) return InvalidInput("an empty text says nothing");
      return OptionValue(std::string(text));
    case OptionType::kChoice:
      return ParseChoice(option, text);
    case OptionType::kIntegers: {
      const std::vector<std::string_view> words = Choices(option);
      if (std::find(words.begin(), words.end(), text) != words.end()) {
        return OptionValue(std::string(text));
      }
      return InvalidInput("'{}' is not {}", Printable(text), Expected(option));
    }
    case OptionType::kTime:
    case OptionType::kBytes:
    case OptionType::kBandwidth:
      return ParseWholeOption(option, text);
    case OptionType::kNumber:
    case OptionType::kFraction:
    case OptionType::kFlops:
      return ParseRealOption(option, text);
  }
  return InvalidInput("'{}' cannot be read", Printable(text));
}

Result<OptionValue> ParseOptionList(const Option& option, std::span<const std::string> items) {
  if (option.type != OptionType::kIntegers) {
    return InvalidInput("a list stands where {} is expected", Expected(option));
  }
  std::vector<std::int64_t> values;
  for (const std::string& item : items) {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t value, ParseInteger(item));
    ORRERY_RETURN_IF_ERROR(InRange(option, item, static_cast<double>(value)));
    values.push_back(value);
  }
  if (values.empty()) return InvalidInput("the list is empty");
  return OptionValue(std::move(values));
}

std::string FormatOption(const Option& option, const OptionValue& value) {
  switch (value.index()) {
    case 0:
      return std::get<bool>(value) ? "true" : "false";
    case 1: {
      const std::int64_t whole = std::get<std::int64_t>(value);
      switch (option.type) {
        case OptionType::kTime:
          return fmt::format("{}ps", whole);
        case OptionType::kBytes:
          return fmt::format("{}B", whole);
        case OptionType::kBandwidth:
          return fmt::format("{}B/s", whole);
        default:
          return fmt::format("{}", whole);
      }
    }
    case 2:
      return fmt::format("{}{}", std::get<double>(value),
                         option.type == OptionType::kFlops ? "FLOP/s" : "");
    case 3:
      return std::get<std::string>(value);
    default:
      return fmt::format("[{}]", fmt::join(std::get<std::vector<std::int64_t>>(value), ", "));
  }
}

const Option* FindOption(std::span<const Option> options, std::string_view name) {
  for (const Option& option : options) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::vector<std::string_view> OptionNames(std::span<const Option> options) {
  std::vector<std::string_view> names;
  for (const Option& option : options) names.push_back(option.name);
  return names;
}

std::vector<std::string_view> SplitBars(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t bar = text.find('|');
    parts.push_back(text.substr(0, bar));
    text = bar == std::string_view::npos ? std::string_view() : text.substr(bar + 1);
  }
  return parts;
}

std::vector<std::string_view> Choices(const Option& option) { return SplitBars(option.choices); }

std::vector<Word> Words(const Option& option) {
  std::vector<Word> words;
  for (const std::string_view item : SplitBars(option.words)) {
    const std::size_t equals = item.find('=');
    words.push_back({item.substr(0, equals), item.substr(equals + 1)});
  }
  return words;
}

std::string Meaning(const Option& option) {
  if (option.words.empty()) return std::string(option.doc);
  return fmt::format("{} Also written {}.", option.doc, fmt::join(SplitBars(option.words), ", "));
}

std::string Expected(const Option& option) {
  const auto range = [&](std::string_view what) {
    if (option.max >= kUnbounded) {
      return fmt::format("{} of at least {}", what, WithUnit(option, option.min));
    }
    return fmt::format("{} from {} to {}", what, WithUnit(option, option.min),
                       WithUnit(option, option.max));
  };
  switch (option.type) {
    case OptionType::kBool:
      return "true or false";
    case OptionType::kInteger:
      return range("a whole number");
    case OptionType::kNumber:
      return range("a number");
    case OptionType::kText:
      return "a text";
    case OptionType::kChoice:
      return fmt::format("one of {}", fmt::join(Choices(option), ", "));
    case OptionType::kIntegers:
      if (option.choices.empty()) return "a list of whole numbers";
      return fmt::format("a list of whole numbers or {}", fmt::join(Choices(option), ", "));
    case OptionType::kFraction:
      return "a fraction such as 0.01 or 1%";
    default:
      return fmt::format("{} with its unit (a bare number is in {})",
                         Name(DimensionOf(option.type)), option.unit);
  }
}

}  // namespace orrery
