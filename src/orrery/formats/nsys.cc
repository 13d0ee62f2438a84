#include "orrery/formats/nsys.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

using EventKind = ProfileTrace::Kind;

constexpr std::int64_t kMostNanoseconds = 2'300'000'000'000'000'000;

// Tables that are read, and no others.
constexpr std::array<const char*, 9> kTables = {"StringIds",
                                                "PROCESSES",
                                                "TARGET_INFO_GPU",
                                                "CUPTI_ACTIVITY_KIND_KERNEL",
                                                "CUPTI_ACTIVITY_KIND_MEMCPY",
                                                "CUPTI_ACTIVITY_KIND_MEMSET",
                                                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                                                "CUPTI_ACTIVITY_KIND_RUNTIME",
                                                "NVTX_EVENTS"};

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinishStatement {
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinishStatement>;

// Selects on listed tables only. The schema's own table may be read before anything else.
int Authorise(void*, int action, const char* what, const char*, const char*, const char* inner) {
  if (inner != nullptr) return SQLITE_DENY;  // of a view or a trigger
  if (action == SQLITE_SELECT) return SQLITE_OK;
  if (action != SQLITE_READ || what == nullptr) return SQLITE_DENY;
  if (std::string_view(what) == "sqlite_master") return SQLITE_OK;
  for (const char* table : kTables) {
    if (std::string_view(table) == what) return SQLITE_OK;
  }
  return SQLITE_DENY;
}

class NsysReader {
 public:
  NsysReader(const std::string& path, const NsysLimits& limits) : path_(path), limits_(limits) {}

  Result<std::vector<ProfileTrace>> Read() {
    ORRERY_RETURN_IF_ERROR(Open());
    ORRERY_RETURN_IF_ERROR(FindTables());
    ORRERY_RETURN_IF_ERROR(ReadNames());
    ORRERY_RETURN_IF_ERROR(ReadGpuTable("CUPTI_ACTIVITY_KIND_KERNEL", EventKind::kKernel));
    if (processes_.empty()) {
      return InvalidInput(
          "'{}': no kernels: export a report that was traced with --trace=cuda,nvtx",
          Printable(path_));
    }
    ORRERY_RETURN_IF_ERROR(ReadGpuTable("CUPTI_ACTIVITY_KIND_MEMCPY", EventKind::kCopy));
    ORRERY_RETURN_IF_ERROR(ReadGpuTable("CUPTI_ACTIVITY_KIND_MEMSET", EventKind::kSet));
    ORRERY_RETURN_IF_ERROR(ReadThreads("CUPTI_ACTIVITY_KIND_RUNTIME", EventKind::kRuntime));
    ORRERY_RETURN_IF_ERROR(ReadThreads("NVTX_EVENTS", EventKind::kAnnotation));
    std::vector<ProfileTrace> traces;
    for (auto& [process, made] : processes_) {
      ProfileTrace& t = made.trace;
      t.process = process;
      if (t.tracks.size() > kMostTracks) {
        return InvalidInput("'{}': process {} has more than {} threads and streams",
                            Printable(path_), process, kMostTracks);
      }
      t.gpus = gpus_;
      t.host = host_;
      SortEvents(&t.events);
      traces.push_back(std::move(t));
    }
    return traces;
  }

 private:
  struct Process {
    ProfileTrace trace;
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> threads, streams;
    std::unordered_map<std::string, std::uint32_t> names;
  };

  Status Fail(std::string_view what) const {
    if (sqlite3_errcode(db_.get()) == SQLITE_NOMEM) {
      return ResourceError("'{}': {}: out of memory", Printable(path_), what);
    }
    return InvalidInput("'{}': {}: {}", Printable(path_), what,
                        Printable(sqlite3_errmsg(db_.get()), 120));
  }

  Status Open() {
    std::error_code error;
    const auto size = std::filesystem::file_size(path_, error);
    if (error) return InvalidInput("'{}': {}", Printable(path_), error.message());
    if (static_cast<std::int64_t>(size) > limits_.file_bytes) {
      return InvalidInput("'{}': {}, where {} are the most", Printable(path_),
                          HumanBytes(static_cast<std::int64_t>(size)),
                          HumanBytes(limits_.file_bytes));
    }
    // A file name as a URI: what is special there is written as %XX.
    std::string uri = "file:";
    for (const char c : std::filesystem::absolute(path_).string()) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '/' || c == '.' || c == '-' || c == '_';
      uri += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    uri += "?mode=ro&immutable=1";
    sqlite3* db = nullptr;
    const int opened =
        sqlite3_open_v2(uri.c_str(), &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
    db_.reset(db);
    if (opened != SQLITE_OK) return Fail("cannot be opened");
    for (const auto& [option, value] : {std::pair{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                        {SQLITE_DBCONFIG_ENABLE_VIEW, 0}}) {
      sqlite3_db_config(db, option, value, nullptr);
    }
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 20);
    sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, 1 << 16);
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 100'000);
    constexpr int kEvery = 1'000'000;
    sqlite3_progress_handler(
        db, kEvery,
        [](void* self) {
          auto* reader = static_cast<NsysReader*>(self);
          reader->steps_ += kEvery;
          return reader->steps_ > reader->limits_.steps ? 1 : 0;
        },
        this);
    for (const char* pragma : {"PRAGMA cell_size_check=ON", "PRAGMA mmap_size=0"}) {
      sqlite3_exec(db, pragma, nullptr, nullptr, nullptr);
    }
    // A larger file is read table by table, where damage shows as well.
    constexpr std::int64_t kChecked = 256 << 20;
    if (static_cast<std::int64_t>(size) <= kChecked) {
      ORRERY_RETURN_IF_ERROR(ForEach("PRAGMA quick_check(1)", [&](sqlite3_stmt* s) -> Status {
        if (TextAt(s, 0) == "ok") return {};
        return InvalidInput("'{}': damaged: {}", Printable(path_), Printable(TextAt(s, 0), 120));
      }));
    }
    sqlite3_set_authorizer(db, Authorise, nullptr);
    return {};
  }

  Result<Statement> Prepare(const std::string& sql) const {
    sqlite3_stmt* s = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &s, nullptr) != SQLITE_OK) {
      return Fail("cannot be read");
    }
    return Statement(s);
  }
  // Calls row() for each; an error from it ends the reading.
  template <class Row>
  Status ForEach(const std::string& sql, const Row& row) {
    ORRERY_ASSIGN_OR_RETURN(const Statement s, Prepare(sql));
    for (;;) {
      const int state = sqlite3_step(s.get());
      if (state == SQLITE_DONE) return {};
      if (state != SQLITE_ROW) return Fail("cannot be read");
      if (++rows_ > limits_.rows) {
        return InvalidInput("'{}': more than {} rows", Printable(path_), limits_.rows);
      }
      ORRERY_RETURN_IF_ERROR(row(s.get()));
    }
  }
  static std::string TextAt(sqlite3_stmt* s, int column) {
    const unsigned char* text = sqlite3_column_text(s, column);
    if (text == nullptr) return {};
    return {reinterpret_cast<const char*>(text),
            static_cast<std::size_t>(sqlite3_column_bytes(s, column))};
  }
  static std::optional<std::int64_t> NumberAt(sqlite3_stmt* s, int column) {
    if (sqlite3_column_type(s, column) == SQLITE_NULL) return {};
    return sqlite3_column_int64(s, column);
  }

  // Ordinary tables among those listed, with their columns.
  Status FindTables() {
    ORRERY_RETURN_IF_ERROR(
        ForEach("SELECT name, type FROM sqlite_master", [&](sqlite3_stmt* s) -> Status {
          const std::string name = TextAt(s, 0);
          const bool listed =
              std::any_of(kTables.begin(), kTables.end(), [&](const char* t) { return name == t; });
          if (!listed) return {};
          if (TextAt(s, 1) != "table") {
            return InvalidInput("'{}': '{}' is a {}, where a table is read", Printable(path_), name,
                                Printable(TextAt(s, 1), 20));
          }
          columns_[name];
          return {};
        }));
    for (auto& [table, columns] : columns_) {
      ORRERY_ASSIGN_OR_RETURN(const Statement s,
                              Prepare(fmt::format("SELECT * FROM \"{}\" LIMIT 0", table)));
      for (int c = 0; c < sqlite3_column_count(s.get()); ++c) {
        columns.insert(sqlite3_column_name(s.get(), c));
      }
    }
    return {};
  }
  bool Has(const std::string& table, const std::string& column) const {
    const auto t = columns_.find(table);
    return t != columns_.end() && t->second.contains(column);
  }
  // A column, or NULL where the export lacks it.
  std::string Column(const std::string& table, const std::string& column) const {
    return Has(table, column) ? "\"" + column + "\"" : "NULL";
  }
  Status Need(const std::string& table, std::initializer_list<const char*> columns) const {
    for (const char* column : columns) {
      if (Has(table, column)) continue;
      return InvalidInput("'{}': table '{}' has no column '{}'", Printable(path_), table, column);
    }
    return {};
  }

  Status ReadNames() {
    if (columns_.contains("StringIds")) {
      ORRERY_RETURN_IF_ERROR(Need("StringIds", {"id", "value"}));
      ORRERY_RETURN_IF_ERROR(
          ForEach("SELECT id, value FROM StringIds", [&](sqlite3_stmt* s) -> Status {
            strings_[sqlite3_column_int64(s, 0)] = TextAt(s, 1);
            return {};
          }));
    }
    if (Has("TARGET_INFO_GPU", "name")) {
      ORRERY_RETURN_IF_ERROR(
          ForEach("SELECT name FROM TARGET_INFO_GPU", [&](sqlite3_stmt* s) -> Status {
            gpus_.push_back(TextAt(s, 0));
            return {};
          }));
    }
    host_ = std::filesystem::path(path_).stem().string();
    return {};
  }

  // The process's number: bits 24 to 47 of the ids of processes and threads.
  static std::int64_t ProcessOf(std::int64_t id) { return id >> 24 & 0xFFFFFF; }

  static std::uint32_t NameIn(Process* p, const std::string& name) {
    const auto [at, fresh] =
        p->names.try_emplace(name, static_cast<std::uint32_t>(p->trace.names.size()));
    if (fresh) p->trace.names.push_back(name);
    return at->second;
  }
  static std::uint32_t TrackIn(Process* p, bool gpu, std::int64_t a, std::int64_t b) {
    auto& known = gpu ? p->streams : p->threads;
    const auto [at, fresh] =
        known.try_emplace({a, b}, static_cast<std::uint32_t>(p->trace.tracks.size()));
    if (fresh) p->trace.tracks.push_back({a, b, gpu});
    return at->second;
  }
  Result<ProfileTrace::Event> EventOf(const std::string& table, sqlite3_stmt* s) const {
    ProfileTrace::Event e;
    e.start_ns = sqlite3_column_int64(s, 0);
    const std::int64_t end = NumberAt(s, 1).value_or(e.start_ns);
    if (e.start_ns < 0 || e.start_ns > kMostNanoseconds || end < e.start_ns ||
        end - e.start_ns > kLongestNs) {
      return InvalidInput("'{}': table '{}': an event from {} to {} ns", Printable(path_), table,
                          e.start_ns, end);
    }
    e.duration_ns = end - e.start_ns;
    return e;
  }

  Status ReadGpuTable(const std::string& table, EventKind kind) {
    if (!columns_.contains(table)) return {};
    ORRERY_RETURN_IF_ERROR(Need(table, {"start", "end", "deviceId", "streamId"}));
    const bool kernel = kind == EventKind::kKernel;
    const std::string sql =
        fmt::format("SELECT start, \"end\", {}, deviceId, streamId, {}, {}, {} FROM {}",
                    Column(table, "globalPid"), Column(table, "correlationId"),
                    kernel ? Column(table, "demangledName") : Column(table, "copyKind"),
                    kernel ? Column(table, "shortName") : "NULL", table);
    return ForEach(sql, [&](sqlite3_stmt* s) -> Status {
      ORRERY_ASSIGN_OR_RETURN(ProfileTrace::Event e, EventOf(table, s));
      const std::int64_t device = sqlite3_column_int64(s, 3);
      // Without processes a device is one.
      const auto pid = NumberAt(s, 2);
      Process& p = processes_[pid ? ProcessOf(*pid) : device];
      e.kind = kind;
      e.correlation = NumberAt(s, 5).value_or(-1);
      std::string name = kind == EventKind::kCopy ? "Memcpy" : "Memset";
      if (kernel) {
        const auto id = NumberAt(s, 6) ? NumberAt(s, 6) : NumberAt(s, 7);
        const auto known = id ? strings_.find(*id) : strings_.end();
        name = known == strings_.end() ? "kernel" : known->second;
        // "void ncclDevKernel_…(…)", and shorter in other exports.
        if (name.starts_with("void ")) name = name.substr(5);
      }
      e.name = NameIn(&p, name);
      e.track = TrackIn(&p, true, device, sqlite3_column_int64(s, 4));
      p.trace.events.push_back(e);
      return {};
    });
  }

  Status ReadThreads(const std::string& table, EventKind kind) {
    if (!columns_.contains(table)) return {};
    ORRERY_RETURN_IF_ERROR(Need(table, {"start", "globalTid"}));
    const bool runtime = kind == EventKind::kRuntime;
    const std::string sql =
        fmt::format("SELECT start, {}, globalTid, {}, {}, {} FROM {}", Column(table, "end"),
                    Column(table, "correlationId"), Column(table, runtime ? "nameId" : "textId"),
                    runtime ? "NULL" : Column(table, "text"), table);
    return ForEach(sql, [&](sqlite3_stmt* s) -> Status {
      const std::int64_t id = sqlite3_column_int64(s, 2);
      const auto process = processes_.find(ProcessOf(id));
      if (process == processes_.end()) return {};
      Process& p = process->second;
      ORRERY_ASSIGN_OR_RETURN(ProfileTrace::Event e, EventOf(table, s));
      e.kind = kind;
      e.correlation = NumberAt(s, 3).value_or(-1);
      const auto known = NumberAt(s, 4) ? strings_.find(*NumberAt(s, 4)) : strings_.end();
      std::string name = known == strings_.end() ? TextAt(s, 5) : known->second;
      if (runtime) {  // "cudaLaunchKernel_v7000"
        if (const std::size_t v = name.find("_v"); v != std::string::npos) name.resize(v);
      }
      if (name.empty()) return {};
      e.name = NameIn(&p, name);
      e.track = TrackIn(&p, false, ProcessOf(id), id & 0xFFFFFF);
      p.trace.events.push_back(e);
      return {};
    });
  }

  const std::string& path_;
  const NsysLimits limits_;
  std::unique_ptr<sqlite3, CloseDatabase> db_;
  std::map<std::string, std::set<std::string>> columns_;  // by table
  std::unordered_map<std::int64_t, std::string> strings_;
  std::map<std::int64_t, Process> processes_;
  std::vector<std::string> gpus_;
  std::string host_;
  std::int64_t rows_ = 0, steps_ = 0;
};

}  // namespace

Result<std::vector<ProfileTrace>> ReadNsys(const std::string& path, const NsysLimits& limits) {
  return NsysReader(path, limits).Read();
}

}  // namespace orrery::formats
