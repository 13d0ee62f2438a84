// What Orrery knows by name: the tables of data/, embedded in the binary, and those that a user
// adds from a folder (`--data DIR`, or the job's key `data`).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/campaign/tables.h"
#include "orrery/cluster/catalog.h"
#include "orrery/collective/choice/releases.h"
#include "orrery/job/frameworks.h"
#include "orrery/workload/models.h"

namespace orrery::job {

struct Data {
  cluster::Catalog clusters = cluster::Catalog::BuiltIn();
  workload::Models models = workload::Models::BuiltIn();
  FrameworkTable frameworks = FrameworkTable::BuiltIn();
  campaign::Tables campaign = campaign::Tables::BuiltIn();
  std::shared_ptr<const collective::nccl::Releases> nccl;  // null: what is built in
  std::vector<std::string> folders;  // a user's, in the order in which they were added
  std::uint64_t hash = 0;            // of their files; 0: none
};

const Data& BuiltInData();

// `base` and the tables of a folder: files named as those of data/, each of which may be missing.
// Errors name file, line, row and key.
Result<std::shared_ptr<const Data>> ReadData(const Data& base, const std::string& folder);
Result<std::shared_ptr<const Data>> ReadData(std::span<const std::string> folders);

}  // namespace orrery::job
