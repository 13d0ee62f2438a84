// What tables of measured runs call models: data/model_names.yaml, the first row whose names begin
// the model's; a user's file adds rows before it (docs/formats/data.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rows.h"
#include "orrery/formats/section.h"

namespace orrery::search {

struct ModelName {
  std::string names;  // "a|b", lower case
  std::string model;  // whose shapes are known; empty: the columns have them
  // The rest is of models whose shapes the columns give.
  std::string label, note;  // where it differs from what is priced
  bool drops = false;       // the framework's default dropout is on
  formats::Section keys;    // of `model` in a job; with a known model mtp_layers and mtp_repeats
};

class ModelNames {
 public:
  // data/model_names.yaml, embedded.
  static const ModelNames& BuiltIn();

  // The rows of a file, before those that are there; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  // Null where no row is about this model. `known`: of rows with a model's shapes, else of those
  // without.
  const ModelName* Find(std::string_view model, bool known) const;

 private:
  formats::DataTable rows_{"model's name"};
  std::vector<ModelName> names_;
};

}  // namespace orrery::search
