// What the parts of a step are called for people, and which of them bounds it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "orrery/results/result.h"

namespace orrery::results {

struct PartText {
  std::string_view heading;  // of the column in the table of stages
  std::string_view meaning;  // to somebody who has not read the design
};
PartText TextOf(std::size_t part);

// The largest of a step's kinds of time, and the next where it is 5 % or more: "the GPUs' kernels,
// 61.0%; then the pipeline bubble, 20.3%". Kinds: kernels (slowed ones and the optimizer's
// included), the host, waiting, bubble, and each group's exposed communication.
std::string BoundBy(const JobResult& job);

// part over total in per cent, one digit: "33.1%".
std::string Percent(double share);
double Share(SimTime part, SimTime total);

// Of what fits: above 94 % of the GPU (Verdict::kClose).
bool IsClose(std::int64_t bytes, std::int64_t device_bytes);

}  // namespace orrery::results
