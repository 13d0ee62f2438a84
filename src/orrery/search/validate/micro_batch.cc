#include "orrery/search/validate/micro_batch.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

namespace orrery::search {
namespace {

// Seconds a step; infinite where it does not fit or cannot run.
double StepOf(const TrainingCase& c, MachinePool* pool) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Runner runner(pool);
  if (!runner.Load(c, constants::Set()).ok()) return kNever;
  const auto memory = runner.PeakMemoryGib(Meter::kDevice, MeterRank::kMax);
  const double device = static_cast<double>(c.cluster.device.memory_bytes) / (1 << 30);
  if (!memory.ok() || *memory > device) return kNever;
  std::vector<std::string> warnings;
  constants::StepShares shares;
  const auto seconds = runner.StepTime(&warnings, &shares);
  return seconds.ok() ? *seconds : kNever;
}

}  // namespace

Result<TrainingCase> MapTuned(const Configuration& row, MachinePool* pool,
                              std::vector<std::string>* assumed) {
  Result<TrainingCase> best = MapTraining(row, assumed);
  if (!best.ok() || !best->open_micro_batch) return best;
  double least = StepOf(*best, pool);
  for (const std::int64_t micro_batch : {2, 4, 8, 16}) {
    std::vector<std::string> said;
    Result<TrainingCase> cut = MapTraining(row, &said, micro_batch);
    if (!cut.ok()) continue;
    const double seconds = StepOf(*cut, pool);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(cut);
    *assumed = std::move(said);
  }
  const bool fits = least < std::numeric_limits<double>::infinity();
  assumed->push_back(fmt::format("micro_batch={} (blank: {})", best->plan.micro_batch,
                                 fits ? "the fastest up to 16 that fits" : "none fits"));
  return best;
}

}  // namespace orrery::search
