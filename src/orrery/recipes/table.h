// What is known of the arguments of one framework: a data file (data/recipes/*.csv), embedded when
// built. data/recipes/README.md says what its columns mean.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::recipes {

enum class Effect : std::uint8_t {
  kJob,      // is a key of the job file
  kRule,     // is read together with others, by code
  kInert,    // changes nothing of what is predicted
  kRefused,  // changes what runs, and no key says how
  kAssumed,  // changes what is predicted by what the recipe does not say
};

struct Row {
  std::string argument;           // "--hidden-size", "model.hidden_size"; "wandb.*": all below
  std::vector<std::string> also;  // other spellings
  std::string takes;              // "flag", "off" (a flag that turns something off), "1", "n"
  std::string field;              // what it is called in a YAML file, where that differs
  std::string fallback;           // what the framework takes when it is not given
  Effect effect = Effect::kInert;
  std::string key;  // kJob: "parallel.tp"; kAssumed: the key that says it
  // kJob: "a=b" is a's value in the job, "a" a value that is the same there; none: all are. Of a
  // flag: what the key is set to. kRefused, kAssumed: values without effect.
  std::vector<std::string> values;
  std::string why;
  std::string source;
  bool flag() const { return takes == "flag" || takes == "off"; }
  bool many() const {
    return argument.ends_with(".*") || argument.ends_with("-*");
  }  // stands for several keys
};

class Table {
 public:
  // The file's lines; a malformed one breaks an invariant (it is ours).
  explicit Table(std::span<const std::string_view> lines);

  const std::vector<Row>& rows() const { return rows_; }
  const Row* Find(std::string_view argument) const;    // by any spelling, or the nearest "a.*"
  const Row* FindField(std::string_view field) const;  // "hidden_size"
  std::vector<std::string_view> Names() const;
  std::vector<std::string_view> Fields() const;

 private:
  std::vector<Row> rows_;
  std::map<std::string, std::size_t, std::less<>> by_name_, by_field_;
};

// Several tables that a recipe may take its arguments from; the first that knows one has it.
using Tables = std::vector<const Table*>;
const Row* FindRow(const Tables& tables, std::string_view argument);

// One framework's files.
struct Dialect {
  std::string_view name, description;
  const Table& (*table)();
};

}  // namespace orrery::recipes
