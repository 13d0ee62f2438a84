// The general machine against a scheduler that is as plain as it is slow.
#include "orrery/engine/general/machine.h"

#include <gtest/gtest.h>

#include "orrery/graph/general_samples.h"
#include "orrery/graph/verify/verify.h"
#include "tests/spine/reference_scheduler.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

namespace general = engine::general;

SimTime DurationOf(std::int64_t bytes) { return 70'001 + 3 * bytes; }

// Every communication has the network to itself.
class IdealTransport final : public general::Transport {
 public:
  bool Join(SimTime now, std::uint32_t id, const general::Meeting& meeting, std::uint32_t,
            bool last) override {
    if (last) under_way_.push_back({now + DurationOf(meeting.bytes), id});
    return false;
  }
  SimTime next_time() override {
    SimTime next = kNever;
    for (const auto& [end, id] : under_way_) next = std::min(next, end);
    return next;
  }
  SimTime AdvanceUntil(SimTime t, std::vector<Ended>* ended) override {
    const SimTime now = std::min(t, next_time());
    std::erase_if(under_way_, [&](const auto& u) {
      if (u.first > now) return false;
      ended->push_back({u.second, engine::kNobody});
      return true;
    });
    return now;
  }
  std::uint64_t events() const override { return 0; }
  std::vector<network::PortStatistics> statistics() const override { return {}; }

 private:
  std::vector<std::pair<SimTime, std::uint32_t>> under_way_;
};

// What the reference scheduler knows: kernels of known time, receives that name their sender,
// messages that hold nothing.
graph::Graph DrawnGraph(std::uint64_t seed) {
  graph::GeneralShape shape = graph::AnyGeneralShape(seed);
  shape.phases = std::min(shape.phases, 5);
  shape.segments = std::min(shape.segments, 2);
  graph::Graph g = graph::GeneralGraph(seed, shape);
  CounterRng rng(seed ^ 0x7e57);
  for (graph::Block& block : g.blocks) {
    for (graph::Op& op : block.ops) {
      if (op.kind == graph::OpKind::kComm) op.hold = 0;
      if (op.kind != graph::OpKind::kKernel) continue;
      op.kind = graph::OpKind::kTimed;
      op.index = static_cast<std::uint32_t>(block.times.size());
      block.times.push_back({1 + static_cast<std::int64_t>(rng.Below(1u << 30)), -1});
    }
    block.kernels.clear();
    std::int32_t tag = -1, sender = 0;
    for (graph::Comm& comm : block.comms) {
      if (comm.peer.kind != graph::PeerKind::kAny) continue;
      if (std::exchange(tag, comm.tag) != comm.tag) sender = 0;
      comm.peer = {graph::PeerKind::kMember, ++sender};
    }
    block.Seal();
  }
  return g;
}

struct Both {
  std::vector<SimTime> machine, reference;
  bool tied = false;
};

Both RunBoth(const graph::Graph& g, const Scenario& host, engine::PriceCache* prices) {
  cluster::Placement placement;
  for (std::size_t r = 0; r < g.bindings.size(); ++r) placement.device.emplace_back(r);
  const engine::Inputs inputs{&g,     &host.cluster(), &placement, &host.compute(), &host.planner(),
                              "ideal"};
  const engine::Options options;
  IdealTransport transport;
  std::vector<std::unique_ptr<general::FlatProgram>> flats;
  std::vector<std::vector<general::BlockCosts>> costs(g.programs.size());
  std::vector<std::vector<const general::BlockCosts*>> by_call(g.programs.size());
  general::MachineInputs in;
  for (std::size_t p = 0; p < g.programs.size(); ++p) {
    flats.push_back(std::make_unique<general::FlatProgram>(g, g.programs[p], 1,
                                                           [](graph::GroupSlot) { return false; }));
    for (const graph::Call& call : g.programs[p].calls) {
      costs[p].push_back(*general::CostsOf(g.blocks[call.block.index()], host.compute(),
                                           host.cluster().spec(), 1));
    }
    for (const general::BlockCosts& c : costs[p]) by_call[p].push_back(&c);
  }
  for (const graph::Binding& b : g.bindings) {
    in.programs.push_back(
        {.flat = flats[b.program.index()].get(), .costs = &by_call[b.program.index()]});
  }
  in.inputs = &inputs;
  in.options = &options;
  in.prices = prices;
  in.speed.assign(g.bindings.size(), 1);
  in.delay.assign(g.bindings.size(), 0);
  in.transport = &transport;
  general::Machine machine(in);
  const Status status = machine.Run();
  EXPECT_TRUE(status.ok()) << status.message();
  Both both;
  for (std::size_t r = 0; r < g.bindings.size(); ++r) both.machine.push_back(machine.end(r, 0));
  ReferenceScheduler reference({&g, &host.compute(), &host.cluster().spec(), DurationOf});
  both.reference = reference.Run();
  both.tied = reference.tied();
  return both;
}

TEST(GeneralMachine, AgreesWithThePlainScheduler) {
  const Scenario host("h100-ib-400g", 4);
  engine::PriceCache prices(host.compute(), host.planner());
  int compared = 0;
  for (std::uint64_t seed = 1; compared < 2000; ++seed) {
    const graph::Graph g = DrawnGraph(seed);
    const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
    ASSERT_TRUE(verified.ok()) << "seed " << seed << ": " << verified.message();
    const Both both = RunBoth(g, host, &prices);
    if (both.tied) continue;
    ASSERT_EQ(both.machine, both.reference) << "seed " << seed;
    ++compared;
    ASSERT_LT(seed, 4000u);
  }
}

}  // namespace
}  // namespace orrery::testing
