// Which framework and version a row of measured runs names: data/framework_names.yaml, the first
// row that fits; a user's file adds rows before it (docs/formats/data.md).
//
// What that framework does where a cell is blank stands in its row of job/frameworks.h. A framework
// that the simulator does not model is refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rows.h"
#include "orrery/job/frameworks.h"
#include "orrery/search/validate/configuration.h"

namespace orrery::search {

struct FrameworkName {
  std::string row;         // of job::FrameworkTable
  std::string label;       // what `assumed` calls it
  std::string family;      // "a|b": framework_family is one of them
  std::string frameworks;  // "a|b": one of them stands in `framework`; empty: any
  std::string versions;    // "a|b": one of them begins framework_version; empty: any
};

struct FrameworkMatch {
  std::string_view label;
  const job::Framework* framework = nullptr;
};

class FrameworkNames {
 public:
  // data/framework_names.yaml, embedded.
  static const FrameworkNames& BuiltIn();

  // The rows of a file, before those that are there; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  const std::vector<FrameworkName>& names() const { return names_; }
  // The framework of a row; an unknown family is an error that lists the known ones.
  Result<FrameworkMatch> Match(const Configuration& row,
                               const job::FrameworkTable& frameworks) const;

 private:
  formats::DataTable rows_{"framework's name"};
  std::vector<FrameworkName> names_;
};

}  // namespace orrery::search
