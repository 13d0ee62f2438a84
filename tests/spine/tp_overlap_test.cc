// Tensor-parallel communication in pieces, run: bounds, folding, back ends.
#include <gtest/gtest.h>

#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

using engine::Options;
using engine::Part;
using engine::Record;

SimTime Of(const Record& r, Part part) {
  return r.classes[0].breakdown[static_cast<std::size_t>(part)];
}
SimTime ExposedTp(const Record& r) {
  return r.classes[0].breakdown[static_cast<std::size_t>(Part::kExposed) +
                                static_cast<std::size_t>(graph::GroupSlot::kTp)];
}

Record Step(bool on, std::int64_t seq_len, const Options& options = {},
            std::string_view network = "analytic", int layers = 8) {
  workload::Model m = SmallGpt();
  m.layers = layers;
  m.max_position = seq_len;
  workload::Plan p = Gpt3Plan(8, 1, 1, 1);
  p.batch.seq_len = seq_len;
  p.framework.tp_comm_overlap = on;
  Scenario s("h100-ib-400g", 1);
  EXPECT_TRUE(s.Add(m, p, "job").ok());
  s.PlacePacked();
  return Scenario::Take(s.Run(options, network));
}

TEST(TpOverlap, HidesCommunicationAndNoMore) {
  const Record off = Step(false, 16384), on = Step(true, 16384);
  const SimTime step = on.jobs[0].step_time;
  // Never faster than the pieces of the GEMMs, which are no faster than the GEMMs.
  EXPECT_GE(step, Of(on, Part::kCompute));
  EXPECT_GE(Of(on, Part::kCompute), Of(off, Part::kCompute));
  // Nor than the bytes of its layers over the line: eight layers, each two gathers and two
  // reduce-scatters forward and, with the saved inputs gathered again, four and two backward, 7/8
  // of 16384 × 2048 × 2 bytes each.
  const std::int64_t bytes = 8 * 10 * (std::int64_t{16384} * 2048 * 2 / 8 * 7);
  EXPECT_GE(step, TransferTime(bytes, cluster::FindPreset("h100-ib-400g")->nvlink_reached_Bps()));
  EXPECT_LT(ExposedTp(on), ExposedTp(off));
  EXPECT_LT(step, off.jobs[0].step_time);
}

// A ring of equal steps: t - 1 times the longer of message and piece, then the last piece.
TEST(TpOverlap, ARingsTime) {
  for (const SimTime work : {kMicrosecond, kMillisecond}) {
    Scenario s("h100-ib-400g", 1);
    graph::Graph& g = s.graph();
    g.jobs.push_back({"job", 4, 0, 0});
    graph::Block b;
    b.name = g.Intern("ring");
    const NameId name = g.Intern("piece");
    constexpr std::int64_t kBytes = 16 << 20;
    for (std::uint8_t step = 0; step < 4; ++step) {
      for (const bool send : {true, false}) {
        if (step == 3) continue;
        b.ops.push_back({graph::OpKind::kComm, graph::kNoEvent,
                         static_cast<std::uint32_t>(b.comms.size()), name, name});
        b.comms.push_back({.collective = send ? graph::Collective::kSend : graph::Collective::kRecv,
                           .peer = send ? graph::PeerSlot::kTpNext : graph::PeerSlot::kTpPrevious,
                           .batch = static_cast<std::uint8_t>(step + 1),
                           .blocking = false,
                           .event = 0,
                           .bytes = {.value = kBytes}});
      }
      b.ops.push_back({graph::OpKind::kKernel, graph::kNoEvent, step, name, name});
      b.kernels.push_back(graph::Timed{work});
      if (step < 3) b.ops.push_back({graph::OpKind::kWait, 0, 0, name, name});
    }
    b.Seal();
    g.blocks.push_back(b);
    graph::Program p;
    p.events = 1;
    p.calls.push_back({.block = BlockId(std::size_t{0}), .repeat = 100});
    g.programs.push_back(p);
    std::vector<RankId> members;
    for (std::size_t r = 0; r < 4; ++r) members.emplace_back(r);
    const GroupId tp = g.groups.Add(graph::GroupSlot::kTp, members);
    for (std::size_t r = 0; r < 4; ++r) {
      graph::Binding binding;
      binding.program = ProgramId(std::size_t{0});
      binding.job = JobId(std::size_t{0});
      binding.logical_rank = static_cast<std::uint32_t>(r);
      binding.groups[0] = tp;
      binding.peers[static_cast<std::size_t>(graph::PeerSlot::kTpPrevious)] = RankId((r + 3) % 4);
      binding.peers[static_cast<std::size_t>(graph::PeerSlot::kTpNext)] = RankId((r + 1) % 4);
      g.bindings.push_back(binding);
    }
    s.PlacePacked();
    Options full;
    full.fold = false;
    const Record folded = Scenario::Take(s.Run({})), unfolded = Scenario::Take(s.Run(full));
    EXPECT_EQ(folded.fingerprint, unfolded.fingerprint);
    EXPECT_EQ(folded.jobs[0].step_time, unfolded.jobs[0].step_time);
    EXPECT_EQ(folded.classes.size(), 1u);
    const collective::GroupShape pair{.ranks = 2, .domains = 1, .ranks_per_domain = 2};
    const SimTime message = s.planner().ClosedForm(s.planner().CopyPlan(kBytes, pair)).total();
    EXPECT_GT(message, TransferTime(kBytes, s.cluster().spec().nvlink_reached_Bps()));
    const SimTime ring = 3 * std::max(message, work) + work;
    // Within the host's head start, and what a port bounds the message to.
    EXPECT_NEAR(static_cast<double>(folded.jobs[0].step_time), 100.0 * static_cast<double>(ring),
                0.02 * 100.0 * static_cast<double>(ring));
  }
}

TEST(TpOverlap, FoldsAndAgreesBetweenBackEnds) {
  Options full;
  full.fold = false;
  const Record folded = Step(true, 2048), unfolded = Step(true, 2048, full);
  EXPECT_EQ(folded.fingerprint, unfolded.fingerprint);
  EXPECT_EQ(folded.classes.size(), 1u);
  const Record links = Step(true, 2048, {}, "links", 2),
               closed = Step(true, 2048, {}, "analytic", 2);
  EXPECT_NEAR(static_cast<double>(links.jobs[0].step_time),
              static_cast<double>(closed.jobs[0].step_time),
              0.05 * static_cast<double>(closed.jobs[0].step_time));
}

}  // namespace
}  // namespace orrery::testing
