// A row's run as a job: what the row says becomes a job document (docs/formats/job.md), which is
// read and run as `orrery simulate` does, and which `orrery validate --export` writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/job/draft.h"
#include "orrery/job/job.h"
#include "orrery/search/validate/runner.h"
#include "orrery/search/validate/training.h"

namespace orrery::search {

struct RowJob {
  job::Draft draft;
  std::string document;           // as YAML
  std::vector<std::string> said;  // how cells were read
  job::Job job;                   // read from it
  std::string meter;              // mem_kind of the framework's own log; empty: torch_allocated
};

// `read`: what the command line adds to every row's job. A micro-batch that nothing says, of a
// global batch that is known, is the fastest of 1 to 16 sequences whose memory fits the device, by
// the simulator's own prediction with a-priori constants. `assumed` gets how cells were read, and
// what the reader of the job filled in; the first also when it fails.
Result<RowJob> MapRow(const Configuration& row, const RowTables& tables,
                      const job::ReadOptions& read, Runner* runner,
                      std::vector<std::string>* assumed);

}  // namespace orrery::search
