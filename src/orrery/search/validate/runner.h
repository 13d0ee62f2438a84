// Runs the jobs of rows. One Runner per thread: it keeps what runs on one machine share, and what
// the last job came to: rows that differ in outcome only are run once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "orrery/job/simulate.h"

namespace orrery::search {

// Which of the three meters, and which ranks it was read on.
enum class Meter : std::uint8_t { kAllocated, kReserved, kDevice };
enum class MeterRank : std::uint8_t { kMax, kFirst, kLast };

class Runner {
 public:
  explicit Runner(std::string measured_database) {
    options_.measured_database = std::move(measured_database);
    options_.check = false;  // generated graphs are verified by the tests of the generators
  }

  // Makes the job ready, with these constants; the two below run it. `document` says what the job
  // is (row_job.h).
  Status Load(const job::Job& job, const std::string& document, const constants::Set& constants);
  const Result<job::Evaluation>& Evaluate();
  Result<double> PeakMemoryGib(Meter meter, MeterRank rank) const;

 private:
  job::SimulateOptions options_;
  job::Caches caches_;
  std::string document_;
  std::uint64_t constants_ = 0;  // their hash
  std::unique_ptr<job::Job> job_;
  std::optional<job::Simulation> simulation_;
  std::optional<Result<job::Evaluation>> evaluation_;
};

}  // namespace orrery::search
