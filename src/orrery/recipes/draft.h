// A job file in the making: keys in their sections, written out as YAML.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::recipes {

class Draft {
 public:
  // "parallel.tp", or "schedule" at the top; `value` as YAML has it. A later value takes the place
  // of an earlier one.
  void Set(std::string_view key, std::string value);
  void Set(std::string_view key, std::int64_t value) { Set(key, std::to_string(value)); }
  void Set(std::string_view key, bool value) { Set(key, std::string(value ? "true" : "false")); }
  void SetText(std::string_view key, std::string_view text);  // in quotes where YAML needs them
  void Drop(std::string_view key);
  void DropSection(const std::string& section) { sections_.erase(section); }

  const std::string* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  std::int64_t Whole(std::string_view key, std::int64_t fallback) const;

  // One section alone, and such a draft in the place of this one's section.
  Draft Only(std::string_view section) const;
  void Replace(std::string_view section, const Draft& only);

  // What the job knows to differ from what was given.
  void Assume(std::string text) { assume_.push_back(std::move(text)); }

  std::string Yaml() const;

 private:
  using Section = std::vector<std::pair<std::string, std::string>>;
  // The section's name and the key's own.
  static std::pair<std::string, std::string> Split(std::string_view key);

  std::map<std::string, Section, std::less<>> sections_;  // "" is the top
  std::vector<std::string> assume_;
};

}  // namespace orrery::recipes
