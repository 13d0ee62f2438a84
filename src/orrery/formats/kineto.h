// What PyTorch's profiler (Kineto) writes: a Chrome trace of one rank, JSON, as a list of events.
//
// Read as it stands, with no meaning given: events of threads (operators, annotations, calls of the
// CUDA runtime), of GPU streams (kernels, copies, settings) and what the profiler adds to
// communication. Everything else (flows, Python frames, counters, memory) is passed over. Times are
// nanoseconds: `ts` is microseconds with up to three decimals, behind `baseTimeNanoseconds` where
// the file has that (PyTorch 2.3 and later). NaN, which some releases write, is passed over.
//
// Sources: torch/csrc/profiler/{util,collection}.cpp, kineto/libkineto/src/output_json.cpp; files
// of torch 2.13 (CPU). Numbers in quotes are read as numbers.
//
// Cost: 250 MB of JSON in 0.5 s; memory beside the text 72 bytes an event. At most 4 GiB of JSON.
// Errors name file and byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/formats/profile_trace.h"

namespace orrery::formats {

// Whether a text that begins so may be a Chrome trace of PyTorch's.
bool IsKineto(std::string_view start);

inline constexpr std::int64_t kMostKinetoBytes = (std::int64_t{1} << 32) - 256;

// REQUIRES: nothing of `text` is needed after; it is given room at its end.
Result<ProfileTrace> ParseKineto(std::string text, const std::string& file);

}  // namespace orrery::formats
