// What verbs check of their command line alike, before any work is done.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::app {

struct NamedFile {
  std::string_view option;  // "--json", "JOB"
  std::string path;         // empty: not given
};

// Refuses an output that is also an input or another output, links followed, and stdout ("-") for
// anything but --json. Devices (/dev/null) may be named twice.
Status CheckFiles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

// A whole number in range; the error says which.
Result<std::int64_t> WholeNumber(std::string_view option, const std::string& text,
                                 std::int64_t least, std::int64_t most);

}  // namespace orrery::app
