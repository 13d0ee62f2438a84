#include "orrery/formats/network_text.h"

#include <algorithm>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"

namespace orrery::formats {
namespace {

constexpr std::int64_t kMaxNodes = 1 << 22;
constexpr std::int64_t kMaxLinks = 1 << 24;

// Words of one line after another; blank lines are skipped.
class NetworkLines {
 public:
  explicit NetworkLines(std::string_view text) : text_(text) {}
  bool Next(std::vector<std::string_view>* words) {
    words->clear();
    while (words->empty() && !text_.empty()) {
      std::string_view line = TakeLine(&text_);
      ++line_;
      line = line.substr(0, line.find('#'));
      for (std::size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;
           at = line.find_first_not_of(kBlank, at)) {
        const std::size_t stop = std::min(line.find_first_of(kBlank, at), line.size());
        words->push_back(line.substr(at, stop - at));
        at = stop;
      }
    }
    return !words->empty();
  }
  int line() const { return line_; }

 private:
  static constexpr std::string_view kBlank = " \t\r";
  std::string_view text_;
  int line_ = 0;
};

class Ns3Reader {
 public:
  Ns3Reader(std::string_view text, const std::string& name) : lines_(text), name_(name) {}

  Result<Ns3Topology> Read() {
    ORRERY_RETURN_IF_ERROR(ReadHead());
    ORRERY_RETURN_IF_ERROR(ReadSwitches());
    while (lines_.Next(&words_)) ORRERY_RETURN_IF_ERROR(ReadCable());
    if (static_cast<std::int64_t>(out_.cables.size()) != links_) {
      return InvalidInput("{}:1: links = {}: the file has {}; correct the number or the list",
                          name_, links_, out_.cables.size());
    }
    return std::move(out_);
  }

 private:
  Result<std::int64_t> Number(std::size_t word, const char* field, std::int64_t most) const {
    const Result<std::int64_t> value = ParseInteger(words_[word]);
    if (value.ok() && *value >= 0 && *value <= most) return *value;
    return InvalidInput("{}:{}: {} = '{}': must be a whole number from 0 to {}", name_,
                        lines_.line(), field, Printable(words_[word], 40), most);
  }

  Status ReadHead() {
    if (!lines_.Next(&words_) || (words_.size() != 3 && words_.size() != 6)) {
      return InvalidInput(
          "{}:{}: the first line must be 'nodes switches links' or 'nodes gpus_per_server "
          "nvswitches other_switches links gpu_type'",
          name_, std::max(1, lines_.line()));
    }
    out_.simai = words_.size() == 6;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t nodes, Number(0, "nodes", kMaxNodes));
    std::int64_t nvswitches = 0;
    if (out_.simai) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t server, Number(1, "gpus_per_server", 1024));
      ORRERY_ASSIGN_OR_RETURN(nvswitches, Number(2, "nvswitches", nodes));
      out_.gpus_per_server = static_cast<std::uint32_t>(server);
      out_.gpu_type = words_[5];
    }
    ORRERY_ASSIGN_OR_RETURN(switches_, Number(out_.simai ? 3 : 1, "switches", nodes));
    ORRERY_ASSIGN_OR_RETURN(links_, Number(out_.simai ? 4 : 2, "links", kMaxLinks));
    switches_ += nvswitches;
    out_.nodes = static_cast<std::uint32_t>(nodes);
    out_.nvswitches = static_cast<std::uint32_t>(nvswitches);
    if (switches_ >= nodes) {
      return InvalidInput("{}:{}: nodes = {}: no host is left beside {} switches", name_,
                          lines_.line(), nodes, switches_);
    }
    return {};
  }

  Status ReadSwitches() {
    is_switch_.assign(out_.nodes, 0);
    if (switches_ == 0) return {};
    if (!lines_.Next(&words_) || static_cast<std::int64_t>(words_.size()) != switches_) {
      return InvalidInput("{}:{}: {} switch ids; the first line says {}", name_, lines_.line(),
                          words_.size(), switches_);
    }
    for (std::size_t i = 0; i < words_.size(); ++i) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t id, Number(i, "switch id", out_.nodes - 1));
      if (std::exchange(is_switch_[static_cast<std::size_t>(id)], 1) != 0) {
        return InvalidInput("{}:{}: switch id = {} stands here twice; keep one", name_,
                            lines_.line(), id);
      }
      out_.switches.push_back(static_cast<std::uint32_t>(id));
    }
    return {};
  }

  Status ReadCable() {
    if (words_.size() < 4 || words_.size() > 5) {
      return InvalidInput("{}:{}: {} words; a link is 'a b 400Gbps 0.0005ms error_rate'", name_,
                          lines_.line(), words_.size());
    }
    if (static_cast<std::int64_t>(out_.cables.size()) >= links_) {
      return InvalidInput("{}:{}: more links than the {} of the first line", name_, lines_.line(),
                          links_);
    }
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t a, Number(0, "link's first end", out_.nodes - 1));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t b, Number(1, "link's second end", out_.nodes - 1));
    if (a == b) {
      return InvalidInput("{}:{}: a link from {} to itself; remove it", name_, lines_.line(), a);
    }
    std::string rate(words_[2]);
    if (rate.ends_with("bps")) rate.replace(rate.size() - 3, 3, "b/s");
    const auto named = [&](Status status, const char* field) {
      return std::move(status).In(fmt::format("{}:{}: {}", name_, lines_.line(), field));
    };
    Result<std::int64_t> bandwidth = ParseWhole(rate, Dimension::kBandwidth, "b/s");
    if (!bandwidth.ok()) return named(std::move(bandwidth).TakeStatus(), "bandwidth");
    if (*bandwidth == 0) return named(InvalidInput("0: must be above 0"), "bandwidth");
    Result<std::int64_t> latency = ParseWhole(words_[3], Dimension::kTime, "ns");
    if (!latency.ok()) return named(std::move(latency).TakeStatus(), "latency");
    out_.cables.push_back({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b), *bandwidth,
                           *latency, lines_.line()});
    return {};
  }

  NetworkLines lines_;
  const std::string& name_;
  std::vector<std::string_view> words_;
  std::vector<char> is_switch_;
  std::int64_t switches_ = 0, links_ = 0;
  Ns3Topology out_;
};

}  // namespace

Result<Ns3Topology> ParseNs3Topology(std::string_view text, const std::string& name) {
  return Ns3Reader(text, name).Read();
}

Result<HtsimTopology> ParseHtsimTopology(std::string_view text, const std::string& name) {
  constexpr std::size_t kMaxTiers = 3, kMaxSettings = 64;
  HtsimTopology out;
  NetworkLines lines(text);
  std::vector<std::string_view> words;
  while (lines.Next(&words)) {
    if (words.size() != 2) {
      return InvalidInput("{}:{}: '{}': a line is a key and a value", name, lines.line(),
                          Printable(words[0], 40));
    }
    std::string key = Lower(words[0]);
    if (key == "tier") {
      const Result<std::int64_t> number = ParseInteger(words[1]);
      if (!number.ok() || *number != static_cast<std::int64_t>(out.tiers.size()) ||
          out.tiers.size() >= kMaxTiers) {
        return InvalidInput("{}:{}: Tier = '{}': tiers come in order 0, 1, 2", name, lines.line(),
                            Printable(words[1], 40));
      }
      out.tiers.push_back({{}, lines.line()});
      continue;
    }
    std::vector<HtsimTopology::Setting>& settings =
        out.tiers.empty() ? out.settings : out.tiers.back().settings;
    if (settings.size() >= kMaxSettings) {
      return InvalidInput("{}:{}: more than {} keys", name, lines.line(), kMaxSettings);
    }
    settings.push_back({std::move(key), std::string(words[1]), lines.line()});
  }
  return out;
}

}  // namespace orrery::formats
