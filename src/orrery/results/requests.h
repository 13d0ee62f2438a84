// Completion times of the requests that a graph serves: percentiles, throughput, and how busy those
// are who serve them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/engine/engine.h"
#include "orrery/graph/requests.h"

namespace orrery::results {

struct RequestResult {
  struct Row {
    std::string kind;  // "read"; "all": of those that are no preparation
    std::size_t count = 0;
    std::int64_t bytes = 0;
    // From when it was made to its answer; percentiles by nearest rank.
    SimTime mean = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
    double per_s = 0, bytes_per_s = 0;  // over the run's span
  };
  struct Hosts {
    std::string name;
    std::size_t count = 0;
    // Share of the run that their service worked.
    double busy = 0, busiest = 0;
    std::uint32_t busiest_rank = 0;
  };
  struct One {
    SimTime begin = 0, end = 0;
    std::int64_t bytes = 0;
    std::uint32_t rank = 0, kind = 0;
  };
  std::vector<std::string> kinds;
  std::vector<One> each;
  std::vector<Row> rows;  // kinds that occur; then all, where there are several
  std::vector<Hosts> hosts;
  SimTime begin = 0, end = 0;  // from the first request to the last answer
};

// Hears when requests are answered. `also`: another sink of the run, or null.
class RequestLog final : public engine::Sink {
 public:
  explicit RequestLog(const graph::Requests& requests, engine::Sink* also = nullptr);

  bool wants(RankId rank) const override;
  void Add(const Interval& interval) override;
  // After the run; `record` is its own.
  RequestResult Take(const engine::Record& record) const;

 private:
  const graph::Requests& requests_;
  engine::Sink* const also_;
  std::vector<std::vector<std::uint32_t>> of_op_;  // requests, by rank and operation
  std::vector<SimTime> end_;                       // by request
};

// The report's part: a row a kind, a row a kind of host.
std::string RequestsText(const RequestResult& result);
// A line a request, in the order in which they stand in the trace; times in ps.
std::string RequestsCsv(const RequestResult& result);

}  // namespace orrery::results
