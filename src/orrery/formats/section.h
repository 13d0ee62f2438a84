// A section of a document read against its option table: typed values with the place they came
// from. Job files and the data files of presets (rows.h) are read alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/formats/tree.h"

namespace orrery::formats {

// A document and where its relative paths start.
struct Source {
  const Document* document = nullptr;
  std::string folder;

  const std::string& name() const { return document->sources.front(); }
  std::string Where(const Node& node) const { return document->Where(node); }
  std::string Path(const std::string& relative) const;
};

// True for "a.yaml", "dir/config.json", "./x": a file, not a preset's name.
bool LooksLikeFile(std::string_view text);

struct Setting {
  OptionValue value;
  std::string where;  // "job.yaml:12:7" or "--set parallel.tp=3"
};

class Section {
 public:
  explicit Section(const OptionTable& table);

  // Reads every field of `map`; keys in `others` are left to the caller. A null value counts as
  // left out. Errors name place, section and key; an unknown key lists the nearest valid ones.
  static Result<Section> Read(const Document& document, const Node& map, const OptionTable& table,
                              std::span<const std::string_view> others = {});

  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  const Setting* Find(std::string_view name) const;  // null when left out
  // Where the user said it: "job.yaml:12:7: parallel.tp"; the bare key when left out.
  std::string Where(std::string_view name) const;

  // The value, or the table's fallback. REQUIRES: the type fits and one of the two is there.
  bool Bool(std::string_view name) const;
  std::int64_t Integer(std::string_view name) const;  // also times, bytes, bandwidths
  double Real(std::string_view name) const;
  std::string Text(std::string_view name) const;
  OptionValue Value(std::string_view name) const;

  void Set(std::string_view name, OptionValue value, std::string where);
  const OptionTable& table() const { return *table_; }

 private:
  std::size_t Index(std::string_view name) const;

  const OptionTable* table_;
  std::vector<std::optional<Setting>> values_;
};

// "parallel.tp" for section "parallel" and key "tp"; the key alone at the top.
std::string FullName(const OptionTable& table, std::string_view key);

// One value of one option from a node.
Result<OptionValue> ReadOption(const Option& option, const Node& node);

// Puts "key.path=value" into the document as if the file had said so; the value is YAML.
Status ApplySet(std::string_view assignment, Document* document);

}  // namespace orrery::formats
