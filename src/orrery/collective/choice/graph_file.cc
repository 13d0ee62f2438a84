#include "orrery/collective/choice/graph_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "orrery/base/hash.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/formats/xml.h"

namespace orrery::collective {
namespace {

using formats::XmlElement;

constexpr std::array<std::string_view, 12> kTypes = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                     "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
constexpr std::int64_t kMostChannels = 32, kMostGpus = 1024;
constexpr std::int64_t kHostBits = 56;  // above them a number names the host

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Result<Graphs> Read(const XmlElement& root) {
    if (root.name != "graphs") {
      return InvalidInput("{}:{}: <{}>: NCCL's graphs begin with <graphs>", name_, root.line,
                          Printable(root.name, 40));
    }
    Graphs graphs;
    for (const XmlElement& e : root.children) {
      if (e.name != "graph") return Unexpected(e, "graph");
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t id, Integer(e, "id", 0, 4));
      if (id > 1) {
        graphs.others = true;
        continue;
      }
      Graph& graph = id == 0 ? graphs.ring : graphs.tree;
      if (graph.given) {
        return InvalidInput("{}:{}: id = {} of <graph>: the file has this graph already", name_,
                            e.line, id);
      }
      ORRERY_RETURN_IF_ERROR(ReadGraph(e, &graph));
    }
    if (!graphs.given()) {
      return InvalidInput("{}: no graph of rings (id 0) or trees (id 1): nothing to read", name_);
    }
    ORRERY_RETURN_IF_ERROR(CheckAlike(graphs));
    return graphs;
  }

 private:
  Status Unexpected(const XmlElement& e, std::string_view valid) const {
    return InvalidInput("{}:{}: <{}>: only <{}> stands here", name_, e.line, Printable(e.name, 40),
                        valid);
  }
  Result<const std::string*> Text(const XmlElement& e, std::string_view key) const {
    const std::string* text = e.Find(key);
    if (text != nullptr) return text;
    return InvalidInput("{}:{}: <{}> has no {}", name_, e.line, Printable(e.name, 20), key);
  }
  Result<std::int64_t> Integer(const XmlElement& e, std::string_view key, std::int64_t least,
                               std::int64_t most) const {
    ORRERY_ASSIGN_OR_RETURN(const std::string* text, Text(e, key));
    const Result<std::int64_t> value = ParseInteger(*text);
    if (value.ok() && *value >= least && *value <= most) return *value;
    return InvalidInput("{}:{}: {} = '{}' of <{}>: must be a whole number from {} to {}", name_,
                        e.line, key, Printable(*text, 40), Printable(e.name, 20), least, most);
  }
  Result<double> Number(const XmlElement& e, std::string_view key, double most) const {
    const std::string* text = e.Find(key);
    if (text == nullptr && key == "latencyinter") return 0.0;  // not in older files
    ORRERY_ASSIGN_OR_RETURN(text, Text(e, key));
    double value = -1;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error == std::errc() && end == text->data() + text->size() && value >= 0 && value <= most) {
      return value;
    }
    return InvalidInput("{}:{}: {} = '{}' of <{}>: must be a number from 0 to {}", name_, e.line,
                        key, Printable(*text, 40), Printable(e.name, 20), most);
  }
  Result<PathType> Type(const XmlElement& e, std::string_view key) const {
    ORRERY_ASSIGN_OR_RETURN(const std::string* text, Text(e, key));
    const auto found = std::ranges::find(kTypes, *text);
    if (found != kTypes.end()) return static_cast<PathType>(found - kTypes.begin());
    return InvalidInput("{}:{}: {}", name_, e.line, UnknownName(key, Printable(*text, 40), kTypes));
  }
  Result<int> Device(const XmlElement& e) const {
    ORRERY_ASSIGN_OR_RETURN(const std::string* text, Text(e, "dev"));
    std::uint64_t value = 0;
    std::string_view digits = *text;
    if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    value &= (std::uint64_t{1} << kHostBits) - 1;
    if (whole && value < kMostGpus) return static_cast<int>(value);
    return InvalidInput("{}:{}: dev = '{}' of <{}>: must be a hexadecimal number below {:x}", name_,
                        e.line, Printable(*text, 40), Printable(e.name, 20), kMostGpus);
  }

  Status ReadGraph(const XmlElement& e, Graph* graph) {
    graph->given = true;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t channels, Integer(e, "nchannels", 1, kMostChannels));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t pattern, Integer(e, "pattern", 1, 6));
    graph->plain = pattern == 3;
    ORRERY_ASSIGN_OR_RETURN(graph->intra_GBps, Number(e, "speedintra", 1e5));
    ORRERY_ASSIGN_OR_RETURN(graph->inter_GBps, Number(e, "speedinter", 1e5));
    ORRERY_ASSIGN_OR_RETURN(graph->latency_us, Number(e, "latencyinter", 1e6));
    ORRERY_ASSIGN_OR_RETURN(graph->intra, Type(e, "typeintra"));
    ORRERY_ASSIGN_OR_RETURN(graph->inter, Type(e, "typeinter"));
    if (!(graph->intra_GBps > 0)) {
      return InvalidInput("{}:{}: speedintra = 0 of <graph>: nothing would move", name_, e.line);
    }
    for (const XmlElement& child : e.children) {
      if (child.name != "channel") return Unexpected(child, "channel");
      GraphChannel channel;
      for (const XmlElement& end : child.children) {
        if (end.name != "gpu" && end.name != "net") return Unexpected(end, "gpu> and <net");
        ORRERY_ASSIGN_OR_RETURN(const int device, Device(end));
        (end.name == "gpu" ? channel.gpus : channel.nets).push_back(device);
      }
      std::vector<int> sorted = channel.gpus;
      std::sort(sorted.begin(), sorted.end());
      if (sorted.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
        return InvalidInput("{}:{}: <channel>: every GPU of the host once, not {}", name_,
                            child.line, sorted.empty() ? "none" : "one of them twice");
      }
      graph->channels.push_back(std::move(channel));
    }
    if (static_cast<std::int64_t>(graph->channels.size()) == channels) return {};
    return InvalidInput("{}:{}: nchannels = {} of <graph>: it has {} <channel>", name_, e.line,
                        channels, graph->channels.size());
  }

  // All channels visit the same GPUs.
  Status CheckAlike(const Graphs& graphs) const {
    std::vector<int> first;
    for (const Graph* graph : {&graphs.ring, &graphs.tree}) {
      for (const GraphChannel& channel : graph->channels) {
        std::vector<int> sorted = channel.gpus;
        std::sort(sorted.begin(), sorted.end());
        if (first.empty()) first = sorted;
        if (first != sorted) {
          return InvalidInput("{}: not all channels have the same {} GPUs", name_, first.size());
        }
      }
    }
    return {};
  }

  const std::string& name_;
};

}  // namespace

Result<Graphs> ParseGraphFile(std::string_view text, const std::string& name) {
  const formats::Limits limits{.bytes = 4 << 20, .depth = 8, .values = 200'000};
  ORRERY_ASSIGN_OR_RETURN(const XmlElement root, formats::ParseXml(text, name, limits));
  ORRERY_ASSIGN_OR_RETURN(Graphs graphs, Reader(name).Read(root));
  Hasher hash;
  graphs.hash = hash.Add(text).value();
  return graphs;
}

}  // namespace orrery::collective
