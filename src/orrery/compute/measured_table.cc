#include "orrery/compute/measured_table.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "orrery/compute/measured_csv.h"

namespace orrery::compute {
namespace {

using graph::DType;
using graph::MemoryOp;
using graph::Pass;

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
struct FinalizeStatement {
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

Status SqlError(sqlite3* db, const std::string& path, const char* doing) {
  return ResourceError("{}: {}: {}; build the database again", path, doing, sqlite3_errmsg(db));
}

Result<Database> Open(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database db(raw);
  if (rc == SQLITE_OK) return db;
  return InvalidInput(
      "{}: cannot open the database of measured kernels: {}; build it, or name another", path,
      raw == nullptr ? "out of memory" : sqlite3_errmsg(raw));
}

Status Execute(sqlite3* db, const std::string& path, const std::string& sql) {
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return SqlError(db, path, "cannot run a statement");
}

Result<Statement> Prepare(sqlite3* db, const std::string& path, const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) {
    return SqlError(db, path, "is no database of measured kernels of this version");
  }
  return Statement(raw);
}

void Bind(sqlite3_stmt* s, int index, const Cell& cell) {
  if (const auto* i = std::get_if<std::int64_t>(&cell)) {
    sqlite3_bind_int64(s, index, *i);
  } else if (const auto* d = std::get_if<double>(&cell)) {
    sqlite3_bind_double(s, index, *d);
  } else {
    const std::string& text = std::get<std::string>(cell);
    sqlite3_bind_text(s, index, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
}

std::string CreateTable(const CsvSchema& schema) {
  std::string sql =
      fmt::format("CREATE TABLE {} (gpu TEXT NOT NULL, source INTEGER NOT NULL", schema.table);
  std::string keys = "gpu";
  for (const CsvColumn& c : schema.columns) {
    const char* type = c.kind == CellKind::kInt     ? "INTEGER"
                       : c.kind == CellKind::kFloat ? "REAL"
                                                    : "TEXT";
    sql += fmt::format(", {} {} NOT NULL", c.name, type);
    if (c.key) keys += fmt::format(", {}", c.name);
  }
  return sql + ", PRIMARY KEY (" + keys + ")) WITHOUT ROWID;";
}

Status CreateTables(sqlite3* db, const std::string& path) {
  std::string sql = fmt::format(
      "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN;"
      "CREATE TABLE meta (version INTEGER NOT NULL); INSERT INTO meta VALUES ({});"
      "CREATE TABLE source (id INTEGER PRIMARY KEY, path TEXT NOT NULL, header TEXT NOT NULL);",
      kDatabaseVersion);
  for (const CsvSchema& schema : MeasuredSchemas()) sql += CreateTable(schema);
  return Execute(db, path, sql);
}

// Columns of the row that a statement stands at, by position.
class Row {
 public:
  explicit Row(sqlite3_stmt* s) : s_(s) {}
  std::int64_t Int(int i) const { return sqlite3_column_int64(s_, i); }
  double Float(int i) const { return sqlite3_column_double(s_, i); }
  std::string_view Text(int i) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(s_, i));
    return text == nullptr
               ? std::string_view()
               : std::string_view(text, static_cast<std::size_t>(sqlite3_column_bytes(s_, i)));
  }

 private:
  sqlite3_stmt* s_;
};

// The file that has the row already, for messages.
std::string SourceOfRow(sqlite3* db, const std::string& path, const MeasuredFile& file,
                        const std::vector<Cell>& row) {
  std::string sql =
      fmt::format("SELECT path FROM source JOIN {} t ON t.source = source.id WHERE t.gpu = ?",
                  file.schema->table);
  for (const CsvColumn& c : file.schema->columns) {
    if (c.key) sql += fmt::format(" AND t.{} = ?", c.name);
  }
  Result<Statement> statement = Prepare(db, path, sql);
  if (!statement.ok()) return "another file";
  int index = 1;
  Bind(statement->get(), index++, file.header.at("gpu"));
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (file.schema->columns[i].key) Bind(statement->get(), index++, row[i]);
  }
  if (sqlite3_step(statement->get()) != SQLITE_ROW) return "another file";
  return std::string(Row(statement->get()).Text(0));
}

Status InsertFile(sqlite3* db, const std::string& path, const MeasuredFile& file, std::int64_t id) {
  ORRERY_ASSIGN_OR_RETURN(const Statement source,
                          Prepare(db, path, "INSERT INTO source VALUES (?, ?, ?)"));
  std::string header;
  for (const auto& [key, value] : file.header) header += fmt::format("{}: {}\n", key, value);
  Bind(source.get(), 1, id);
  Bind(source.get(), 2, file.path);
  Bind(source.get(), 3, header);
  if (sqlite3_step(source.get()) != SQLITE_DONE) return SqlError(db, path, "cannot write");
  std::string marks = "?, ?";
  for (std::size_t i = 0; i < file.schema->columns.size(); ++i) marks += ", ?";
  ORRERY_ASSIGN_OR_RETURN(
      const Statement insert,
      Prepare(db, path, fmt::format("INSERT INTO {} VALUES ({})", file.schema->table, marks)));
  for (std::size_t r = 0; r < file.rows.size(); ++r) {
    Bind(insert.get(), 1, file.header.at("gpu"));
    Bind(insert.get(), 2, id);
    for (std::size_t i = 0; i < file.rows[r].size(); ++i) {
      Bind(insert.get(), static_cast<int>(i) + 3, file.rows[r][i]);
    }
    const int rc = sqlite3_step(insert.get());
    sqlite3_reset(insert.get());
    if (rc == SQLITE_DONE) continue;
    if (rc != SQLITE_CONSTRAINT) return SqlError(db, path, "cannot write");
    return InvalidInput("{}:{}: gpu = '{}': the same kernel is measured in {}; keep one of the two",
                        file.path, file.lines[r], file.header.at("gpu"),
                        SourceOfRow(db, path, file, file.rows[r]));
  }
  return {};
}

// False for types that no kernel of the graph has (fp8_split).
bool ParseDType(std::string_view text, DType* type) {
  for (const DType t : {DType::kFp32, DType::kTf32, DType::kBf16, DType::kFp16, DType::kFp8}) {
    if (graph::Name(t) != text) continue;
    *type = t;
    return true;
  }
  return false;
}

bool GemmOf(const Row& row, graph::Kernel* kernel) {
  graph::Gemm g;
  if (!ParseDType(row.Text(1), &g.dtype)) return false;
  g.layout = row.Text(2) == "nn"   ? graph::GemmLayout::kNN
             : row.Text(2) == "nt" ? graph::GemmLayout::kNT
                                   : graph::GemmLayout::kTN;
  g.m = row.Int(3);
  g.n = row.Int(4);
  g.k = row.Int(5);
  g.batch = row.Int(6);
  // The file counts rows over all groups.
  std::int64_t& shared = g.layout == graph::GemmLayout::kTN ? g.k : g.m;
  if (g.batch <= 0 || shared % g.batch != 0) return false;
  shared /= g.batch;
  g.out_dtype = g.dtype == DType::kFp8 ? DType::kBf16 : g.dtype;
  *kernel = g;
  return true;
}

bool AttentionOf(const Row& row, graph::Kernel* kernel) {
  graph::Attention a;
  if (!ParseDType(row.Text(1), &a.dtype)) return false;
  if (row.Text(2) == "flash") {
    a.kernel = graph::AttentionKernel::kFlash2;  // torch's back end
  } else if (row.Text(2) == "cudnn") {
    a.kernel = graph::AttentionKernel::kCudnn;
  } else {
    return false;  // unfused attention is several kernels in the graph
  }
  a.batch = row.Int(3);
  a.heads = row.Int(4);
  a.kv_heads = row.Int(5);
  a.seq_q = row.Int(6);
  a.seq_kv = row.Int(7);
  a.head_dim = row.Int(8);
  a.causal = row.Int(9) != 0;
  a.pass = row.Text(10) == "fwd" ? Pass::kForward : Pass::kBackward;
  *kernel = a;
  return true;
}

// Kernels that run as one, as frameworks fuse them; what torch runs as several has no counterpart.
struct MemoryName {
  std::string_view name;
  MemoryOp op;
  Pass pass;
};
constexpr MemoryName kMemoryNames[] = {
    {"rmsnorm_fwd.triton", MemoryOp::kRmsNorm, Pass::kForward},
    {"rmsnorm_bwd.triton", MemoryOp::kRmsNorm, Pass::kBackward},
    {"layernorm_fwd", MemoryOp::kLayerNorm, Pass::kForward},
    {"layernorm_bwd", MemoryOp::kLayerNorm, Pass::kBackward},
    {"gelu_fwd", MemoryOp::kGelu, Pass::kForward},
    {"gelu_bwd", MemoryOp::kGelu, Pass::kBackward},
    {"swiglu_fwd.triton", MemoryOp::kSwiglu, Pass::kForward},
    {"rotary_fwd.triton", MemoryOp::kRotary, Pass::kForward},
    {"embedding_fwd", MemoryOp::kEmbedding, Pass::kForward},
    {"adamw_fused", MemoryOp::kAdam, Pass::kOptimizer},
    {"gradient_norm", MemoryOp::kGradNorm, Pass::kOptimizer},
    {"add", MemoryOp::kAdd, Pass::kForward},
    {"cast_to_fp32", MemoryOp::kCast, Pass::kForward},
    {"cast_from_fp32", MemoryOp::kCast, Pass::kForward},
    {"copy", MemoryOp::kCopy, Pass::kForward},
    {"fill", MemoryOp::kZero, Pass::kForward},
    {"transpose", MemoryOp::kTranspose, Pass::kForward},
};

bool MemoryBoundOf(const Row& row, graph::Kernel* kernel) {
  graph::MemoryBound m;
  if (!ParseDType(row.Text(1), &m.dtype)) return false;
  for (const MemoryName& known : kMemoryNames) {
    if (known.name != row.Text(2)) continue;
    m.op = known.op;
    m.pass = known.pass;
    m.rows = row.Int(3);
    m.cols = row.Int(4);
    m.bytes_read = row.Int(5);
    *kernel = m;
    return true;
  }
  return false;
}

// What is shorter ran no kernel, what is wider waited for the host.
constexpr double kLeastMicroseconds = 0.5;
constexpr double kMostSpread = 0.3;

using Convert = bool (*)(const Row&, graph::Kernel*);

Status ReadTable(sqlite3* db, const std::string& path, std::string_view gpu,
                 const CsvSchema& schema, Convert convert, std::vector<Sample>* samples) {
  std::string columns;
  int time = 0;
  for (std::size_t i = 0; i < schema.columns.size(); ++i) {
    columns += (i > 0 ? ", " : "") + std::string(schema.columns[i].name);
    if (schema.columns[i].name == "time_us") time = static_cast<int>(i);
  }
  ORRERY_ASSIGN_OR_RETURN(
      const Statement select,
      Prepare(db, path, fmt::format("SELECT {} FROM {} WHERE gpu = ?", columns, schema.table)));
  Bind(select.get(), 1, std::string(gpu));
  int rc = SQLITE_ROW;
  while ((rc = sqlite3_step(select.get())) == SQLITE_ROW) {
    const Row row(select.get());
    Sample sample;
    if (!convert(row, &sample.kernel)) continue;
    const auto key = KeyOf(sample.kernel);
    if (!key || !(row.Float(time) > kLeastMicroseconds)) continue;
    sample.series = key->series;
    sample.shape = key->shape;
    sample.detail = key->detail;
    sample.time_s = row.Float(time) * 1e-6;
    // Quartiles of a normal distribution lie 1.349 standard deviations apart; repeats in one
    // session never differ by less than what sessions do.
    const double quartiles = (row.Float(time + 2) - row.Float(time + 1)) / row.Float(time);
    if (quartiles > kMostSpread) continue;
    sample.spread = std::max(quartiles / 1.349, 0.01);
    sample.sustained = row.Text(time + 3) == "sustained";
    samples->push_back(sample);
  }
  if (rc != SQLITE_DONE) return SqlError(db, path, "cannot read");
  return {};
}

Status Fill(sqlite3* db, const std::string& name, const std::vector<std::string>& paths,
            BuildReport* report) {
  ORRERY_RETURN_IF_ERROR(CreateTables(db, name));
  for (const std::string& path : paths) {
    ORRERY_ASSIGN_OR_RETURN(const MeasuredFile file, ReadMeasured(path));
    if (file.schema == nullptr) {
      ++report->skipped;
      continue;
    }
    ORRERY_RETURN_IF_ERROR(InsertFile(db, name, file, ++report->files));
    report->rows += static_cast<std::int64_t>(file.rows.size());
  }
  return Execute(db, name, "COMMIT;");
}

Status BuildInto(const std::vector<std::string>& paths, const std::string& temporary,
                 BuildReport* report) {
  ORRERY_ASSIGN_OR_RETURN(const Database db,
                          Open(temporary, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  return Fill(db.get(), temporary, paths, report);
}

Result<std::vector<Sample>> SamplesOf(sqlite3* db, const std::string& path, std::string_view gpu) {
  std::vector<Sample> samples;
  constexpr Convert kConverts[] = {GemmOf, AttentionOf, MemoryBoundOf};
  for (std::size_t i = 0; i < MeasuredSchemas().size(); ++i) {
    ORRERY_RETURN_IF_ERROR(ReadTable(db, path, gpu, MeasuredSchemas()[i], kConverts[i], &samples));
  }
  return samples;
}

// GPUs with rows in any table, by name, each with the first file that has some.
Status ReadGpus(sqlite3* db, const std::string& path, std::vector<GpuSamples>* gpus) {
  std::string rows;
  for (const CsvSchema& schema : MeasuredSchemas()) {
    rows += fmt::format("{}SELECT gpu, source FROM {}", rows.empty() ? "" : " UNION ALL ",
                        schema.table);
  }
  ORRERY_ASSIGN_OR_RETURN(
      const Statement select,
      Prepare(db, path,
              fmt::format("SELECT gpu, path FROM (SELECT gpu, min(source) AS first FROM ({}) GROUP "
                          "BY gpu) JOIN source ON id = first ORDER BY gpu",
                          rows)));
  int rc = SQLITE_ROW;
  while ((rc = sqlite3_step(select.get())) == SQLITE_ROW) {
    const Row row(select.get());
    gpus->push_back({std::string(row.Text(0)), std::string(row.Text(1)), {}});
  }
  return rc == SQLITE_DONE ? Status() : SqlError(db, path, "cannot read");
}

}  // namespace

Result<BuildReport> BuildDatabase(std::vector<std::string> csv_paths, const std::string& out) {
  std::sort(csv_paths.begin(), csv_paths.end());
  const std::string temporary = out + ".building";
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  BuildReport report;
  if (Status status = BuildInto(csv_paths, temporary, &report); !status.ok()) {
    std::filesystem::remove(temporary, ignored);
    return status;
  }
  std::error_code error;
  std::filesystem::rename(temporary, out, error);
  if (error) {
    std::filesystem::remove(temporary, ignored);
    return ResourceError("{}: cannot write: {}", out, error.message());
  }
  return report;
}

Result<std::vector<Sample>> ReadSamples(const std::string& database, std::string_view gpu) {
  ORRERY_ASSIGN_OR_RETURN(const Database db, Open(database, SQLITE_OPEN_READONLY));
  {
    ORRERY_ASSIGN_OR_RETURN(const Statement meta,
                            Prepare(db.get(), database, "SELECT version FROM meta"));
    if (sqlite3_step(meta.get()) != SQLITE_ROW ||
        sqlite3_column_int64(meta.get(), 0) != kDatabaseVersion) {
      return InvalidInput("{}: is no database of measured kernels of version {}; build it again",
                          database, kDatabaseVersion);
    }
  }
  return SamplesOf(db.get(), database, gpu);
}

Result<std::vector<GpuSamples>> ReadSamples(std::vector<std::string> csv_paths) {
  std::sort(csv_paths.begin(), csv_paths.end());
  const std::string name = ":memory:";
  ORRERY_ASSIGN_OR_RETURN(const Database db,
                          Open(name, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  BuildReport report;
  ORRERY_RETURN_IF_ERROR(Fill(db.get(), name, csv_paths, &report));
  std::vector<GpuSamples> gpus;
  ORRERY_RETURN_IF_ERROR(ReadGpus(db.get(), name, &gpus));
  for (GpuSamples& one : gpus) {
    ORRERY_ASSIGN_OR_RETURN(one.samples, SamplesOf(db.get(), name, one.gpu));
  }
  return gpus;
}

}  // namespace orrery::compute
