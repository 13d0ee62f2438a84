// nccl-tests' output. Read: the version line, the list of ranks (host, GPU), the name of the test
// where the output or a launch line says it, and the lines of results:
//   size count type redop root time algbw busbw #wrong [the same in place]
// All else of a log is passed over. Sizes are bytes, times microseconds, out of place.
#include <charconv>
#include <set>
#include <sstream>

#include "orrery/base/text.h"
#include "orrery/search/calibrate/calibrate.h"

namespace orrery::search {
namespace {

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(line)};
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

template <class T>
bool Parse(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

constexpr std::string_view kTests[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                       "sendrecv",   "alltoall",   "reduce",         "gather",
                                       "scatter",    "hypercube"};

class Reader {
 public:
  Reader(const std::string& name, const NcclLogOptions& options) : name_(name), options_(options) {}

  Result<std::string> Read(std::string_view log) {
    if (!options_.collective.empty()) collective_ = options_.collective;
    std::size_t number = 0;
    for (std::size_t at = 0; at < log.size();) {
      const std::size_t end = std::min(log.find('\n', at), log.size());
      std::string_view line = log.substr(at, end - at);
      at = end + 1;
      ++number;
      if (line.ends_with('\r')) line.remove_suffix(1);
      Status status = ReadLine(line);
      if (!status.ok()) return std::move(status).In(fmt::format("{}:{}", name_, number));
    }
    return Csv();
  }

 private:
  Status ReadLine(std::string_view line) {
    if (collective_.empty()) {
      for (const std::string_view test : kTests) {
        if (line.find(std::string(test) + "_perf") == std::string_view::npos) continue;
        collective_ = test;  // the longer names stand first
        break;
      }
    }
    const std::size_t version = line.find("NCCL version ");
    if (version != std::string_view::npos) {
      version_ = Words(line.substr(version + 13)).front();
      version_ = version_.substr(0, version_.find_first_not_of("0123456789."));
    }
    const std::size_t rank = line.find("#  Rank ");
    if (rank != std::string_view::npos) return ReadRank(Words(line.substr(rank)));
    const std::vector<std::string> words = Words(line);
    std::int64_t size = 0;
    if (words.size() < 8 || words[0].starts_with('#') || !Parse(words[0], &size)) return {};
    return ReadResult(words, size);
  }

  // "#  Rank  0 Group  0 Pid  123 on  host1 device  0 [0x07] NVIDIA A100-SXM4-80GB"
  Status ReadRank(const std::vector<std::string>& words) {
    const auto find = [&](std::string_view word) {
      std::size_t i = 0;
      while (i < words.size() && words[i] != word) ++i;
      return i + 1;
    };
    const std::size_t host = find("on"), device = find("device");
    if (host >= words.size() || device + 1 >= words.size()) {
      return InvalidInput("a line of ranks without 'on HOST' and 'device N'");
    }
    hosts_.insert(words[host]);
    ++ranks_;
    std::string gpu;
    for (std::size_t i = device + 2; i < words.size(); ++i) {
      if (words[i] == "NVIDIA") continue;
      if (!gpu.empty()) gpu += '-';
      gpu += words[i];
    }
    if (!gpu_.empty() && gpu != gpu_) {
      return InvalidInput("ranks on different GPUs ({} and {}): calibrate one kind at a time",
                          Printable(gpu_, 40), Printable(gpu, 40));
    }
    gpu_ = gpu;
    return {};
  }

  Status ReadResult(const std::vector<std::string>& words, std::int64_t size) {
    double time = 0;
    std::int64_t count = 0;
    if (!Parse(words[1], &count)) return {};
    if (!Parse(words[5], &time) || !(time > 0)) {
      return InvalidInput("time '{}' is no positive number", Printable(words[5], 40));
    }
    if (size == 0 || count == 0) return {};
    rows_.push_back({size, words[2], words[5]});
    return {};
  }

  Result<std::string> Csv() const {
    if (rows_.empty()) {
      return InvalidInput("{}: no line of nccl-tests' results (size count type redop root time …)",
                          name_);
    }
    if (collective_.empty()) {
      return InvalidInput("{}: the log does not say which test it is; give --collective all_reduce",
                          name_);
    }
    if (ranks_ == 0) {
      return InvalidInput("{}: no '#  Rank' lines: the log does not say on which GPUs it ran",
                          name_);
    }
    if (ranks_ % hosts_.size() != 0) {
      return InvalidInput("{}: {} ranks on {} hosts: hosts with unequal numbers of GPUs", name_,
                          ranks_, hosts_.size());
    }
    if (hosts_.size() > 1 && options_.network.empty()) {
      return InvalidInput(
          "{}: {} hosts: say how they are connected, such as --fabric '8x400Gb/s "
          "InfiniBand'",
          name_, hosts_.size());
    }
    std::string out =
        "source,gpu,nodes,gpus_per_node,nccl_version,network,collective,size_bytes,dtype,"
        "time_us_oop\n";
    for (const Line& line : rows_) {
      out += fmt::format("log,{},{},{},{},{},{},{},{},{}\n", gpu_, hosts_.size(),
                         ranks_ / hosts_.size(), version_, options_.network, collective_, line.size,
                         line.type, line.time);
    }
    return out;
  }

  const std::string& name_;
  const NcclLogOptions& options_;
  std::string collective_, version_, gpu_;
  std::set<std::string> hosts_;
  std::size_t ranks_ = 0;
  struct Line {
    std::int64_t size;
    std::string type, time;
  };
  std::vector<Line> rows_;
};

}  // namespace

Result<std::string> NcclLogToCsv(std::string_view log, const std::string& name,
                                 const NcclLogOptions& options) {
  return Reader(name, options).Read(log);
}

}  // namespace orrery::search
