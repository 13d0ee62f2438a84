#include "orrery/formats/nccl_log.h"

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/base/units.h"

namespace orrery::formats {
namespace {

std::vector<std::string_view> Words(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string_view> words;
  for (std::size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlank, end);
  }
  return words;
}

bool IsType(std::string_view word) {
  constexpr std::string_view kTypes[] = {"int8",   "uint8",  "int32",    "uint32",  "int64",
                                         "uint64", "half",   "float",    "double",  "bfloat16",
                                         "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"};
  return std::find(std::begin(kTypes), std::end(kTypes), word) != std::end(kTypes);
}

}  // namespace

Result<NcclTestsLog> ParseNcclTestsLog(std::string_view text, const std::string& name) {
  NcclTestsLog log;
  int line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = Words(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto rank = std::find(words.begin(), words.end(), "Rank");
    if (rank != words.end() && rank != words.begin() && rank[-1].ends_with("#") &&
        std::find(rank, words.end(), "Pid") != words.end()) {
      ++log.ranks;
      continue;
    }
    const auto type = std::find_if(words.begin(), words.end(), IsType);
    if (type == words.end() || type - words.begin() < 2) continue;
    // After the type: names and a root, then four numbers for out of place.
    auto at = type + 1;
    while (at != words.end() && at->find_first_not_of("-0123456789") != std::string_view::npos &&
           at->find('.') == std::string_view::npos) {
      ++at;  // redop
    }
    if (at != words.end() && at->find('.') == std::string_view::npos && words.end() - at >= 9) {
      ++at;  // root
    }
    if (words.end() - at < 3) continue;
    const Result<std::int64_t> bytes = ParseInteger(type[-2]);
    const Result<double> time = ParseReal(at[0], Dimension::kNone, "");
    const Result<double> busbw = ParseReal(at[2], Dimension::kNone, "");
    if (!bytes.ok() || !time.ok() || !busbw.ok() || *bytes < 0 || *time <= 0) continue;
    log.rows.push_back({*bytes, std::string(*type), *time, *busbw, line});
  }
  if (log.rows.empty()) {
    return InvalidInput(
        "'{}' holds no row of nccl-tests (size count type redop root time algbw "
        "busbw …); give the test's whole output",
        Printable(name));
  }
  return log;
}

}  // namespace orrery::formats
