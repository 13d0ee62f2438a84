// Storage requests: SPC traces, and loads by their keys.
#pragma once

#include "orrery/job/importers.h"

namespace orrery::job {

bool IsSpcTrace(const TraceFiles& files);
Result<ImportedTrace> ReadSpcTrace(const TraceFiles& files, const ImportOptions& options);

// A file whose first key is `storage`. Where there is no file (`orrery traffic storage`) all keys
// are set.
bool IsStorageFile(const TraceFiles& files);
Result<ImportedTrace> ReadStorageFile(const TraceFiles& files, const ImportOptions& options);

}  // namespace orrery::job
