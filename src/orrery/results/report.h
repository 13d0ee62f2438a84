// The result for a person at a terminal: at most 100 columns, no knowledge of Orrery needed.
#pragma once

#include <string>

#include "orrery/results/result.h"

namespace orrery::results {

struct ReportOptions {
  bool color = false;  // bold headings; the caller knows about terminals and NO_COLOR
};

std::string Report(const RunResult& result, const ReportOptions& options);

}  // namespace orrery::results
