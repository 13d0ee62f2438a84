#include "orrery/formats/nccl_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"

namespace orrery::formats {
namespace {

std::vector<std::string_view> SplitWords(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r|";
  std::vector<std::string_view> words;
  for (std::size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlank, end);
  }
  return words;
}

bool IsType(std::string_view word) {
  constexpr std::string_view kTypes[] = {"int8",   "uint8",  "int32",    "uint32",  "int64",
                                         "uint64", "half",   "float",    "double",  "bfloat16",
                                         "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"};
  return std::find(std::begin(kTypes), std::end(kTypes), word) != std::end(kTypes);
}

constexpr std::string_view kTests[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                       "sendrecv",   "alltoall",   "reduce",         "gather",
                                       "scatter",    "hypercube"};

using Words = std::span<const std::string_view>;

// "#  Rank  0 Group  0 Pid  123 on  host1 device  0 [0x07] NVIDIA A100-SXM4-80GB", from "Rank" on.
Result<NcclTestsLog::Rank> ReadRank(Words words) {
  const auto after = [&](std::string_view word) {
    return std::min<std::size_t>(std::find(words.begin(), words.end(), word) - words.begin() + 1,
                                 words.size());
  };
  const std::size_t host = after("on"), device = after("device");
  if (host == words.size() || device + 1 >= words.size()) {
    return InvalidInput("a line of ranks without 'on HOST' and 'device N'");
  }
  NcclTestsLog::Rank rank{.host = std::string(words[host]), .gpu = {}};
  if (const Result<std::int64_t> number = ParseInteger(words[1]); number.ok()) {
    rank.number = *number;
  }
  for (const std::string_view word : words.subspan(device + 2)) {
    if (word == "NVIDIA") continue;
    if (!rank.gpu.empty()) rank.gpu += '-';
    rank.gpu += word;
  }
  return rank;
}

// Nothing where the line is no row, or one of no bytes.
Result<std::optional<NcclTestsLog::Row>> ReadRow(Words words) {
  const std::optional<NcclTestsLog::Row> none;
  const auto type = std::find_if(words.begin(), words.end(), IsType);
  if (type == words.end() || type - words.begin() < 2) return none;
  const Result<std::int64_t> bytes = ParseInteger(type[-2]);
  const Result<std::int64_t> count = ParseInteger(type[-1]);
  if (!bytes.ok() || !count.ok()) return none;
  // After the type: names and a root, then four numbers for out of place.
  auto at = type + 1;
  std::string redop;
  const auto whole = [&] { return at->find('.') == std::string_view::npos; };
  while (at != words.end() && whole() &&
         at->find_first_not_of("-0123456789") != std::string_view::npos) {
    if (redop.empty()) redop = *at;
    ++at;
  }
  if (at != words.end() && whole() && (*at == "-1" || words.end() - at >= 9)) ++at;  // root
  if (words.end() - at < 3) return none;
  const Result<double> time = ParseReal(at[0], Dimension::kNone, "");
  const Result<double> algbw = ParseReal(at[1], Dimension::kNone, "");
  const Result<double> busbw = ParseReal(at[2], Dimension::kNone, "");
  constexpr double kLongest = 1e12;  // us: eleven days
  if (!time.ok() || !(*time > 0 && *time <= kLongest)) {
    return InvalidInput("time '{}' is no positive number{}", Printable(at[0], 40),
                        time.ok() && *time > kLongest ? " below 1e12 us" : "");
  }
  if (!algbw.ok() || !busbw.ok() || *bytes <= 0 || *count <= 0) return none;
  return std::optional(NcclTestsLog::Row{.bytes = *bytes,
                                         .type = std::string(*type),
                                         .redop = redop,
                                         .time_us = *time,
                                         .algbw_GBps = *algbw,
                                         .busbw_GBps = *busbw});
}

// Bus over algorithm bandwidth.
double BusFactor(std::string_view test, double ranks) {
  if (test == "all_reduce") return 2 * (ranks - 1) / ranks;
  const bool all_pass = test == "broadcast" || test == "reduce" || test == "sendrecv";
  return all_pass ? 1 : (ranks - 1) / ranks;
}

// "22809" → "2.28.9"; empty where it is no code of NCCL 2.9 or later.
std::string ReleaseOfCode(std::string_view text) {
  const Result<std::int64_t> code =
      ParseInteger(text.substr(0, text.find_first_not_of("0123456789")));
  if (!code.ok() || *code < 20'900 || *code > 99'999) return "";
  return fmt::format("{}.{}.{}", *code / 10'000, *code / 100 % 100, *code % 100);
}

void ReadNames(std::string_view line, NcclTestsLog* log) {
  if (log->test.empty()) {
    for (const std::string_view test : kTests) {  // the longer names stand first
      if (line.find(std::string(test) + "_perf") == std::string_view::npos) continue;
      log->test = test;
      break;
    }
  }
  constexpr std::string_view kVersion = "NCCL version ";
  if (const std::size_t at = line.find(kVersion); at != std::string_view::npos) {
    const std::string_view rest = line.substr(at + kVersion.size());
    log->version = rest.substr(0, rest.find_first_not_of("0123456789."));
  }
  constexpr std::string_view kLibrary = " nccl-library=";
  if (const std::size_t at = line.find(kLibrary); at != std::string_view::npos) {
    if (log->version.empty()) log->version = ReleaseOfCode(line.substr(at + kLibrary.size()));
  }
}

// Lines of ranks, by number: the output of two runs would look like one on twice as many GPUs.
using RankLines = std::map<std::int64_t, int>;

Status ReadLine(std::string_view line, int number, RankLines* lines, NcclTestsLog* log) {
  ReadNames(line, log);
  const std::vector<std::string_view> words = SplitWords(line);
  const auto rank = std::find(words.begin(), words.end(), "Rank");
  if (rank != words.end() && rank != words.begin() && rank[-1].ends_with("#")) {
    ORRERY_ASSIGN_OR_RETURN(NcclTestsLog::Rank read, ReadRank({rank, words.end()}));
    read.line = number;
    const auto [first, fresh] = lines->try_emplace(read.number, number);
    if (!fresh && read.number >= 0) {
      return InvalidInput("rank {} is listed on line {} already: give each run's output a file",
                          read.number, first->second);
    }
    log->ranks.push_back(std::move(read));
    return {};
  }
  ORRERY_ASSIGN_OR_RETURN(std::optional<NcclTestsLog::Row> row, ReadRow(words));
  if (!row) return {};
  row->line = number;
  log->rows.push_back(*std::move(row));
  return {};
}

}  // namespace

Result<NcclTestsLog> ParseNcclTestsLog(std::string_view text, const std::string& name) {
  NcclTestsLog log;
  RankLines lines;
  for (int line = 1; !text.empty(); ++line) {
    Status status = ReadLine(TakeLine(&text), line, &lines, &log);
    if (!status.ok()) return std::move(status).In(fmt::format("{}:{}", Printable(name), line));
  }
  if (log.rows.empty()) {
    return InvalidInput(
        "'{}' holds no row of nccl-tests (size count type redop root time algbw "
        "busbw …); give the test's whole output",
        Printable(name));
  }
  return log;
}

Status CheckNcclTestsLog(const NcclTestsLog& log, std::string_view test, std::size_t ranks,
                         const std::string& name) {
  const bool reduces = test == "all_reduce" || test == "reduce_scatter" || test == "reduce";
  for (const NcclTestsLog::Row& row : log.rows) {
    if (row.redop.empty() || reduces == (row.redop != "none")) continue;
    return InvalidInput("{}:{}: redop '{}': {} {}; compare a log of the same test", Printable(name),
                        row.line, Printable(row.redop, 20), test,
                        reduces ? "reduces" : "reduces nothing");
  }
  if (log.rows.empty() || ranks < 2) return {};
  // The fastest row tells most: two decimals are printed.
  const NcclTestsLog::Row& row =
      *std::ranges::max_element(log.rows, {}, &NcclTestsLog::Row::algbw_GBps);
  if (row.algbw_GBps <= 0) return {};
  const double expected = BusFactor(test, static_cast<double>(ranks));
  const double factor = row.busbw_GBps / row.algbw_GBps;
  const double printed = 0.006 * (1 + factor) / row.algbw_GBps;
  const double off = factor > expected ? factor - expected : expected - factor;
  if (off <= printed + 1e-4 * expected) return {};
  // The number of ranks that this test would have.
  const double share = test == "all_reduce" ? factor / 2 : factor;
  std::string of;
  if (BusFactor(test, 2) != BusFactor(test, 4) && share > 0 && share < 1) {
    of = fmt::format(" (of {:.0f} ranks, if it is of {})", 1 / (1 - share), test);
  }
  return InvalidInput(
      "{}:{}: busbw is {:.4g} times algbw, which {} over {} ranks does not give, but {:.4g}{}; "
      "compare a log of the same test on as many ranks",
      Printable(name), row.line, factor, test, ranks, expected, of);
}

}  // namespace orrery::formats
