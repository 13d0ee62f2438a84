// Internal to the readers of large JSON (simdjson, on demand): values by their text.
#pragma once

#include <simdjson.h>

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/text.h"

namespace orrery::formats::raw {

namespace ondemand = simdjson::ondemand;
using Json = nlohmann::json;
using Error = simdjson::error_code;

inline std::string_view Unquoted(std::string_view token) {
  if (token.size() < 2 || token.front() != '"' || token.back() != '"') return token;
  return token.substr(1, token.size() - 2);
}
// The value of a string's token; of others the token.
inline std::string Text(std::string_view token) {
  if (token.find('\\') == std::string_view::npos) return std::string(Unquoted(token));
  const Json value = Json::parse(token, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string(token);
}
// The whole part of a number, or of one in quotes.
inline std::int64_t Integer(std::string_view token, std::int64_t otherwise) {
  const std::string_view digits = Unquoted(token);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() ? value : otherwise;
}

// The text of a value, which is passed over.
inline Error Take(ondemand::value value, std::string_view* text) {
  ondemand::json_type type{};
  if (auto error = value.type().get(type)) return error;
  if (type == ondemand::json_type::array) {
    ondemand::array array;
    if (auto error = value.get_array().get(array)) return error;
    return array.raw_json().get(*text);
  }
  if (type == ondemand::json_type::object) {
    ondemand::object object;
    if (auto error = value.get_object().get(object)) return error;
    return object.raw_json().get(*text);
  }
  *text = Trimmed(value.raw_json_token(), " \t\r\n");
  return simdjson::SUCCESS;
}

// Calls visit(key, value) for each member; visit gives a simdjson error.
template <class Visit>
Error ForEachMember(ondemand::object& object, const Visit& visit) {
  for (auto member : object) {
    ondemand::field field;
    std::string_view key;
    if (auto error = std::move(member).get(field)) return error;
    if (auto error = field.unescaped_key().get(key)) return error;
    if (auto error = visit(key, field.value())) return error;
  }
  return simdjson::SUCCESS;
}

// A small value as a tree; of what is no JSON, discarded.
inline Json Tree(std::string_view text) {
  return text.empty() ? Json() : Json::parse(text, nullptr, false);
}

// Elements of a tensor of these dimensions; of a list of tensors all of theirs. 0 for what is none,
// -1 where they are unknown or more than fit.
inline std::int64_t Elements(const Json& dims, int depth = 0) {
  if (!dims.is_array() || dims.empty()) return 0;
  if (depth > 4) return -1;
  const bool tensors = dims.front().is_array();
  std::int64_t sum = tensors ? 0 : 1;
  for (const Json& d : dims) {
    if (tensors) {
      const std::int64_t more = Elements(d, depth + 1);
      if (more < 0 || __builtin_add_overflow(sum, more, &sum)) return -1;
    } else if (!d.is_number_integer() || d < 0 ||
               __builtin_mul_overflow(sum, d.get<std::int64_t>(), &sum)) {
      return -1;
    }
  }
  return sum;
}

// The numbers of a list that can be ranks; what is none is passed over.
inline std::vector<std::uint32_t> RanksOf(const Json& list) {
  std::vector<std::uint32_t> ranks;
  if (!list.is_array()) return ranks;
  for (const Json& rank : list) {
    if (!rank.is_number_unsigned()) continue;
    const auto number = rank.get<std::uint64_t>();
    if (number < 0xFFFFFFFFu) ranks.push_back(static_cast<std::uint32_t>(number));
  }
  return ranks;
}

// What is wrong with a file that simdjson refuses; `at` may be null.
inline Status Broken(Error error, const char* at, std::string_view json, const std::string& file) {
  std::string where = fmt::format("it ends at byte {}", json.size());
  if (error == simdjson::UTF8_ERROR) {
    where = fmt::format("byte {}", FindInvalidUtf8(json));
  } else if (error != simdjson::INCOMPLETE_ARRAY_OR_OBJECT && error != simdjson::UNCLOSED_STRING &&
             at != nullptr && at >= json.data() && at < json.data() + json.size()) {
    where = fmt::format("byte {}", at - json.data());
  }
  return InvalidInput("'{}', {}: no whole JSON: {}; was it cut, or still being written?",
                      Printable(file), where, simdjson::error_message(error));
}

// A whole text, padded as simdjson wants it. Not movable: values point into it.
class Document {
 public:
  // REQUIRES: `file` outlives this.
  Document(std::string text, const std::string& file) : text_(std::move(text)), file_(file) {}
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  // `advice` follows the refusal of a text of more than `most` bytes.
  Status Open(std::int64_t most, std::string_view advice = {}) {
    const std::size_t size = text_.size();
    if (static_cast<std::int64_t>(size) > most) {
      return InvalidInput("'{}': {} of JSON, where {} are the most{}", Printable(file_),
                          HumanBytes(static_cast<std::int64_t>(size)), HumanBytes(most), advice);
    }
    text_.resize(size + simdjson::SIMDJSON_PADDING, '\0');
    json_ = std::string_view(text_).substr(0, size);
    const Error error = parser_.iterate(json_, text_.size()).get(document_);
    return error == simdjson::SUCCESS ? Status() : raw::Broken(error, nullptr, json_, file_);
  }
  // What is wrong where reading stands now.
  Status Broken(Error error) {
    const char* at = nullptr;
    if (document_.current_location().get(at) != simdjson::SUCCESS) at = nullptr;
    return raw::Broken(error, at, json_, file_);
  }

  std::string_view json() const { return json_; }
  ondemand::document& root() { return document_; }

 private:
  std::string text_;
  const std::string& file_;
  std::string_view json_;
  ondemand::parser parser_;
  ondemand::document document_;
};

}  // namespace orrery::formats::raw
