// The parts of a step mean one thing on every network.
#include <gtest/gtest.h>

#include <string>

#include "orrery/job/test_support.h"
#include "orrery/results/parts.h"

namespace orrery::job {
namespace {

using engine::Part;

// Two pipeline stages over NICs; a job of two NVLink pairs a stage.
constexpr std::string_view kStages = R"(
model: {preset: llama3-8b, layers: 8}
cluster: h100-ib-400g
nodes: 2
framework: megatron
parallel: {tp: 2, pp: 2}
training: {global_batch: 32, micro_batch: 1, seq_len: 4096, sharding: zero1}
)";

results::RunResult On(std::string_view text, std::string_view network, int threads = 1) {
  ReadOptions options;
  options.threads = threads;
  return Predict(Read(std::string(text) + "network: " + std::string(network) + "\n", options));
}
double PartOf(const results::JobResult& job, Part part) {
  return ToSeconds(job.overall.parts[static_cast<std::size_t>(part)]) / ToSeconds(job.step_time);
}
double Exposed(const results::JobResult& job, graph::GroupSlot slot) {
  return PartOf(job, static_cast<Part>(static_cast<std::size_t>(Part::kExposed) +
                                       static_cast<std::size_t>(slot)));
}

// `links` and the others that send chunks said "exposed" of all that a rank waited for its
// partners: no bubble, no waiting, and activations "that nothing hides" in their place.
TEST(PartsOnNetworks, BubbleAndWaitingAreTheSameEverywhere) {
  const results::RunResult analytic = On(kStages, "analytic");
  const results::JobResult& expected = analytic.jobs[0];
  ASSERT_GT(PartOf(expected, Part::kBubble), 0.05);
  for (const char* network : {"flow", "links", "flow-chunks", "loggops", "packet"}) {
    const results::RunResult run = On(kStages, network);
    const results::JobResult& job = run.jobs[0];
    EXPECT_NEAR(ToSeconds(job.step_time) / ToSeconds(expected.step_time), 1, 0.01) << network;
    EXPECT_NEAR(PartOf(job, Part::kBubble), PartOf(expected, Part::kBubble), 0.005) << network;
    EXPECT_NEAR(PartOf(job, Part::kWaiting), PartOf(expected, Part::kWaiting), 0.005) << network;
    for (const auto slot : {graph::GroupSlot::kPp, graph::GroupSlot::kModel}) {
      EXPECT_NEAR(Exposed(job, slot), Exposed(expected, slot), 0.005) << network;
    }
    EXPECT_EQ(results::BoundBy(job).find("activations"), std::string::npos) << network;
  }
}

// A partition hears of its partners' arrivals in time.
TEST(PartsOnNetworks, ThreadsChangeNoPart) {
  const results::RunResult one = On(kStages, "links"), two = On(kStages, "links", 2);
  EXPECT_EQ(one.simulation.fingerprint, two.simulation.fingerprint);
  EXPECT_EQ(one.jobs[0].overall.parts, two.jobs[0].overall.parts);
}

}  // namespace
}  // namespace orrery::job
