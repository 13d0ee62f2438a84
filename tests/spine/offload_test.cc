// Parameter shards in host memory, run: never below the copies' time, hidden where layers are long.
#include <gtest/gtest.h>

#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

engine::Record OffloadStep(bool offload, std::int64_t seq_len) {
  workload::Model m = SmallGpt();
  m.max_position = seq_len;
  workload::Plan p = Gpt3Plan(1, 1, 2, 2);
  p.batch.seq_len = seq_len;
  p.memory.sharding = workload::Sharding::kZero3;
  p.memory.offload_optimizer = true;
  p.memory.offload_parameters = offload;
  Scenario s("h100-ib-400g", 1);
  EXPECT_TRUE(s.Add(m, p, "job").ok());
  s.PlacePacked();
  return Scenario::Take(s.Run({}));
}

TEST(OffloadedParameters, CopiesAreHiddenBehindLongLayersOnly) {
  // Two ranks: each copies half of the parameters, twice a layer, in bf16.
  const workload::Model m = SmallGpt();
  const cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  const std::int64_t layer = 12 * m.hidden * m.hidden;
  const SimTime copies = TransferTime(2 * m.layers * layer, spec.pcie_Bps);
  for (const std::int64_t seq_len : {512, 16384}) {
    const SimTime without = OffloadStep(false, seq_len).jobs[0].step_time;
    const engine::Record with = OffloadStep(true, seq_len);
    EXPECT_GE(with.jobs[0].step_time, copies);
    const SimTime exposed =
        with.classes[0].breakdown[static_cast<std::size_t>(engine::Part::kExposed) +
                                  static_cast<std::size_t>(graph::GroupSlot::kOffload)];
    // What was blocking without it, parameters back after the step, is gone.
    EXPECT_LT(with.jobs[0].step_time, without + copies);
    if (seq_len == 512) {
      EXPECT_GT(exposed, copies / 2);
    }
  }
}

}  // namespace
}  // namespace orrery::testing
