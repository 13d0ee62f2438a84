// The importer of PyTorch's profiles, as a row of importers.cc: which files it takes, and how they
// are read. Kineto's traces, plain or gzip, one a rank; execution traces of the same ranks beside
// them are joined by process, or in their order.
#pragma once

#include <string>
#include <vector>

#include "orrery/job/importers.h"
#include "orrery/workload/importers/pytorch/communications.h"

namespace orrery::job {

inline constexpr Option kPyTorchKeys[] = {
    {.name = "step",
     .type = OptionType::kInteger,
     .fallback = "-1",
     .min = -1,
     .max = 1e12,
     .doc = "The step to run, of 'ProfilerStep#N'; -1: the last that all ranks have."},
    {.name = "replicas",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 1 << 20,
     .doc = "How many copies of the traced job run, joined in data-parallel groups."},
};
inline constexpr OptionTable kPyTorchOptions{
    .path = "pytorch", .doc = "What of a PyTorch profile runs.", .options = kPyTorchKeys};

// Profiles that have been read, however; `options.options` has kPyTorchKeys.
Result<ImportedTrace> ImportProfiles(std::vector<workload::PyTorchRank> ranks,
                                     const std::string& name, const ImportOptions& options);

bool IsPyTorch(const TraceFiles& files);
Result<ImportedTrace> ReadPyTorch(const TraceFiles& files, const ImportOptions& options);

}  // namespace orrery::job
