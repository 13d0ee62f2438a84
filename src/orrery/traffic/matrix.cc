// Connection matrices of htsim.
#include <algorithm>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/traffic/flows.h"

namespace orrery::traffic {
namespace {

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  for (std::size_t at = line.find_first_not_of(" \t\r"); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(" \t\r", end);
  }
  return words;
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name, const cluster::Cluster& cluster)
      : text_(text), name_(Printable(name)), cluster_(cluster) {}

  Result<std::vector<Flow>> Read() {
    std::int64_t connections = -1;
    while (!text_.empty()) {
      ++line_;
      const std::vector<std::string_view> words = Words(TakeLine(&text_));
      if (words.empty()) continue;
      if (words[0] == "Nodes" && words.size() == 2) {
        ORRERY_ASSIGN_OR_RETURN(nodes_, Number(words[1], "Nodes", 2, 1 << 24));
        if (static_cast<std::size_t>(nodes_) > cluster_.devices()) {
          return Error(fmt::format("Nodes {}: the cluster has {} GPUs; take more --nodes", nodes_,
                                   cluster_.devices()));
        }
      } else if (words[0] == "Connections" && words.size() == 2) {
        ORRERY_ASSIGN_OR_RETURN(connections, Number(words[1], "Connections", 1, kMaxFlows));
      } else if (words[0].find("->") != std::string_view::npos) {
        ORRERY_RETURN_IF_ERROR(ReadFlow(words));
      } else {
        return Error(
            fmt::format("'{}' is no line of a connection matrix; valid: Nodes N, Connections C, "
                        "FROM->TO start US size BYTES (triggers and failures are not)",
                        Printable(words[0], 40)));
      }
    }
    if (connections >= 0 && static_cast<std::size_t>(connections) != flows_.size()) {
      return InvalidInput("{}: Connections {}: the file has {}; correct the number or the list",
                          name_, connections, flows_.size());
    }
    if (flows_.empty()) return InvalidInput("{}: no connection in it", name_);
    return std::move(flows_);
  }

 private:
  Status Error(const std::string& what) const {
    return InvalidInput("{}:{}: {}", name_, line_, what);
  }
  Result<std::int64_t> Number(std::string_view word, std::string_view field, std::int64_t least,
                              std::int64_t most) const {
    const Result<std::int64_t> value = ParseInteger(word);
    if (value.ok() && *value >= least && *value <= most) return *value;
    return Error(fmt::format("{} = '{}': must be a whole number from {} to {}", field,
                             Printable(word, 40), least, most));
  }

  Status ReadFlow(const std::vector<std::string_view>& words) {
    if (nodes_ == 0) return Error("'Nodes N' must stand before the first connection");
    const std::size_t arrow = words[0].find("->");
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t from,
                            Number(words[0].substr(0, arrow), "from", 0, nodes_ - 1));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t to,
                            Number(words[0].substr(arrow + 2), "to", 0, nodes_ - 1));
    if (from == to) return Error(fmt::format("{} sends to itself; remove the line", from));
    Flow flow{0, DeviceId(static_cast<std::size_t>(from)), DeviceId(static_cast<std::size_t>(to)),
              -1};
    for (std::size_t i = 1; i + 1 < words.size(); i += 2) {
      if (words[i] == "start") {
        Result<std::int64_t> start = ParseWhole(words[i + 1], Dimension::kTime, "us");
        if (!start.ok()) return Error("start: " + start.status().message());
        flow.start = *start;
      } else if (words[i] == "size") {
        ORRERY_ASSIGN_OR_RETURN(flow.bytes, Number(words[i + 1], "size", 1, std::int64_t{1} << 50));
      } else if (words[i] != "id" && words[i] != "msg") {
        return Error(fmt::format("'{}' is not modelled; valid: id, msg, start, size",
                                 Printable(words[i], 40)));
      }
    }
    if (words.size() % 2 == 0) return Error("a field has no value");
    if (flow.bytes < 0) return Error("'size BYTES' is missing");
    flows_.push_back(flow);
    return {};
  }

  std::string_view text_;
  const std::string name_;
  const cluster::Cluster& cluster_;
  int line_ = 0;
  std::int64_t nodes_ = 0;
  std::vector<Flow> flows_;
};

}  // namespace

Result<std::vector<Flow>> ParseConnectionMatrix(std::string_view text, const std::string& name,
                                                const cluster::Cluster& cluster) {
  return Reader(text, name, cluster).Read();
}

}  // namespace orrery::traffic
