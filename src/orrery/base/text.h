// Text for people: what users wrote made safe to show, and numbers in a readable form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/time.h"

namespace orrery {

// Offset of the first byte that is not valid UTF-8 (overlong forms, surrogates and code points
// beyond U+10FFFF included); npos when there is none.
std::size_t FindInvalidUtf8(std::string_view text);

// `text` with control characters, bidirectional overrides and bytes that are not UTF-8 written as
// \x1b or \u202e, cut after `limit` bytes with "…". Safe for a terminal or a log.
std::string Printable(std::string_view text, std::size_t limit = 160);

std::string Lower(std::string_view text);  // ASCII letters
// Without the `blank` characters at both ends.
std::string_view Trimmed(std::string_view text, std::string_view blank = " \t\r");
// The first line of `text`, without its end; both are taken off it.
inline std::string_view TakeLine(std::string_view* text) {
  const std::string_view line = text->substr(0, text->find('\n'));
  text->remove_prefix(line.size() < text->size() ? line.size() + 1 : line.size());
  return line;
}

std::string HumanTime(SimTime ps);                // "12.34 s", "3.200 ms", "41.0 us"
std::string HumanSeconds(double seconds);         // the same of seconds
std::string HumanBytes(std::int64_t bytes);       // "79.1 GiB"
std::string HumanCount(std::int64_t count);       // "16,384"
std::string HumanParameters(std::int64_t count);  // "8.0B", "124.4M", "9.2K"

// Columns that `text` takes in a terminal, a code point counted as one.
std::size_t DisplayWidth(std::string_view text);

}  // namespace orrery
