// What verbs check of their command line alike, before any work is done.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/units.h"

namespace orrery::app {

inline constexpr std::int64_t kLargestResult = std::int64_t{1} << 30;  // bytes of its JSON

struct NamedFile {
  std::string_view option;  // "--json", "JOB"
  std::string path;         // empty: not given
};

// Refuses an output that is also an input or another output, links followed, stdout ("-") for
// anything but --json, and a file that cannot be written: its result would be lost at the very end.
// Devices (/dev/null) may be named twice; pipes are not opened here, for they open once.
Status CheckFiles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

// A whole number in range; the error says which.
Result<std::int64_t> WholeNumber(std::string_view option, const std::string& text,
                                 std::int64_t least, std::int64_t most);

// A size or a time ("1MiB", "1.83s") in bytes or picoseconds; `unit` is that of a bare number.
// Errors name the option.
Result<std::int64_t> Quantity(std::string_view option, const std::string& text, Dimension dimension,
                              std::string_view unit);

// Like WholeNumber, for options that CLI11 holds as numbers: `option->transform(WholeIn(1, 1024))`.
CLI::Validator WholeIn(std::int64_t least, std::int64_t most);

// One of a few words; the error suggests the nearest: `option->check(OneOf("order", names))`.
CLI::Validator OneOf(std::string_view kind, std::vector<std::string_view> names);

}  // namespace orrery::app
