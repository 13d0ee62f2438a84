// Traces of ranks for tests: lines with the header and the end that they need.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace orrery::formats {

// `lines` are JSON objects with "t" first: {"t":"op",…}.
inline std::string RankTraceText(int rank, int world, const std::vector<std::string>& lines) {
  std::string text = fmt::format(
      R"({{"t":"trace","version":1,"rank":{},"world_size":{},"torch":"2.13.0","device":"cuda"}})"
      "\n",
      rank, world);
  std::map<std::string, int> counts{{"trace", 1}};
  for (const std::string& line : lines) {
    text += line + "\n";
    const std::size_t begin = 6;  // behind {"t":"
    ++counts[line.substr(begin, line.find('"', begin) - begin)];
  }
  text += R"({"t":"end","peak_bytes":0,"counts":{)";
  const char* separator = "";
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}\"{}\":{}", separator, name, count);
    separator = ",";
  }
  return text + "}}\n";
}

}  // namespace orrery::formats
