// Models that are known by name, from data/models.yaml and the files that a user adds, and a job
// file's `model` read.
//
// A row has the keys of a job file's `model` (docs/formats/data.md); it is read and checked when
// its file is added. Convolutional networks stand in conv_net.h: their units are no keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rows.h"
#include "orrery/formats/section.h"
#include "orrery/workload/model.h"

namespace orrery::workload {

// Longest sequence of a model that states none.
inline constexpr std::int64_t kUnstatedPositions = 1 << 26;

class Models {
 public:
  // What is embedded in the binary.
  static const Models& BuiltIn();

  // The rows of a models.yaml; `file` stands for the text in errors.
  Status Add(std::string_view text, const std::string& file);

  // Names with one sentence each, in the order of the files, networks behind.
  const std::vector<ModelPreset>& list() const { return list_; }
  Result<Model> Find(std::string_view name) const;  // unknown: nearest valid names

 private:
  formats::DataTable rows_{"model"};
  std::vector<Model> models_;
  std::vector<ModelPreset> list_;
};

Result<Model> ReadModelRow(const formats::DataTable& table, const formats::DataRow& row);
// The preset, file or inline fields under `model`; `node` is null when the key is missing.
Result<Model> ReadModel(const formats::Source& source, const formats::Node* node,
                        const Models& models, std::vector<std::string>* assumed);

}  // namespace orrery::workload
