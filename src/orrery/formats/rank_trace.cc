#include "orrery/formats/rank_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/gzip.h"

namespace orrery::formats {
namespace {

using Json = nlohmann::json;
using TraceKind = TraceEvent::Kind;

constexpr std::int64_t kLargestIndex = std::int64_t{64} << 20;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;

// Keys of one JSON object, checked; the first fault is kept.
class Keys {
 public:
  Keys(const Json& object, Status* status) : object_(object), status_(*status) {}

  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  bool IsText(const char* key) const { return Has(key) && object_[key].is_string(); }
  std::int64_t Integer(const char* key, std::optional<std::int64_t> fallback = {}) {
    if (!Has(key)) {
      if (fallback) return *fallback;
      Fail("key '{}' is missing", key);
      return 0;
    }
    const Json& value = object_[key];
    if (!IsInteger(value)) {
      Fail("key '{}' is no whole number", key);
      return 0;
    }
    return value.get<std::int64_t>();
  }
  // From 0 to `most`.
  std::int64_t Count(const char* key, std::optional<std::int64_t> fallback = {},
                     std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    const std::int64_t value = Integer(key, fallback);
    if (value >= 0 && value <= most) return value;
    Fail("key '{}' is {}, not from 0 to {}", key, value, most);
    return 0;
  }
  std::string Text(const char* key, const std::optional<std::string>& fallback = {}) {
    if (!Has(key)) {
      if (!fallback) Fail("key '{}' is missing", key);
      return fallback.value_or("");
    }
    if (!object_[key].is_string()) Fail("key '{}' is no text", key);
    return object_[key].is_string() ? object_[key].get<std::string>() : "";
  }
  bool Bool(const char* key, bool fallback) {
    if (!Has(key)) return fallback;
    if (!object_[key].is_boolean()) Fail("key '{}' is neither true nor false", key);
    return object_[key].is_boolean() && object_[key].get<bool>();
  }
  std::vector<std::int64_t> Integers(const char* key) {
    if (!Has(key)) return {};
    return IntegersOf(object_[key], key);
  }
  std::vector<std::int64_t> IntegersOf(const Json& list, const char* key) {
    std::vector<std::int64_t> out;
    if (!list.is_array()) Fail("key '{}' is no list", key);
    for (const Json& item : list) {
      if (!IsInteger(item)) {
        Fail("key '{}' holds what is no whole number", key);
        break;
      }
      out.push_back(item.get<std::int64_t>());
    }
    return out;
  }
  // The list behind a key; an empty one where it is none.
  const Json& List(const char* key) {
    static const Json kNone = Json::array();
    if (Has(key) && object_[key].is_array()) return object_[key];
    Fail("key '{}' is missing, or no list", key);
    return kNone;
  }
  // Runs [first, count, stride].
  std::vector<std::uint32_t> Ranks(const char* key, std::int64_t world) {
    std::vector<std::uint32_t> ranks;
    for (const Json& run : List(key)) {
      const std::vector<std::int64_t> r = IntegersOf(run, key);
      if (r.size() != 3 || r[0] < 0 || r[1] < 1 || r[2] < 1 || r[0] >= world || r[1] > world ||
          r[2] > world || r[0] + (r[1] - 1) * r[2] >= world) {
        Fail("key '{}': a run is [first, count, stride] within a world of {}", key, world);
        return ranks;
      }
      if (static_cast<std::int64_t>(ranks.size()) + r[1] > world) {
        Fail("key '{}' names more ranks than the world of {}", key, world);
        return ranks;
      }
      for (std::int64_t i = 0; i < r[1]; ++i) {
        ranks.push_back(static_cast<std::uint32_t>(r[0] + i * r[2]));
      }
    }
    return ranks;
  }
  template <class... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    if (status_.ok()) status_ = InvalidInput(format, std::forward<Args>(args)...);
  }

 private:
  static bool IsInteger(const Json& value) {
    if (!value.is_number_integer()) return false;
    return !value.is_number_unsigned() ||
           value.get<std::uint64_t>() <=
               static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  }

  const Json& object_;
  Status& status_;
};

struct NamedKind {
  std::string_view name;
  TraceKind kind;
};
constexpr NamedKind kKinds[] = {
    {"op", TraceKind::kOp},
    {"comm", TraceKind::kComm},
    {"call_begin", TraceKind::kCallBegin},
    {"call_end", TraceKind::kCallEnd},
    {"wait", TraceKind::kWait},
    {"record", TraceKind::kRecord},
    {"await", TraceKind::kAwait},
    {"sync", TraceKind::kSync},
    {"resident", TraceKind::kResident},
    {"alloc", TraceKind::kAlloc},
    {"resize", TraceKind::kResize},
    {"free", TraceKind::kFree},
    {"use", TraceKind::kUse},
    {"routing", TraceKind::kRouting},
    {"mark", TraceKind::kMark},
};
constexpr std::int64_t kLongestOperator = 3'600'000'000'000;  // of an operator: an hour
constexpr std::array<std::string_view, 7> kPasses = {
    "", "forward", "backward", "backward_input", "backward_weight", "recompute", "optimizer"};
constexpr std::array<std::string_view, 6> kStorages = {"other",     "parameter", "gradient",
                                                       "optimizer", "buffer",    "library"};

class RankReader {
 public:
  explicit RankReader(const std::string& file) { trace_.file = file; }

  Result<RankTrace> Read(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = TakeLine(&text);
      ++line_;
      Status status = Add(line);
      if (!status.ok()) {
        return std::move(status).In(fmt::format("{}:{}", Printable(trace_.file), line_));
      }
    }
    if (!ended_) {
      return InvalidInput("{}: cut off after {} lines: the last line, 'end', is missing",
                          Printable(trace_.file), line_);
    }
    return std::move(trace_);
  }

 private:
  Status Add(std::string_view line) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object()) return InvalidInput("no JSON object");
    Status status;
    Keys keys(json, &status);
    const std::string t = keys.Text("t");
    if (!status.ok()) return status;
    if (ended_) return InvalidInput("lines follow the last one, 'end'");
    if ((line_ == 1) != (t == "trace")) {
      return InvalidInput("{}", line_ == 1
                                    ? "the first line is no 'trace': this is no trace of a rank"
                                    : "a second header");
    }
    ++counts_[t];
    if (!Table(t, json, &keys)) AddEvent(t, &keys);
    return status;
  }

  // Headers and tables; false: something else.
  bool Table(const std::string& t, const Json& json, Keys* keys) {
    if (t == "trace") {
      Header(keys);
    } else if (t == "step") {
      in_step_ = true;
    } else if (t == "sig") {
      InOrder(keys, trace_.signatures.size());
      trace_.signatures.push_back(Signature(json, keys));
    } else if (t == "group") {
      InOrder(keys, trace_.groups.size());
      trace_.groups.push_back({keys->Text("name"), keys->Text("description", ""),
                               keys->Ranks("ranks", trace_.world_size)});
    } else if (t == "module") {
      InOrder(keys, trace_.modules.size());
      trace_.modules.push_back(keys->Text("path"));
    } else if (t == "assumed") {
      std::string text = keys->Text("what");
      if (std::ranges::find(trace_.assumed, text) == trace_.assumed.end()) {
        trace_.assumed.push_back(std::move(text));
      }
    } else if (t == "end") {
      End(json, keys);
    } else {
      return false;
    }
    return true;
  }
  void Header(Keys* keys) {
    const std::int64_t version = keys->Integer("version");
    if (version != kRankTraceVersion) {
      keys->Fail("trace version {}; this program reads version {}", version, kRankTraceVersion);
    }
    trace_.world_size = static_cast<std::uint32_t>(keys->Count("world_size", {}, kMostRanks));
    trace_.rank = static_cast<std::uint32_t>(keys->Count("rank", {}, kMostRanks));
    if (trace_.rank >= trace_.world_size) {
      keys->Fail("rank {} of a world of {}", trace_.rank, trace_.world_size);
    }
    trace_.torch = keys->Text("torch", "");
    trace_.device = keys->Text("device", "cuda");
    trace_.gpu = keys->Text("gpu", "");
  }
  static void InOrder(Keys* keys, std::size_t expected) {
    const std::int64_t id = keys->Integer("id");
    if (id != static_cast<std::int64_t>(expected)) {
      keys->Fail("id {} where {} comes next", id, expected);
    }
  }
  void End(const Json& json, Keys* keys) {
    ended_ = true;
    trace_.peak_bytes = keys->Count("peak_bytes");
    --counts_["end"];
    const Json counts = json.value("counts", Json::object());
    if (!counts.is_object()) keys->Fail("key 'counts' is no object");
    for (const auto& [name, said] : counts.items()) {
      const auto found = counts_.find(name);
      const std::int64_t lines = found == counts_.end() ? 0 : found->second;
      if (said == lines) continue;
      keys->Fail("{} lines of '{}', and key 'counts' says {}", lines, Printable(name), said.dump());
    }
    for (const auto& [name, lines] : counts_) {
      if (lines == 0 || counts.contains(name)) continue;
      keys->Fail("{} lines of '{}', of which key 'counts' does not know", lines, Printable(name));
    }
  }

  TraceSignature Signature(const Json& json, Keys* keys) {
    TraceSignature s;
    s.name = keys->Text("name");
    s.overload = keys->Text("overload", "");
    for (const bool in : {true, false}) {
      for (const Json& tensor : keys->List(in ? "in" : "out")) {
        (in ? s.in : s.out).push_back(Tensor(tensor, keys));
      }
    }
    if (json.contains("args") && json["args"].is_object()) {
      s.causal = json["args"].value("is_causal", Json(false)) == Json(true);
    }
    s.kernel = keys->Bool("kernel", true);
    s.read = keys->Count("read", 0);
    s.written = keys->Count("written", 0);
    s.flops = keys->Count("flops", 0);
    return s;
  }
  static TraceTensor Tensor(const Json& row, Keys* keys) {
    TraceTensor t;
    if (!row.is_array() || row.size() < 2 || row.size() > 4 || !row[0].is_string()) {
      keys->Fail("a tensor is [type, shape, strides, device]");
      return t;
    }
    t.type = row[0].get<std::string>();
    t.shape = keys->IntegersOf(row[1], "shape");
    if (row.size() > 2 && !row[2].is_null()) t.strides = keys->IntegersOf(row[2], "strides");
    t.on_device = row.size() < 4 || row[3] == "cuda";
    if (std::ranges::any_of(t.shape, [](std::int64_t n) { return n < 0; }) ||
        (!t.strides.empty() && t.strides.size() != t.shape.size())) {
      keys->Fail("a tensor whose shape is negative, or has other dimensions than its strides");
    }
    return t;
  }

  void AddEvent(const std::string& t, Keys* keys) {
    const auto row = std::ranges::find(kKinds, t, &NamedKind::name);
    if (row == std::end(kKinds)) {
      std::vector<std::string_view> valid;
      for (const NamedKind& k : kKinds) valid.push_back(k.name);
      keys->Fail("{}", UnknownName("kind of line", Printable(t), valid));
      return;
    }
    TraceEvent e;
    e.kind = row->kind;
    e.line = line_;
    Place(keys, &e);
    Content(keys, &e);
    if (!in_step_ && e.kind != TraceKind::kAlloc && e.kind != TraceKind::kFree &&
        e.kind != TraceKind::kResize && e.kind != TraceKind::kUse) {
      return;  // of what came before the step only memory counts
    }
    (in_step_ ? trace_.step : trace_.setup).push_back(e);
  }
  void Place(Keys* keys, TraceEvent* e) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const std::string pass = keys->Text("pass", "");
    const auto found = std::ranges::find(kPasses, pass);
    if (found == kPasses.end()) {
      keys->Fail("key 'pass': {}", UnknownName("pass", Printable(pass), kPasses));
    }
    e->pass = static_cast<TraceEvent::Pass>(found - kPasses.begin());
    const std::int64_t module = keys->Integer("module", -1);
    if (module < -1 || module >= static_cast<std::int64_t>(trace_.modules.size())) {
      keys->Fail("key 'module': {} of {}", module, trace_.modules.size());
    }
    e->module = static_cast<std::int32_t>(module);
    if (e->kind != TraceKind::kRouting) {
      e->micro_batch =
          keys->Has("mb") ? static_cast<std::int32_t>(keys->Count("mb", {}, kMost)) : -1;
    }
    const char* key = e->kind == TraceKind::kWait   ? "by"
                      : e->kind == TraceKind::kSync ? "of"
                                                    : "stream";
    e->stream = Stream(keys, key, e->kind);
  }
  static std::int32_t Stream(Keys* keys, const char* key, TraceKind kind) {
    constexpr std::int64_t kMostStreams = 65535;
    const bool named =
        kind == TraceKind::kWait || kind == TraceKind::kAwait || kind == TraceKind::kSync;
    if (named && keys->IsText(key)) {
      const std::string word = keys->Text(key);
      if (word == "host" && kind != TraceKind::kSync) return TraceEvent::kHost;
      if (word == "device" && kind == TraceKind::kSync) return TraceEvent::kDevice;
      keys->Fail("key '{}': '{}' is no stream", key, Printable(word));
      return 0;
    }
    return static_cast<std::int32_t>(keys->Count(key, 0, kMostStreams));
  }
  void Content(Keys* keys, TraceEvent* e) {
    switch (e->kind) {
      case TraceKind::kOp:
        e->number = keys->Count("sig");
        if (e->number >= static_cast<std::int64_t>(trace_.signatures.size())) {
          keys->Fail("key 'sig': {} of {}", e->number, trace_.signatures.size());
        }
        if (keys->Has("ns")) e->nanoseconds = keys->Count("ns", {}, kLongestOperator);
        break;
      case TraceKind::kComm:
        e->number = keys->Count("id");
        e->comm = static_cast<std::int32_t>(trace_.comms.size());
        trace_.comms.push_back(Comm(keys));
        break;
      case TraceKind::kCallBegin:
        e->number = keys->Count("call");
        break;
      case TraceKind::kCallEnd:
        e->number = keys->Integer("id", -1);
        break;
      case TraceKind::kWait:
        e->number = keys->Count("comm");
        break;
      case TraceKind::kRecord:
      case TraceKind::kAwait:
        e->number = keys->Integer("event");
        break;
      case TraceKind::kResident:
      case TraceKind::kAlloc:
      case TraceKind::kResize:
        Storage(keys, e);
        break;
      case TraceKind::kFree:
      case TraceKind::kUse:
        e->number = keys->Count("storage");
        break;
      case TraceKind::kSync:
      case TraceKind::kRouting:
      case TraceKind::kMark:
        break;
    }
  }
  static void Storage(Keys* keys, TraceEvent* e) {
    constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
    e->number = keys->Count("storage");
    e->bytes = keys->Count("bytes", {}, kMostBytes);
    e->on_device = keys->Text("device", "cuda") == "cuda";
    const std::string what = keys->Text("what", "other");
    const auto found = std::ranges::find(kStorages, what);
    if (found == kStorages.end()) {
      keys->Fail("key 'what': {}", UnknownName("storage", Printable(what), kStorages));
    }
    e->what = static_cast<TraceStorage>(found - kStorages.begin());
  }
  TraceComm Comm(Keys* keys) const {
    constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
    TraceComm c;
    c.kind = keys->Text("kind");
    c.op = keys->Text("op", "");
    c.dtype = keys->Text("dtype", "");
    c.reduce = keys->Text("reduce", "");
    c.group = static_cast<std::size_t>(keys->Count("group"));
    if (c.group >= trace_.groups.size()) {
      keys->Fail("key 'group': {} of {}", c.group, trace_.groups.size());
    }
    c.send = keys->Count("send", 0, kMostBytes);
    c.recv = keys->Count("recv", 0, kMostBytes);
    c.send_each = keys->Integers("send_each");
    c.recv_each = keys->Integers("recv_each");
    c.coalesced = keys->Bool("coalesced", false);
    c.blocking = !keys->Bool("async", true);
    c.peer = keys->Integer("peer", -1);
    if (c.peer < -1 || c.peer >= trace_.world_size) {
      keys->Fail("key 'peer': {} in a world of {}", c.peer, trace_.world_size);
    }
    c.tag = keys->Count("tag", 0, std::numeric_limits<std::int32_t>::max());
    return c;
  }

  RankTrace trace_;
  std::map<std::string, std::int64_t> counts_;
  std::uint32_t line_ = 0;
  bool in_step_ = false, ended_ = false;
};

Status ReadMesh(const Json& json, Keys* keys, TraceDirectory* out) {
  if (!json.contains("mesh")) return {};
  std::uint64_t places = 1;
  for (const Json& row : keys->List("mesh")) {
    if (!row.is_array() || row.size() != 2 || !row[0].is_string() || !row[1].is_number_unsigned() ||
        row[1].get<std::uint64_t>() < 1 || row[1].get<std::uint64_t>() > out->world_size) {
      return InvalidInput("key 'mesh': a row is [name, size]");
    }
    out->mesh.push_back({row[0].get<std::string>(), row[1].get<std::uint32_t>()});
    places *= out->mesh.back().size;
    if (places > out->world_size) break;
  }
  if (places != out->world_size) {
    return InvalidInput("key 'mesh': its sizes do not make the world of {}", out->world_size);
  }
  return {};
}

Result<TraceProgram> ReadProgram(const Json& json, const TraceDirectory& index) {
  if (!json.is_object()) return InvalidInput("key 'programs': a row is no object");
  Status status;
  Keys keys(json, &status);
  TraceProgram program;
  program.rank = static_cast<std::uint32_t>(keys.Count("rank", {}, kMostRanks));
  program.file = keys.Text("file");
  program.ranks = keys.Ranks("ranks", index.world_size);
  if (json.contains("groups")) {
    for (const Json& dimensions : keys.List("groups")) {
      std::vector<std::string>& names = program.groups.emplace_back();
      if (dimensions.is_null()) {
        names.emplace_back();  // no plane of the mesh
        continue;
      }
      for (const Json& name : dimensions)
        names.push_back(name.is_string() ? name.get<std::string>() : "");
    }
  }
  // No user's text becomes a path outside of the folder.
  if (program.file.empty() || program.file.find('/') != std::string::npos) {
    keys.Fail("key 'file': '{}' is no file of this folder", Printable(program.file));
  }
  if (!status.ok()) return status;
  return program;
}

}  // namespace

Result<RankTrace> ParseRankTrace(std::string_view text, const std::string& file) {
  return RankReader(file).Read(text);
}

Result<TraceDirectory> ReadTraceDirectory(const std::string& folder, std::int64_t limit_bytes) {
  const std::string path = folder + "/" + kTraceIndex;
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestIndex));
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return InvalidInput("{}: no JSON object; orrery-trace writes this file", Printable(path));
  }
  Status status;
  Keys keys(json, &status);
  const std::int64_t version = keys.Integer("orrery_trace");
  if (status.ok() && version != kRankTraceVersion) {
    status =
        InvalidInput("trace version {}; this program reads version {}", version, kRankTraceVersion);
  }
  TraceDirectory out;
  out.world_size = static_cast<std::uint32_t>(keys.Count("world_size", {}, kMostRanks));
  if (status.ok()) status = ReadMesh(json, &keys, &out);
  for (const Json& row : keys.List("programs")) {
    if (!status.ok()) break;
    Result<TraceProgram> program = ReadProgram(row, out);
    if (program.ok()) {
      out.programs.push_back(*std::move(program));
    } else {
      status = std::move(program).TakeStatus();
    }
  }
  if (status.ok() && json.contains("assumed")) {
    for (const Json& text : keys.List("assumed")) {
      if (!text.is_string()) keys.Fail("key 'assumed': an entry is no text");
      if (text.is_string()) out.assumed.push_back(text.get<std::string>());
    }
  }
  if (status.ok() && out.programs.empty()) status = InvalidInput("key 'programs' is empty");
  if (!status.ok()) return std::move(status).In(Printable(path));
  for (TraceProgram& program : out.programs) {
    const std::string file = folder + "/" + program.file;
    ORRERY_ASSIGN_OR_RETURN(const std::string packed, ReadFile(file, limit_bytes));
    ORRERY_ASSIGN_OR_RETURN(const std::string lines, Gunzip(packed, limit_bytes, file));
    ORRERY_ASSIGN_OR_RETURN(program.trace, ParseRankTrace(lines, file));
    if (program.trace.rank != program.rank || program.trace.world_size != out.world_size) {
      return InvalidInput("{}: of rank {} of {}, and {} says rank {} of {}", Printable(file),
                          program.trace.rank, program.trace.world_size, kTraceIndex, program.rank,
                          out.world_size);
    }
    if (!program.groups.empty() && program.groups.size() != program.trace.groups.size()) {
      return InvalidInput("{}: {} groups, and {} describes {}", Printable(file),
                          program.trace.groups.size(), kTraceIndex, program.groups.size());
    }
  }
  return out;
}

}  // namespace orrery::formats
