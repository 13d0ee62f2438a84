#include "orrery/formats/kineto.h"

#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "orrery/formats/raw_json.h"

namespace orrery::formats {
namespace {

namespace ondemand = simdjson::ondemand;
using raw::Error;
using raw::Integer;
using raw::Json;
using raw::Text;
using raw::Unquoted;
using Event = ProfileTrace::Event;
using EventKind = ProfileTrace::Kind;

constexpr std::int64_t kMostMicroseconds = 2'300'000'000'000'000;  // the year 2042

// The keys of an event and of its arguments that are read; the rest is passed over.
enum EventKey : std::size_t {
  kPh,
  kCat,
  kName,
  kPid,
  kTid,
  kTs,
  kDur,
  kCorrelation,
  kExternal,
  kRecordId,
  kDevice,
  kStream,
  kCollective,
  kIn,
  kOut,
  kInSplit,
  kOutSplit,
  kGroupSize,
  kDtype,
  kGroupName,
  kGroupDescription,
  kGroupRanks,
  kSource,
  kDestination,
  kSequence,
  kDims,
  kTypes,
  kValues,
  kWaitStream,
  kWaitCorrelation,
  kKeys
};
constexpr std::array<std::string_view, 7> kEventKeys = {"ph",  "cat", "name", "pid",
                                                        "tid", "ts",  "dur"};
constexpr std::array<std::string_view, kKeys - kCorrelation> kArgumentKeys = {
    "correlation",
    "External id",
    "Record function id",
    "device",
    "stream",
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "In split size",
    "Out split size",
    "Group size",
    "dtype",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Src Rank",
    "Dst Rank",
    "Seq",
    "Input Dims",
    "Input type",
    "Concrete Inputs",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
};

// Microseconds, with a fraction or without, as nanoseconds; exact to three decimals.
bool Nanoseconds(std::string_view token, std::int64_t* ns) {
  const std::string_view digits = Unquoted(token);
  const char* const end = digits.data() + digits.size();
  std::int64_t whole = 0;
  const auto [at, error] = std::from_chars(digits.data(), end, whole);
  if (error != std::errc() || whole > kMostMicroseconds || digits.front() == '-') return false;
  std::int64_t part = 0;
  const char* p = at;
  if (p != end && *p == '.') {
    std::int64_t unit = 100;
    for (++p; p != end && *p >= '0' && *p <= '9'; ++p, unit /= 10) part += unit * (*p - '0');
  }
  if (p != end) {  // an exponent
    double value = 0;
    const auto [last, bad] = std::from_chars(digits.data(), end, value);
    if (bad != std::errc() || last != end ||
        !(value < static_cast<double>(kMostMicroseconds) && value >= 0))
      return false;
    *ns = static_cast<std::int64_t>(value * 1e3);
    return true;
  }
  *ns = whole * 1000 + part;
  return true;
}

// Which of the categories that are read; false for the others.
bool KindOf(std::string_view category, EventKind* kind) {
  struct Named {
    std::string_view name;
    EventKind kind;
  };
  // The last three are those of PyTorch before 1.11.
  static constexpr Named kNamed[] = {{"cpu_op", EventKind::kOperator},
                                     {"user_annotation", EventKind::kAnnotation},
                                     {"cuda_runtime", EventKind::kRuntime},
                                     {"cuda_driver", EventKind::kRuntime},
                                     {"kernel", EventKind::kKernel},
                                     {"gpu_memcpy", EventKind::kCopy},
                                     {"gpu_memset", EventKind::kSet},
                                     {"cuda_sync", EventKind::kSync},
                                     {"xpu_runtime", EventKind::kRuntime},
                                     {"xpu_driver", EventKind::kRuntime},
                                     {"privateuse1_runtime", EventKind::kRuntime},
                                     {"Operator", EventKind::kOperator},
                                     {"Runtime", EventKind::kRuntime},
                                     {"Kernel", EventKind::kKernel}};
  for (const Named& n : kNamed) {
    if (n.name != category) continue;
    *kind = n.kind;
    return true;
  }
  return false;
}

bool OnGpu(EventKind kind) {
  return kind == EventKind::kKernel || kind == EventKind::kCopy || kind == EventKind::kSet ||
         kind == EventKind::kSync;
}

class KinetoReader {
 public:
  KinetoReader(std::string text, const std::string& file)
      : json_(std::move(text), file), file_(file) {}

  Result<ProfileTrace> Read() {
    ORRERY_RETURN_IF_ERROR(json_.Open(kMostKinetoBytes, "; trace fewer steps"));
    const Error error = ReadDocument(json_.root());
    if (!fault_.ok()) return fault_;
    if (error != simdjson::SUCCESS) return json_.Broken(error);
    if (!has_events_) {
      return InvalidInput("'{}': no 'traceEvents': no trace of PyTorch's profiler",
                          Printable(file_));
    }
    const char* rest = nullptr;
    if (json_.root().current_location().get(rest) == simdjson::SUCCESS) {
      return InvalidInput("'{}', byte {}: more behind the end of the trace", Printable(file_),
                          rest - json_.json().data());
    }
    SortEvents(&out_.events);
    return std::move(out_);
  }

 private:
  template <class... Args>
  Error Fail(std::string_view token, fmt::format_string<Args...> format, Args&&... args) {
    if (fault_.ok()) {
      fault_ =
          InvalidInput("'{}', byte {}: {}", Printable(file_), token.data() - json_.json().data(),
                       fmt::format(format, std::forward<Args>(args)...));
    }
    return simdjson::INCORRECT_TYPE;
  }

  Error ReadDocument(ondemand::document& document) {
    ondemand::json_type type{};
    if (auto error = document.type().get(type)) return error;
    if (type == ondemand::json_type::array) {  // Chrome's older form: the events alone
      ondemand::array events;
      if (auto error = document.get_array().get(events)) return error;
      return ReadEvents(events);
    }
    ondemand::object top;
    if (auto error = document.get_object().get(top)) return error;
    return raw::ForEachMember(top, [&](std::string_view key, ondemand::value value) {
      if (key == "traceEvents") {
        ondemand::array events;
        if (auto error = value.get_array().get(events)) return error;
        return ReadEvents(events);
      }
      for (const std::string_view wanted :
           {"distributedInfo", "deviceProperties", "baseTimeNanoseconds", "host_name"}) {
        if (key != wanted) continue;
        std::string_view text;
        if (auto error = raw::Take(value, &text)) return error;
        return ReadFact(wanted, text);
      }
      return simdjson::SUCCESS;
    });
  }

  Error ReadFact(std::string_view key, std::string_view text) {
    if (key == "baseTimeNanoseconds") {
      out_.base_ns = Integer(text, -1);
      if (out_.base_ns < 0 || out_.base_ns > kMostMicroseconds * 1000) {
        return Fail(text, "'baseTimeNanoseconds' is {}", Printable(text, 40));
      }
      return simdjson::SUCCESS;
    }
    const Json value = raw::Tree(text);
    if (value.is_discarded()) return Fail(text, "'{}' cannot be read", key);
    if (key == "host_name") {
      if (value.is_string()) out_.host = value.get<std::string>();
    } else if (key == "deviceProperties") {
      for (const Json& gpu : value.is_array() ? value : Json::array()) {
        if (gpu.is_object() && gpu.contains("name") && gpu["name"].is_string()) {
          out_.gpus.push_back(gpu["name"].get<std::string>());
        }
      }
    } else {
      ReadDistributed(value);
    }
    return simdjson::SUCCESS;
  }

  static std::int64_t Number(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key)) return -1;
    const Json& value = object[key];
    if (value.is_number_integer()) return value.get<std::int64_t>();
    return value.is_string() ? Integer(value.get_ref<const std::string&>(), -1) : -1;
  }
  static std::string Word(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key)) return {};
    const Json& value = object[key];
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  void ReadDistributed(const Json& info) {
    out_.rank = Number(info, "rank");
    out_.world = Number(info, "world_size");
    out_.backend = Word(info, "backend");
    if (!info.is_object() || !info.contains("pg_config")) return;
    Json groups = info["pg_config"];
    if (groups.is_string()) groups = Json::parse(groups.get<std::string>(), nullptr, false);
    for (const Json& g : groups.is_array() ? groups : Json::array()) {
      ProfileTrace::Group group;
      group.name = Word(g, "pg_name");
      group.description = Word(g, "pg_desc");
      group.size = Number(g, "pg_size");
      if (group.size < 0) group.size = Number(g, "group_size");
      Json ranks = g.is_object() && g.contains("ranks") ? g["ranks"] : Json();
      if (ranks.is_string()) ranks = Json::parse(ranks.get<std::string>(), nullptr, false);
      group.ranks = raw::RanksOf(ranks);
      out_.groups.push_back(std::move(group));
    }
  }

  Error ReadEvents(ondemand::array events) {
    has_events_ = true;
    for (auto each : events) {
      ondemand::object event;
      if (auto error = each.get_object().get(event)) return error;
      values_.fill({});
      const Error error =
          raw::ForEachMember(event, [&](std::string_view key, ondemand::value value) {
            if (key == "args") return ReadArguments(value);
            for (std::size_t k = 0; k < kEventKeys.size(); ++k) {
              if (kEventKeys[k] == key) return raw::Take(value, &values_[k]);
            }
            return simdjson::SUCCESS;
          });
      if (error != simdjson::SUCCESS) return error;
      if (auto fault = AddEvent()) return fault;
    }
    return simdjson::SUCCESS;
  }
  Error ReadArguments(ondemand::value value) {
    ondemand::json_type type{};
    if (auto error = value.type().get(type)) return error;
    if (type != ondemand::json_type::object) return simdjson::SUCCESS;
    ondemand::object arguments;
    if (auto error = value.get_object().get(arguments)) return error;
    return raw::ForEachMember(arguments, [&](std::string_view key, ondemand::value argument) {
      for (std::size_t k = 0; k < kArgumentKeys.size(); ++k) {
        if (kArgumentKeys[k] == key) return raw::Take(argument, &values_[kCorrelation + k]);
      }
      return simdjson::SUCCESS;
    });
  }

  Error AddEvent() {
    EventKind kind{};
    if (Unquoted(values_[kPh]) != "X" || !KindOf(Unquoted(values_[kCat]), &kind)) {
      return simdjson::SUCCESS;
    }
    Event event;
    event.kind = kind;
    const std::string_view at = values_[kName].empty() ? values_[kPh] : values_[kName];
    event.offset = static_cast<std::uint64_t>(at.data() - json_.json().data());
    if (values_[kName].empty()) return Fail(at, "an event without a name");
    if (values_[kTs].empty()) {
      return Fail(at, "event '{}' has no 'ts'", Printable(Unquoted(values_[kName]), 60));
    }
    const std::pair<EventKey, std::int64_t*> times[] = {{kTs, &event.start_ns},
                                                        {kDur, &event.duration_ns}};
    for (const auto& [key, to] : times) {
      if (values_[key].empty()) continue;
      if (!Nanoseconds(values_[key], to)) {
        return Fail(values_[key], "'{}' of event '{}' is no number of microseconds: {}",
                    kEventKeys[key], Printable(Unquoted(values_[kName]), 60),
                    Printable(values_[key], 40));
      }
    }
    if (event.duration_ns > kLongestNs) {
      return Fail(values_[kDur], "event '{}' lasts {} us, more than 46 days",
                  Printable(Unquoted(values_[kName]), 60), Printable(values_[kDur], 40));
    }
    event.name = NameOf(values_[kName]);
    event.track = TrackOf(kind);
    if (out_.tracks.size() > kMostTracks) {
      return Fail(at, "more than {} threads and streams", kMostTracks);
    }
    event.correlation = Integer(values_[kCorrelation], -1);
    event.external = Integer(values_[kExternal], -1);
    event.record = Integer(values_[kRecordId], -1);
    if (kind == EventKind::kSync) {
      event.detail = static_cast<std::uint32_t>(out_.waits.size());
      out_.waits.push_back(
          {Integer(values_[kWaitStream].empty() ? values_[kStream] : values_[kWaitStream], -1),
           Integer(values_[kWaitCorrelation], -1)});
    } else if (Communicates(event)) {
      event.detail = static_cast<std::uint32_t>(out_.comms.size());
      out_.comms.push_back(ReadComm());
    }
    if (!OnGpu(kind) && out_.process < 0) out_.process = out_.tracks[event.track].process;
    out_.events.push_back(event);
    return simdjson::SUCCESS;
  }

  // Whether it comes with arguments that say what is communicated.
  bool Communicates(const Event& event) const {
    if (!values_[kCollective].empty()) return true;
    if (OnGpu(event.kind) || event.kind == EventKind::kRuntime) return false;
    return IsCommunication(out_.names[event.name]);
  }
  ProfileTrace::Comm ReadComm() const {
    ProfileTrace::Comm comm;
    comm.collective = Text(values_[kCollective]);
    comm.dtype = Text(values_[kDtype]);
    comm.group = Text(values_[kGroupName]);
    comm.description = Text(values_[kGroupDescription]);
    comm.ranks = Text(values_[kGroupRanks]);
    comm.in = Integer(values_[kIn], -1);
    comm.out = Integer(values_[kOut], -1);
    comm.in_split = Text(values_[kInSplit]);
    comm.out_split = Text(values_[kOutSplit]);
    comm.group_size = Integer(values_[kGroupSize], -1);
    comm.source = Integer(values_[kSource], -1);
    comm.destination = Integer(values_[kDestination], -1);
    comm.sequence = Integer(values_[kSequence], -1);
    const auto list = [](std::string_view text) {
      Json value = raw::Tree(text);
      return value.is_array() ? value : Json::array();
    };
    for (const Json& dims : list(values_[kDims])) comm.elements.push_back(raw::Elements(dims));
    const auto words = [&](EventKey key, std::vector<std::string>* to) {
      for (const Json& word : list(values_[key])) {
        to->push_back(word.is_string() ? word.get<std::string>() : word.dump());
      }
    };
    words(kTypes, &comm.types);
    words(kValues, &comm.values);
    return comm;
  }

  std::uint32_t NameOf(std::string_view token) {
    const auto [at, fresh] =
        names_.try_emplace(token, static_cast<std::uint32_t>(out_.names.size()));
    if (fresh) out_.names.push_back(Text(token));
    return at->second;
  }
  // A GPU's event has its device and stream as arguments, and the same as pid and tid.
  std::uint32_t TrackOf(EventKind kind) {
    ProfileTrace::Track track;
    track.gpu = OnGpu(kind);
    track.process = Integer(values_[kPid], -1);
    track.number = Integer(values_[kTid], -1);
    if (track.gpu) {
      track.process = Integer(values_[kDevice], track.process);
      track.number = Integer(values_[kStream], track.number);
    }
    const auto [at, fresh] = tracks_.try_emplace({track.gpu, track.process, track.number},
                                                 static_cast<std::uint32_t>(out_.tracks.size()));
    if (fresh) out_.tracks.push_back(track);
    return at->second;
  }

  raw::Document json_;
  const std::string& file_;
  ProfileTrace out_;
  Status fault_;
  bool has_events_ = false;
  std::array<std::string_view, kKeys> values_;
  std::unordered_map<std::string_view, std::uint32_t> names_;  // by token
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, std::uint32_t> tracks_;
};

}  // namespace

bool IsKineto(std::string_view start) {
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  if (start[first] == '[') return start.find("\"ph\"") != std::string_view::npos;
  if (start[first] != '{') return false;
  for (const std::string_view key :
       {"\"traceEvents\"", "\"deviceProperties\"", "\"baseTimeNanoseconds\""}) {
    if (start.find(key) != std::string_view::npos) return true;
  }
  return false;
}

Result<ProfileTrace> ParseKineto(std::string text, const std::string& file) {
  return KinetoReader(std::move(text), file).Read();
}

}  // namespace orrery::formats
