#include "orrery/cluster/readers/readers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/formats/row_values.h"

namespace orrery::cluster {
namespace {

constexpr std::string_view kGpus[] = {
#include "orrery_data_topology_gpus.inc"
};
constexpr std::string_view kUnnamed = "h100-ib-400g";  // of files that name no GPU

constexpr Option kGpuKeys[] = {
    {.name = "names"},
    {.name = "sm", .type = OptionType::kInteger, .fallback = "0", .min = 0, .max = 1000},
    {.name = "cluster"}};
constexpr OptionTable kGpuTable{.path = "", .doc = "", .options = kGpuKeys};

struct NamedGpu {
  std::string name;     // in lower case
  std::int64_t sm = 0;  // compute capability · 10; 0: no file names it so
  std::string cluster;
};

class Gpus {
 public:
  static const Gpus& BuiltIn() {
    static const Gpus gpus = formats::Embedded<Gpus>(kGpus, "data/topology_gpus.yaml");
    return gpus;
  }
  Status Add(std::string_view text, const std::string& file) {
    return rows_.Add(text, file,
                     [](const auto& table, const formats::DataRow& row) -> Result<NamedGpu> {
                       ORRERY_ASSIGN_OR_RETURN(const formats::Section keys,
                                               table.Keys(row, kGpuTable, "names|cluster"));
                       return NamedGpu{formats::TextOf(keys, "names"), keys.Integer("sm"),
                                       formats::TextOf(keys, "cluster")};
                     });
  }
  const std::vector<NamedGpu>& rows() const { return rows_.values(); }

 private:
  formats::RowValues<NamedGpu> rows_{"GPU of a topology"};
};

}  // namespace

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

Result<std::string> PresetOf(std::string_view text, const std::string& name) {
  const std::vector<NamedGpu>& gpus = Gpus::BuiltIn().rows();
  if (SniffTopology(text) == TopologyFile::kNs3) {
    const std::string_view words = Trimmed(text.substr(0, text.find('\n')));
    const std::string_view word = words.substr(words.find_last_of(" \t") + 1);
    if (ParseInteger(word).ok()) return std::string(kUnnamed);
    const auto row = std::ranges::find(gpus, Lower(word), &NamedGpu::name);
    if (row != gpus.end()) return row->cluster;
    std::vector<std::string_view> names;
    for (const NamedGpu& gpu : gpus) names.push_back(gpu.name);
    return InvalidInput("{}:1: {}; or give a definition: preset of another, topology: {{file: …}}",
                        Printable(name), UnknownName("GPU", Printable(word, 40), names));
  }
  constexpr std::string_view kSm = " sm=";
  const std::size_t at = text.find(kSm);
  if (at == std::string_view::npos || SniffTopology(text) != TopologyFile::kNcclXml) {
    return std::string(kUnnamed);
  }
  const std::string_view rest = text.substr(std::min(text.size(), at + kSm.size() + 1), 8);
  const Result<std::int64_t> sm = ParseInteger(rest.substr(0, rest.find_first_of("'\"")));
  if (!sm.ok()) return std::string(kUnnamed);
  const NamedGpu* of = nullptr;
  for (const NamedGpu& gpu : gpus) {
    if (gpu.sm == 0) continue;
    const bool nearer = of != nullptr && gpu.sm > of->sm && gpu.sm <= *sm;
    const bool lowest = of == nullptr || (of->sm > *sm && gpu.sm < of->sm);
    if (nearer || lowest) of = &gpu;
  }
  return of->cluster;
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
      "network YAML, htsim's .topo and NCCL's XML",
      name);
}

}  // namespace orrery::cluster
