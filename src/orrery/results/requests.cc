#include "orrery/results/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "orrery/base/int128.h"
#include "orrery/base/text.h"
#include "orrery/results/requests_json.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

using Row = RequestResult::Row;

// The nearest rank's: the smallest that `thousandths` of all are not above.
SimTime Percentile(const std::vector<SimTime>& sorted, std::size_t thousandths) {
  const std::size_t rank = (sorted.size() * thousandths + 999) / 1000;
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

Row RowOf(std::string kind, std::vector<SimTime>* times, std::int64_t bytes, double span_s) {
  std::ranges::sort(*times);
  Row row;
  row.kind = std::move(kind);
  row.count = times->size();
  row.bytes = bytes;
  Int128 sum = 0;
  for (const SimTime t : *times) sum += t;
  const auto count = static_cast<Int128>(row.count);
  row.mean = static_cast<SimTime>((sum + count / 2) / count);
  row.p50 = Percentile(*times, 500);
  row.p90 = Percentile(*times, 900);
  row.p99 = Percentile(*times, 990);
  row.p999 = Percentile(*times, 999);
  row.max = times->back();
  if (span_s > 0) {
    row.per_s = static_cast<double>(row.count) / span_s;
    row.bytes_per_s = static_cast<double>(bytes) / span_s;
  }
  return row;
}

void AddRows(const graph::Requests& requests, RequestResult* result) {
  const double span_s = ToSeconds(result->end - result->begin);
  std::vector<SimTime> all;
  std::int64_t all_bytes = 0;
  std::size_t served = 0;
  for (std::uint32_t kind = 0; kind < requests.kinds.size(); ++kind) {
    std::vector<SimTime> times;
    std::int64_t bytes = 0;
    for (const RequestResult::One& one : result->each) {
      if (one.kind != kind) continue;
      times.push_back(one.end - one.begin);
      bytes += one.bytes;
    }
    if (times.empty()) continue;
    const bool prepares = kind >= requests.served;
    result->rows.push_back(RowOf(requests.kinds[kind], &times, bytes, prepares ? 0 : span_s));
    if (prepares) continue;
    ++served;
    all_bytes += bytes;
    all.insert(all.end(), times.begin(), times.end());
  }
  if (served > 1) result->rows.push_back(RowOf("all", &all, all_bytes, span_s));
}

void AddHosts(const graph::Requests& requests, const engine::Record& record,
              RequestResult* result) {
  const auto finish = static_cast<double>(std::max<SimTime>(record.finish_time, 1));
  for (const graph::Requests::Hosts& hosts : requests.hosts) {
    RequestResult::Hosts out{.name = hosts.name, .count = hosts.ranks.size()};
    for (const std::uint32_t rank : hosts.ranks) {
      const double busy = static_cast<double>(record.classes[rank].held_calc) / finish;
      out.busy += busy / static_cast<double>(hosts.ranks.size());
      if (busy <= out.busiest) continue;
      out.busiest = busy;
      out.busiest_rank = rank;
    }
    result->hosts.push_back(out);
  }
}

}  // namespace

RequestLog::RequestLog(const graph::Requests& requests, engine::Sink* also)
    : requests_(requests), also_(also), end_(requests.all.size(), 0) {
  for (std::uint32_t i = 0; i < requests.all.size(); ++i) {
    const graph::Request& r = requests.all[i];
    if (r.rank >= of_op_.size()) of_op_.resize(std::size_t{r.rank} + 1);
    std::vector<std::uint32_t>& of = of_op_[r.rank];
    if (r.op >= of.size()) of.resize(std::size_t{r.op} + 1, graph::Request::kNone);
    of[r.op] = i;
  }
}

bool RequestLog::wants(RankId rank) const {
  const bool asks = rank.index() < of_op_.size() && !of_op_[rank.index()].empty();
  return asks || (also_ != nullptr && also_->wants(rank));
}

void RequestLog::Add(const Interval& interval) {
  if (also_ != nullptr && also_->wants(interval.rank)) also_->Add(interval);
  if (interval.rank.index() >= of_op_.size()) return;
  const std::vector<std::uint32_t>& of = of_op_[interval.rank.index()];
  if (interval.op >= of.size() || of[interval.op] == graph::Request::kNone) return;
  end_[of[interval.op]] = interval.end;
}

RequestResult RequestLog::Take(const engine::Record& record) const {
  RequestResult result;
  result.kinds = requests_.kinds;
  result.each.reserve(end_.size());
  result.begin = kNever;
  for (std::size_t i = 0; i < end_.size(); ++i) {
    const graph::Request& r = requests_.all[i];
    const bool behind = r.after != graph::Request::kNone;
    const SimTime begin = behind ? end_[r.after] + r.begin : r.begin;
    result.each.push_back({begin, end_[i], r.bytes, r.rank, r.kind});
    if (r.kind >= requests_.served) continue;
    result.begin = std::min(result.begin, begin);
    result.end = std::max(result.end, end_[i]);
  }
  result.begin = std::min(result.begin, result.end);
  AddRows(requests_, &result);
  AddHosts(requests_, record, &result);
  return result;
}

std::string RequestsText(const RequestResult& result) {
  TextTable times;
  times.Row({"request", "number", "mean", "p50", "p90", "p99", "p99.9", "longest", "a second",
             "bytes/s"});
  for (std::size_t column = 1; column < 10; ++column) times.AlignRight(column);
  for (const Row& row : result.rows) {
    times.Row(
        {row.kind, HumanCount(static_cast<std::int64_t>(row.count)), HumanTime(row.mean),
         HumanTime(row.p50), HumanTime(row.p90), HumanTime(row.p99), HumanTime(row.p999),
         HumanTime(row.max),
         row.per_s > 0 ? HumanCount(static_cast<std::int64_t>(row.per_s + 0.5)) : "",
         row.bytes_per_s > 0 ? HumanBytes(static_cast<std::int64_t>(row.bytes_per_s)) + "/s" : ""});
  }
  TextTable hosts;
  hosts.Row({"hosts", "number", "at work", "the busiest"});
  for (std::size_t column = 1; column < 4; ++column) hosts.AlignRight(column);
  for (const RequestResult::Hosts& h : result.hosts) {
    if (h.busiest == 0) {
      hosts.Row({h.name, HumanCount(static_cast<std::int64_t>(h.count)), "", ""});
      continue;
    }
    hosts.Row({h.name, HumanCount(static_cast<std::int64_t>(h.count)),
               fmt::format("{:.1f} %", 100 * h.busy),
               fmt::format("{:.1f} %, rank {}", 100 * h.busiest, h.busiest_rank)});
  }
  return times.Render("  ") + "\n" + hosts.Render("  ");
}

std::string RequestsCsv(const RequestResult& result) {
  std::string text = "request,kind,rank,bytes,begin_ps,end_ps,time_ps\n";
  for (std::size_t i = 0; i < result.each.size(); ++i) {
    const RequestResult::One& one = result.each[i];
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{},{}\n", i, result.kinds[one.kind],
                   one.rank, one.bytes, one.begin, one.end, one.end - one.begin);
  }
  return text;
}

nlohmann::ordered_json RequestsJson(const RequestResult& result) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : result.rows) {
    nlohmann::ordered_json one = {
        {"kind", row.kind},    {"requests", row.count}, {"bytes", row.bytes},
        {"mean_ps", row.mean}, {"p50_ps", row.p50},     {"p90_ps", row.p90},
        {"p99_ps", row.p99},   {"p99_9_ps", row.p999},  {"longest_ps", row.max}};
    if (row.per_s > 0) {
      one["requests_per_s"] = row.per_s;
      one["bytes_per_s"] = row.bytes_per_s;
    }
    rows.push_back(std::move(one));
  }
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (const RequestResult::Hosts& h : result.hosts) {
    hosts.push_back({{"hosts", h.name},
                     {"number", h.count},
                     {"busy_share", h.busy},
                     {"busiest_share", h.busiest},
                     {"busiest_rank", h.busiest_rank}});
  }
  return {{"begin_ps", result.begin},
          {"end_ps", result.end},
          {"kinds", std::move(rows)},
          {"hosts", std::move(hosts)}};
}

}  // namespace orrery::results
