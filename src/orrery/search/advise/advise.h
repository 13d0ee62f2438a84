// One change that makes a job faster, tried by a run: a sentence for the report's first screen.
//
// What is tried follows from what the step loses: a bubble asks for more chunks a stage or a
// schedule that splits backward passes; recomputation for less of it; exposed tensor-parallel
// communication for sequence parallelism and overlap; too small kernels for a larger micro-batch. A
// change is read as `simulate --set` reads it, so that the sentence can be typed again. At most
// kMostTrials are evaluated, without the allocator; the fastest ones are then replayed in memory
// until one fits: not closely (Verdict::kClose), unless it takes no more than the job itself.
// Nothing is tried for a job that does not fit (it has memory_remedy) or whose own run took more
// than kMostEvents events.
#pragma once

#include <cstdint>
#include <string>

#include "orrery/base/status.h"
#include "orrery/results/result.h"
#include "orrery/search/evaluate/evaluator.h"

namespace orrery::search {

inline constexpr std::uint64_t kMostEvents = 200'000;
inline constexpr std::size_t kMostTrials = 6;

// The sentence; empty where nothing was tried. `result`: of the job that the template says.
Result<std::string> Advise(const Template& base, const results::JobResult& result,
                           std::uint64_t events);

}  // namespace orrery::search
