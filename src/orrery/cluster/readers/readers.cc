#include "orrery/cluster/readers/readers.h"

#include <algorithm>

#include "orrery/base/units.h"

namespace orrery::cluster {

std::string_view Name(TopologyFile kind) {
  switch (kind) {
    case TopologyFile::kNs3:
      return "SimAI or ns-3 topology";
    case TopologyFile::kAstraSim:
      return "ASTRA-sim network";
    case TopologyFile::kHtsim:
      return "htsim topology";
    case TopologyFile::kNcclXml:
      return "NCCL topology";
    case TopologyFile::kUnknown:
      break;
  }
  return "unknown";
}

TopologyFile SniffTopology(std::string_view text) {
  text = text.substr(0, 4096);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return TopologyFile::kUnknown;
  if (text[first] == '<') {
    const bool nccl = text.find("<system") != std::string_view::npos ||
                      text.find("<graphs") != std::string_view::npos;  // which its reader refuses
    return nccl ? TopologyFile::kNcclXml : TopologyFile::kUnknown;
  }
  if (text.find("npus_count:") != std::string_view::npos) return TopologyFile::kAstraSim;
  for (std::size_t at = text.find("Tiers"); at != std::string_view::npos;
       at = text.find("Tiers", at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return TopologyFile::kHtsim;
  }
  // A first line of three numbers, or of five and a word.
  std::string_view line = text.substr(first, text.find('\n', first) - first);
  int numbers = 0, words = 0;
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    ++words;
    numbers += std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
    line.remove_prefix(end);
  }
  const bool ns3 = (words == 3 && numbers == 3) || (words == 6 && numbers >= 5);
  return ns3 ? TopologyFile::kNs3 : TopologyFile::kUnknown;
}

std::string_view BeginningOf(std::string_view text) {
  constexpr std::string_view kHopper = "h100-ib-400g";
  constexpr std::string_view kSm = " sm=";
  const std::size_t at = text.find(kSm);
  if (at == std::string_view::npos || SniffTopology(text) != TopologyFile::kNcclXml) return kHopper;
  const std::string_view rest = text.substr(std::min(text.size(), at + kSm.size() + 1), 8);
  const Result<std::int64_t> sm = ParseInteger(rest.substr(0, rest.find_first_of("'\"")));
  if (!sm.ok() || (*sm >= 90 && *sm < 100)) return kHopper;
  return *sm >= 100 ? "b200-ib-400g" : *sm >= 80 ? "a100-80g-ib-200g" : "v100-32g-ib-100g";
}

int StatedNodes(const Spec& spec) {
  std::int64_t points = 1;
  for (const Dimension& d : spec.topology.dimensions) points *= d.size;
  const bool gpus = spec.topology.name == "astra-sim";
  if (points > 1) return static_cast<int>(gpus ? points / spec.gpus_per_node : points);
  return spec.topology.file.empty() ? 0 : spec.nodes;
}

Status ApplyTopology(std::string_view text, const std::string& name, Spec* spec) {
  if (static_cast<std::int64_t>(text.size()) > kTopologyBytes) {
    return InvalidInput("{}: {} bytes; at most {} are read", name, text.size(), kTopologyBytes);
  }
  spec->topology.file = name;
  switch (SniffTopology(text)) {
    case TopologyFile::kNs3:
      return ApplyNs3(text, name, spec);
    case TopologyFile::kAstraSim:
      return ApplyAstraSim(text, name, spec);
    case TopologyFile::kHtsim:
      return ApplyHtsim(text, name, spec);
    case TopologyFile::kNcclXml:
      return ApplyNcclXml(text, name, spec);
    case TopologyFile::kUnknown:
      break;
  }
  return InvalidInput(
      "{}: no topology that Orrery knows; it reads SimAI's and ns-3's topology, ASTRA-sim's "
      "network "
      "YAML, htsim's .topo and NCCL's XML",
      name);
}

}  // namespace orrery::cluster
