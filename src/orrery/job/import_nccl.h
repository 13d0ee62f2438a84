// The importers of Nsight Systems' reports and of what NCCL writes, as rows of importers.cc. A
// report takes the logs of the same run beside it; logs alone are communication alone.
#pragma once

#include "orrery/job/import_pytorch.h"

namespace orrery::job {

inline constexpr OptionTable kNsysOptions{
    .path = "nsys", .doc = "What of a report of Nsight Systems runs.", .options = kPyTorchKeys};

bool IsNsys(const TraceFiles& files);
Result<ImportedTrace> ReadNsysReports(const TraceFiles& files, const ImportOptions& options);
bool IsNccl(const TraceFiles& files);
Result<ImportedTrace> ReadNccl(const TraceFiles& files, const ImportOptions& options);

}  // namespace orrery::job
