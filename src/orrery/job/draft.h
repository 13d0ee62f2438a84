// A job document (docs/formats/job.md) while a program writes it: the keys that a user would write,
// and no others, each with what said it. What it does not say the reader of job files fills in, as
// for `orrery simulate`.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/formats/tree.h"
#include "orrery/job/job.h"

namespace orrery::job {

class Draft {
 public:
  // `name` stands in errors for what said no more of a key.
  explicit Draft(std::string name = "draft");

  // Keys are paths, "training.sharding"; `model` and `cluster` alone are what the section begins
  // with. A later value takes the place of an earlier one. `yaml` is a value as YAML has it; what
  // YAML cannot read is a text.
  void Set(std::string_view key, std::string_view yaml);
  void SetText(std::string_view key, std::string_view text);
  void Set(std::string_view key, const formats::Node& value);
  void Set(std::string_view key, std::span<const int> list);
  template <std::integral Value>
  void Set(std::string_view key, Value value) {
    if constexpr (std::same_as<Value, bool>) {
      SetPlain(key, value ? "true" : "false");
    } else {
      SetPlain(key, std::to_string(value));
    }
  }
  // The keys of a JSON object, one by one. REQUIRES: `json` is one.
  void SetAll(std::string_view key, const std::string& json);
  void SetTexts(std::string_view key, std::span<const std::string> texts);
  // Errors of reading the key begin with `source`: "train.sh:12: --hidden-size".
  void SaidBy(std::string_view key, std::string_view source);
  void Drop(std::string_view key);

  const formats::Node* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  std::string_view Text(std::string_view key) const;  // empty: it is not said, or is a list
  std::int64_t Whole(std::string_view key, std::int64_t otherwise) const;

  // One section alone, and a draft's section in the place of this one's: none where it has none.
  Draft Only(std::string_view section) const;
  void Replace(std::string_view section, const Draft& only);

  // What the job knows to differ from what was given.
  void Assume(std::string text) { assume_.push_back(std::move(text)); }

  // In the order in which people write job files.
  std::string Yaml() const;
  // The job that it says so far; relative files are looked up from `folder`.
  Result<Job> Read(const ReadOptions& options, const std::string& folder = "") const;

 private:
  void SetPlain(std::string_view key, std::string text);
  void SetEach(const std::string& path, const formats::Node& map, int deep);
  formats::Document Finished() const;

  formats::Document document_;
  std::vector<std::string> assume_;
};

}  // namespace orrery::job
