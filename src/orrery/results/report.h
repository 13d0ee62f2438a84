// The result for a person at a terminal: at most 100 columns, no knowledge of Orrery needed.
//
// The first screen says whether the job runs, how fast, what bounds it, where the time goes, which
// stage is worst, what one change was tried, and what was assumed. `full` goes on with every stage,
// memory by part, the network, the origin of the numbers and every assumption.
#pragma once

#include <string>

#include "orrery/results/result.h"

namespace orrery::results {

struct ReportOptions {
  bool color = false;  // bold headings; the caller knows about terminals and NO_COLOR
  bool full = false;
};

std::string Report(const RunResult& result, const ReportOptions& options);

}  // namespace orrery::results
