// Models that are known by name, from data/models.yaml and the files that a user adds, and a job
// file's `model` read.
//
// A row has the keys of a job file's `model` (docs/formats/data.md); it is read and checked when
// its file is added. Convolutional networks stand in conv_net.h: their units are no keys.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rows.h"
#include "orrery/formats/section.h"
#include "orrery/workload/families/family.h"
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

  // How a config.json is read (families/family.h).
  const families::Families& families() const {
    return families_ != nullptr ? *families_ : families::Families::BuiltIn();
  }
  Status AddFamilies(std::string_view text, const std::string& file);
  Status AddConfigKeys(std::string_view text, const std::string& file);

 private:
  formats::DataTable rows_{"model"};
  std::vector<Model> models_;
  std::vector<ModelPreset> list_;
  std::shared_ptr<const families::Families> families_;  // null: what is built in
};

// What the keys of a section say, put over `model`: a preset, or nothing yet.
void ApplyModelKeys(const formats::Section& section, bool preset, Model* model);

Result<Model> ReadModelRow(const formats::DataTable& table, const formats::DataRow& row);
// The preset, file or inline fields under `model`; `node` is null when the key is missing.
// `assumed` gets what was filled in, and what of a config.json is not counted or not known.
Result<Model> ReadModel(const formats::Source& source, const formats::Node* node,
                        const Models& models, std::vector<std::string>* assumed);

}  // namespace orrery::workload
