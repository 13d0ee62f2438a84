// A job document (docs/formats/job.md) while it is written: the keys that a user would write, and
// no others. What it does not say the reader of job files fills in, as for `orrery simulate`.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "orrery/formats/tree.h"
#include "orrery/job/job.h"

namespace orrery::search {

class JobDraft {
 public:
  JobDraft();

  // Keys are paths, "training.sharding"; a later value takes the place of an earlier one.
  void Set(std::string_view key, std::string_view text);
  void Set(std::string_view key, const char* text) { Set(key, std::string_view(text)); }
  template <std::integral Value>
  void Set(std::string_view key, Value value) {
    if constexpr (std::same_as<Value, bool>) {
      SetPlain(key, value ? "true" : "false");
    } else {
      SetPlain(key, std::to_string(value));
    }
  }
  void Set(std::string_view key, std::span<const int> list);
  void Set(std::string_view key, const formats::Node& value);
  // The keys of a JSON object, one by one.
  void SetAll(std::string_view key, const std::string& json);
  void Drop(std::string_view key);

  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  std::string_view Text(std::string_view key) const;  // empty: it is not said
  std::int64_t Whole(std::string_view key, std::int64_t otherwise) const;

  const formats::Node& root() const { return document_.root; }
  // The job that it says so far. Errors name the key.
  Result<job::Job> Read(const job::ReadOptions& options) const;

 private:
  void SetPlain(std::string_view key, std::string text);
  void SetEach(const std::string& path, const formats::Node& map, int deep);
  const formats::Node* Find(std::string_view key) const;

  formats::Document document_;
};

}  // namespace orrery::search
