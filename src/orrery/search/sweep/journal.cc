#include "orrery/search/sweep/journal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "orrery/base/file.h"
#include "orrery/results/document.h"
#include "orrery/search/sweep/sweep_json.h"

namespace orrery::search {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kJournalSchema = "orrery.sweep-journal/1";
constexpr std::int64_t kMostBytes = std::int64_t{16} << 30;

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json Head(const Sweep& sweep) {
  return {{"schema", kJournalSchema},
          {"sweep_hash", HexOf(sweep.hash)},
          {"shard", sweep.shard},
          {"shards", sweep.shards}};
}

// The rows of a journal's text; `whole` is what of it is whole lines.
Result<std::vector<SweepRow>> RowsOf(std::string_view text, const std::string& path,
                                     const Sweep& sweep, std::size_t* whole) {
  std::vector<SweepRow> rows;
  *whole = 0;
  for (std::size_t line = 1; *whole < text.size(); ++line) {
    const std::size_t end = text.find('\n', *whole);
    if (end == std::string_view::npos) {
      // A head that was cut short may be written again; what is no head is not ours to cut.
      if (line == 1 && !Line(Head(sweep)).starts_with(text)) {
        return InvalidInput("{}: is no journal of a sweep; name another file", path);
      }
      break;
    }
    const Json json = Json::parse(text.substr(*whole, end - *whole), nullptr, false);
    if (line == 1) {
      if (!results::HasSchema(json, kJournalSchema)) {
        return InvalidInput("{}: is no journal of a sweep; name another file", path);
      }
      if (json != Head(sweep)) {
        return InvalidInput(
            "{}: holds another sweep: its job, values, shard or version differ; name another file",
            path);
      }
    } else {
      try {
        rows.push_back(RowFromJson(json, sweep.keys));
      } catch (const std::exception&) {
        return InvalidInput("{}:{}: is no row of this sweep; name another file", path, line);
      }
    }
    *whole = end + 1;
  }
  std::sort(rows.begin(), rows.end(),
            [](const SweepRow& a, const SweepRow& b) { return a.point < b.point; });
  return rows;
}

}  // namespace

Result<Journal> Journal::Open(const std::string& path, const Sweep& sweep) {
  Journal journal;
  journal.path_ = path;
  std::size_t whole = 0;
  if (access(path.c_str(), F_OK) == 0) {
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
    ORRERY_ASSIGN_OR_RETURN(journal.rows_, RowsOf(text, path, sweep, &whole));
    if (whole < text.size() && truncate(path.c_str(), static_cast<off_t>(whole)) != 0) {
      return ResourceError("{}: {}", path, std::strerror(errno));
    }
  }
  journal.file_.reset(std::fopen(path.c_str(), "ab"));
  if (journal.file_ == nullptr) {
    return InvalidInput("{}: cannot be written: {}", path, std::strerror(errno));
  }
  if (whole == 0) {
    const std::string head = Line(Head(sweep));
    std::fwrite(head.data(), 1, head.size(), journal.file_.get());
    std::fflush(journal.file_.get());
  }
  return journal;
}

Status Journal::Append(const SweepRow& row, const std::vector<std::string>& keys) {
  const std::string line = Line(RowToJson(row, keys));
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
      std::fflush(file_.get()) == 0) {
    return {};
  }
  return ResourceError("{}: cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace orrery::search
