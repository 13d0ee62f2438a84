#include "orrery/recipes/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::recipes {
namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace

// `cluster` and `model` alone name what their section starts from.
std::pair<std::string, std::string> Draft::Split(std::string_view key) {
  if (key == "cluster" || key == "model") return {std::string(key), "preset"};
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return {"", std::string(key)};
  return {std::string(key.substr(0, dot)), std::string(key.substr(dot + 1))};
}

void Draft::Set(std::string_view key, std::string value) {
  const auto [part, name] = Split(key);
  Section& section = sections_[part];
  const auto found = std::ranges::find(section, name, &Section::value_type::first);
  if (found != section.end()) {
    found->second = std::move(value);
  } else {
    section.emplace_back(name, std::move(value));
  }
}

void Draft::SetText(std::string_view key, std::string_view text) {
  const bool plain = !text.empty() &&
                     text.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789_-./@+") == std::string_view::npos &&
                     ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  Set(key, plain ? std::string(text) : Quoted(text));
}

void Draft::Drop(std::string_view key) {
  const std::pair<std::string, std::string> place = Split(key);
  std::erase_if(sections_[place.first],
                [&](const auto& field) { return field.first == place.second; });
}

const std::string* Draft::Find(std::string_view key) const {
  const auto [part, name] = Split(key);
  const auto section = sections_.find(part);
  if (section == sections_.end()) return nullptr;
  const auto found = std::ranges::find(section->second, name, &Section::value_type::first);
  return found == section->second.end() ? nullptr : &found->second;
}

Draft Draft::Only(std::string_view section) const {
  Draft only;
  if (const auto found = sections_.find(section); found != sections_.end()) {
    only.sections_.emplace(found->first, found->second);
  }
  return only;
}

void Draft::Replace(std::string_view section, const Draft& only) {
  sections_.erase(std::string(section));
  const auto found = only.sections_.find(section);
  if (found != only.sections_.end()) sections_.insert(*found);
}

std::int64_t Draft::Whole(std::string_view key, std::int64_t fallback) const {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  std::int64_t value = fallback;
  std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

std::string Draft::Yaml() const {
  constexpr const char* kOrder[] = {"model",    "cluster",           "",     "parallel",
                                    "training", "framework_options", "nccl", "memory"};
  std::string yaml;
  const auto write = [&](const std::string& name, const Section& section) {
    if (section.empty()) return;
    if (section.size() == 1 && section[0].first == "preset") {
      yaml += fmt::format("{}: {}\n", name, section[0].second);
      return;
    }
    if (!name.empty()) yaml += name + ":\n";
    for (const auto& [key, value] : section) {
      yaml += fmt::format("{}{}: {}\n", name.empty() ? "" : "  ", key, value);
    }
  };
  for (const char* name : kOrder) {
    if (const auto found = sections_.find(name); found != sections_.end())
      write(name, found->second);
  }
  for (const auto& [name, section] : sections_) {
    if (std::ranges::find(kOrder, name) == std::end(kOrder)) write(name, section);
  }
  if (!assume_.empty()) yaml += "assume:\n";
  for (const std::string& line : assume_) yaml += fmt::format("  - {}\n", Quoted(line));
  return yaml;
}

}  // namespace orrery::recipes
