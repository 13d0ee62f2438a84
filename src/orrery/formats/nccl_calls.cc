#include "orrery/formats/nccl_calls.h"

#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kInfo = "NCCL INFO ";
// Bytes by ncclDataType_t (nccl.h): int8, uint8, int32, uint32, int64, uint64, float16, float32,
// float64, bfloat16, float8e4m3, float8e5m2.
constexpr std::int64_t kTypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

// The word behind `key`, which stands alone; empty if the key is not there.
std::string_view Word(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at > 0 && text[at - 1] != ' ' && text[at - 1] != '[') continue;
    std::string_view word = text.substr(at + key.size());
    return word.substr(0, word.find_first_of(" ]\r"));
  }
  return {};
}
std::optional<std::int64_t> Number(std::string_view word, int base = 10) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (error != std::errc() || end != word.data() + word.size() || value < 0) return {};
  return value;
}

class LogReader {
 public:
  LogReader(const std::string& file, NcclCalls* out) : file_(file), out_(*out) {
    for (std::uint32_t i = 0; i < out_.communicators.size(); ++i) {
      known_[{out_.communicators[i].process, out_.communicators[i].address}] = i;
    }
  }

  Status Line(std::string_view line, std::int64_t number) {
    const std::size_t info = line.find(kInfo);
    if (info == std::string_view::npos) return {};
    const std::string process = ProcessOf(line.substr(0, info));
    const std::string_view rest = line.substr(info + kInfo.size());
    if (rest.find("Init COMPLETE") != std::string_view::npos) return Init(rest, process, number);
    const std::size_t colon = rest.find(": opCount ");
    if (colon == std::string_view::npos) return {};
    return Call(rest.substr(0, colon), rest, process, number);
  }

 private:
  template <class... Args>
  Status Fail(std::int64_t line, fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidInput("{}:{}: {}", Printable(file_), line,
                        fmt::format(format, std::forward<Args>(args)...));
  }
  // "host:pid:tid [device] ": the thread is left out.
  static std::string ProcessOf(std::string_view prefix) {
    const std::size_t bracket = prefix.rfind('[');
    const std::string_view device =
        bracket == std::string_view::npos ? std::string_view() : prefix.substr(bracket);
    std::string_view who = prefix.substr(0, bracket);
    while (who.ends_with(' ')) who.remove_suffix(1);
    who = who.substr(who.rfind(' ') == std::string_view::npos ? 0 : who.rfind(' ') + 1);
    const std::size_t thread = who.rfind(':');
    std::string process(who.substr(0, thread));
    process += ' ';
    return process.append(device.substr(0, device.find(']') + 1));
  }

  Status Init(std::string_view rest, const std::string& process, std::int64_t line) {
    const auto rank = Number(Word(rest, "rank ")), ranks = Number(Word(rest, "nranks "));
    if (!rank || !ranks || *rank >= *ranks) {
      return Fail(line, "a communicator's line without 'rank R nranks N'");
    }
    NcclCalls::Communicator c;
    c.process = process;
    c.address = Word(rest, "comm ");
    c.id = Word(rest, "commId ");
    c.rank = *rank;
    c.ranks = *ranks;
    if (c.id.empty()) {
      return Fail(line, "a communicator without 'commId': NCCL before 2.17 does not write it");
    }
    known_[{process, c.address}] = static_cast<std::uint32_t>(out_.communicators.size());
    out_.communicators.push_back(std::move(c));
    return {};
  }

  Status Call(std::string_view name, std::string_view rest, const std::string& process,
              std::int64_t line) {
    const std::string address(Word(rest, "comm "));
    const auto known = known_.find({process, address});
    if (known == known_.end()) {
      return Fail(line,
                  "communicator {} of {} was never made in this log: take NCCL_DEBUG_SUBSYS=INIT,"
                  "COLL, and the log from its beginning",
                  Printable(address, 40), Printable(process, 60));
    }
    const auto count = Number(Word(rest, "count ")), type = Number(Word(rest, "datatype "));
    const auto root = Number(Word(rest, "root ")), number = Number(Word(rest, "opCount "), 16);
    if (!count || !type || !root || !number) {
      return Fail(line, "'{}' without count, datatype, root or opCount", Printable(name, 40));
    }
    if (static_cast<std::size_t>(*type) >= std::size(kTypeBytes)) {
      return Fail(line, "datatype {} is unknown", *type);
    }
    NcclCalls::Call call;
    call.communicator = known->second;
    call.name = name;
    call.type = *type;
    call.root = *root;
    call.stream = Word(rest, "stream ");
    call.group = *number;
    call.line = line;
    if (__builtin_mul_overflow(*count, kTypeBytes[*type], &call.bytes)) {
      return Fail(line, "{} elements", *count);
    }
    out_.calls.push_back(std::move(call));
    return {};
  }

  const std::string& file_;
  NcclCalls& out_;
  std::map<std::pair<std::string, std::string>, std::uint32_t> known_;
};

// Of an object of the inspector's: nothing where the key has no number from 0 on.
std::optional<std::int64_t> RecordNumber(const Json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_number()) return {};
  const double value = object[key].get<double>();
  if (!(value >= 0 && value < 9e18)) return {};
  return static_cast<std::int64_t>(value);
}
std::string RecordText(const Json& object, const char* key) {
  if (!object.contains(key)) return {};
  return object[key].is_string() ? object[key].get<std::string>() : object[key].dump();
}

// The inspector's lines, a record each.
class InspectorReader {
 public:
  InspectorReader(const std::string& file, NcclCalls* out) : file_(file), out_(*out) {
    for (std::uint32_t i = 0; i < out_.communicators.size(); ++i) {
      known_.try_emplace(KeyOf(out_.communicators[i]), i);
    }
  }

  Status Line(std::string_view text, std::int64_t line) {
    const Json record = Json::parse(text, nullptr, false);
    if (!record.is_object()) return Fail(line, "no record of NCCL's inspector");
    const auto part = [&](const char* key) {
      return record.contains(key) && record[key].is_object() ? record[key] : Json::object();
    };
    const Json header = part("header"), metadata = part("metadata"), perf = part("coll_perf");
    if (perf.empty()) return {};  // of messages, or of nothing
    const auto rank = RecordNumber(header, "rank"), ranks = RecordNumber(header, "n_ranks");
    const auto bytes = RecordNumber(perf, "coll_msg_size_bytes");
    if (!rank || !ranks || *rank >= *ranks || !bytes) {
      return Fail(line, "a record without rank, n_ranks or coll_msg_size_bytes");
    }
    NcclCalls::Communicator c;
    c.process = fmt::format("{}:{}", RecordText(metadata, "hostname"), RecordText(metadata, "pid"));
    c.id = c.address = RecordText(header, "id");
    c.rank = *rank;
    c.ranks = *ranks;
    NcclCalls::Call call;
    call.communicator = NumberedAs(std::move(c));
    call.name = RecordText(perf, "coll");
    call.bytes = *bytes;
    call.group = RecordNumber(perf, "coll_sn").value_or(0);
    call.line = line;
    if (perf.contains("coll_exec_time_us") && perf["coll_exec_time_us"].is_number()) {
      const double us = perf["coll_exec_time_us"].get<double>();
      if (!(us >= 0 && us < 4e12)) return Fail(line, "coll_exec_time_us is no time");
      call.took_ns = static_cast<std::int64_t>(us * 1e3 + 0.5);
    }
    out_.calls.push_back(std::move(call));
    return {};
  }

 private:
  using Key = std::tuple<std::string, std::string, std::int64_t>;
  static Key KeyOf(const NcclCalls::Communicator& c) { return {c.process, c.id, c.rank}; }

  Status Fail(std::int64_t line, std::string_view what) const {
    return InvalidInput("{}:{}: {}", Printable(file_), line, what);
  }
  std::uint32_t NumberedAs(NcclCalls::Communicator c) {
    const auto number = static_cast<std::uint32_t>(out_.communicators.size());
    const auto [at, fresh] = known_.try_emplace(KeyOf(c), number);
    if (fresh) out_.communicators.push_back(std::move(c));
    return at->second;
  }

  const std::string& file_;
  NcclCalls& out_;
  std::map<Key, std::uint32_t> known_;
};

}  // namespace

bool IsNcclLog(std::string_view start) { return start.find(kInfo) != std::string_view::npos; }

bool IsNcclInspector(std::string_view start) {
  return start.starts_with('{') && start.find("\"coll_perf\"") != std::string_view::npos &&
         start.find("\"header\"") != std::string_view::npos;
}

Status ParseNcclCalls(std::string_view text, const std::string& file, NcclCalls* calls) {
  const bool inspector = IsNcclInspector(text.substr(0, 65536));
  LogReader log(file, calls);
  InspectorReader records(file, calls);
  std::int64_t number = 0;
  while (!text.empty()) {
    ++number;
    std::string_view line = TakeLine(&text);
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    ORRERY_RETURN_IF_ERROR(inspector ? records.Line(line, number) : log.Line(line, number));
  }
  return {};
}

}  // namespace orrery::formats
