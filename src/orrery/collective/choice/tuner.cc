#include "orrery/collective/choice/tuner.h"

#include <array>
#include <charconv>
#include <span>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::collective {
namespace {

using std::string_view;

constexpr std::size_t kLeastFields = 8, kMostFields = 10;
constexpr std::array<string_view, kMostFields> kFields = {
    "collective", "min_bytes", "max_bytes", "algorithm",  "protocol",
    "channels",   "nNodes",    "nRanks",    "numPipeOps", "regBuff"};
constexpr std::array<string_view, 5> kCollectives = {"broadcast", "reduce", "allgather",
                                                     "reducescatter", "allreduce"};
constexpr std::array<string_view, 7> kTunerAlgorithms = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<string_view, 3> kTunerProtocols = {"ll", "ll128", "simple"};
constexpr std::int64_t kUnbounded = std::int64_t{1} << 62;

std::optional<graph::Collective> CollectiveOf(std::size_t name) {
  switch (name) {
    case 0:
      return graph::Collective::kBroadcast;
    case 2:
      return graph::Collective::kAllGather;
    case 3:
      return graph::Collective::kReduceScatter;
    case 4:
      return graph::Collective::kAllReduce;
    default:
      return std::nullopt;  // reduce: nothing here runs it
  }
}

std::optional<Algorithm> AlgorithmOf(std::size_t name) {
  switch (name) {
    case 0:
      return Algorithm::kTree;
    case 1:
      return Algorithm::kRing;
    case 2:
      return Algorithm::kCollNetDirect;
    case 3:
      return Algorithm::kCollNetChain;
    case 4:
      return Algorithm::kNvls;
    case 5:
      return Algorithm::kNvlsTree;
    case 6:
      return Algorithm::kPat;
    default:
      return std::nullopt;
  }
}

// One line, cut into fields that know where they stand.
class Line {
 public:
  Line(string_view text, const std::string& file, int number) : file_(file), number_(number) {
    std::size_t begin = 0;
    for (;;) {
      const std::size_t comma = text.find(',', begin);
      std::size_t from = begin;
      std::size_t to = comma == string_view::npos ? text.size() : comma;
      while (from < to && IsBlank(text[from])) ++from;
      while (to > from && IsBlank(text[to - 1])) --to;
      fields_.push_back({text.substr(from, to - from), from + 1});
      if (comma == string_view::npos) return;
      begin = comma + 1;
    }
  }
  std::size_t size() const { return fields_.size(); }
  std::string Where(std::size_t field) const {
    return fmt::format("{}:{}:{}: {}", file_, number_, fields_[field].column, kFields[field]);
  }
  Status WrongSize() const {
    return InvalidInput("{}:{}: {} fields; a row has {} to {}: {}[,numPipeOps[,regBuff]]", file_,
                        number_, fields_.size(), kLeastFields, kMostFields,
                        "collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks");
  }
  Result<std::size_t> Name(std::size_t field, std::span<const string_view> valid) const {
    for (std::size_t i = 0; i < valid.size(); ++i) {
      if (valid[i] == fields_[field].text) return i;
    }
    return Status(Code::kInvalidInput,
                  UnknownName(kFields[field], Printable(fields_[field].text), valid))
        .In(Where(field));
  }
  // `any`: -1 is taken too.
  Result<std::int64_t> Number(std::size_t field, std::int64_t least, std::int64_t most,
                              bool any) const {
    const string_view text = fields_[field].text;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size() && !text.empty();
    if (whole && ((any && value == -1) || (value >= least && value <= most))) return value;
    return InvalidInput("{}: '{}' is not a whole number from {} to {}{}", Where(field),
                        Printable(text), least, most, any ? ", or -1 for any" : "");
  }

 private:
  static bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  struct Field {
    string_view text;
    std::size_t column = 0;
  };
  const std::string& file_;
  int number_;
  std::vector<Field> fields_;
};

Result<TunerRow> ParseRow(const Line& line) {
  if (line.size() < kLeastFields || line.size() > kMostFields) return line.WrongSize();
  TunerRow row;
  ORRERY_ASSIGN_OR_RETURN(const std::size_t collective, line.Name(0, kCollectives));
  row.collective = CollectiveOf(collective);
  ORRERY_ASSIGN_OR_RETURN(row.min_bytes, line.Number(1, 0, kUnbounded, false));
  ORRERY_ASSIGN_OR_RETURN(row.max_bytes, line.Number(2, 0, kUnbounded, false));
  if (row.max_bytes < row.min_bytes) {
    return InvalidInput("{}: {} is below min_bytes = {}: the row fits nothing", line.Where(2),
                        row.max_bytes, row.min_bytes);
  }
  ORRERY_ASSIGN_OR_RETURN(const std::size_t algorithm, line.Name(3, kTunerAlgorithms));
  row.algorithm = AlgorithmOf(algorithm);
  row.name = kTunerAlgorithms[algorithm];
  ORRERY_ASSIGN_OR_RETURN(const std::size_t protocol, line.Name(4, kTunerProtocols));
  row.protocol = static_cast<Protocol>(protocol);
  ORRERY_ASSIGN_OR_RETURN(row.channels, line.Number(5, 1, 64, true));
  ORRERY_ASSIGN_OR_RETURN(row.nodes, line.Number(6, 1, kUnbounded, true));
  ORRERY_ASSIGN_OR_RETURN(row.ranks, line.Number(7, 1, kUnbounded, true));
  if (line.size() > 8) {
    ORRERY_ASSIGN_OR_RETURN(row.pipe_ops, line.Number(8, 1, kUnbounded, true));
  }
  if (line.size() > 9) {
    ORRERY_ASSIGN_OR_RETURN(row.registered, line.Number(9, 0, 1, true));
  }
  return row;
}

bool Any(std::int64_t wanted, std::int64_t value) { return wanted == -1 || wanted == value; }

}  // namespace

Result<std::vector<TunerRow>> ParseTunerFile(string_view text, const std::string& name) {
  std::vector<TunerRow> rows;
  int number = 0;
  while (!text.empty()) {
    string_view line = TakeLine(&text);
    ++number;
    const bool blank = line.find_first_not_of(" \t\r") == string_view::npos;
    if (blank || line.front() == '#') continue;
    ORRERY_ASSIGN_OR_RETURN(TunerRow row, ParseRow(Line(line, name, number)));
    row.line = number;
    rows.push_back(row);
  }
  if (rows.empty()) return InvalidInput("{}: no row; NCCL would choose everything itself", name);
  return rows;
}

bool Fits(const TunerRow& row, graph::Collective collective, std::int64_t bytes, int nodes,
          int ranks) {
  return row.collective == collective && bytes >= row.min_bytes && bytes <= row.max_bytes &&
         Any(row.nodes, nodes) && Any(row.ranks, ranks) && Any(row.pipe_ops, 1) &&
         Any(row.registered, 0);
}

}  // namespace orrery::collective
