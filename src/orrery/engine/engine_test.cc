#include "orrery/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "orrery/collective/collective.h"
#include "orrery/constants/constants.h"
#include "orrery/engine/rank_noise.h"

namespace orrery::engine {
namespace {

using graph::Collective;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Eight hosts of eight H100 and a graph that a test fills by hand.
class EngineTest : public ::testing::Test {
 protected:
  EngineTest()
      : cluster_(*cluster::Cluster::Build(EightHosts())),
        compute_(*compute::CostModel::Create(cluster_.spec().device, {})),
        planner_(cluster_, collective::Environment{}) {
    graph_.jobs.push_back({"job", 0, 0, 0});
  }

  static cluster::Spec EightHosts() {
    cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
    spec.nodes = 8;
    return spec;
  }

  // A block of one timed kernel and the given communications, in this order.
  BlockId Block(SimTime work, std::vector<graph::Comm> comms) {
    graph::Block b;
    b.name = graph_.Intern("block");
    if (work > 0) {
      b.kernels.push_back(graph::Timed{work});
      b.ops.push_back({graph::OpKind::kKernel, graph::kNoEvent, 0, graph_.Intern("kernel"), {}});
    }
    for (std::size_t i = 0; i < comms.size(); ++i) {
      b.ops.push_back({graph::OpKind::kComm,
                       graph::kNoEvent,
                       static_cast<std::uint32_t>(i),
                       graph_.Intern("comm"),
                       {}});
    }
    b.comms = std::move(comms);
    b.Seal();
    graph_.blocks.push_back(std::move(b));
    return BlockId(graph_.blocks.size() - 1);
  }

  // A program of these blocks for one rank.
  void AddRank(const std::vector<BlockId>& blocks) {
    graph::Program p;
    p.name = fmt::format("program {}", graph_.programs.size());
    for (BlockId b : blocks) {
      graph::Call call;
      call.block = b;
      p.calls.push_back(call);
    }
    graph_.programs.push_back(std::move(p));
    graph::Binding binding;
    binding.program = ProgramId(graph_.programs.size() - 1);
    binding.job = JobId(std::size_t{0});
    binding.logical_rank = static_cast<std::uint32_t>(graph_.bindings.size());
    graph_.bindings.push_back(binding);
    placement_.device.emplace_back(placement_.device.size());
    ++graph_.jobs[0].ranks;
  }

  void Pair() {
    graph_.bindings[0].peers[1] = RankId(std::size_t{1});
    graph_.bindings[1].peers[0] = RankId(std::size_t{0});
  }

  Result<Record> Run(const Options& options = {}, std::string_view network = "analytic") {
    const Inputs in{&graph_, &cluster_, &placement_, &compute_, &planner_, network};
    return engine::Run(in, options);
  }

  static graph::Comm Message(Collective which, graph::PeerSlot peer, std::int64_t bytes) {
    graph::Comm c;
    c.collective = which;
    c.group = graph::GroupSlot::kPp;
    c.peer = peer;
    c.bytes.value = bytes;
    return c;
  }

  cluster::Cluster cluster_;
  compute::CostModel compute_;
  collective::Planner planner_;
  graph::Graph graph_;
  cluster::Placement placement_;
};

// Workers of a data loader read the next step's samples beside this one: the slower sets the pace.
TEST_F(EngineTest, StepsWaitForTheirSamples) {
  AddRank({Block(10 * kMillisecond, {})});
  const Result<Record> alone = Run();
  ASSERT_TRUE(alone.ok());
  const SimTime step = alone->jobs[0].step_time;
  for (const SimTime input : {step - 1, step, step + kMillisecond}) {
    const Result<Record> run = Run({.input_times = {input}});
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->jobs[0].step_time, std::max(step, input));
    const Breakdown& parts = run->classes[0].breakdown;
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), SimTime{0}), run->jobs[0].step_time);
    EXPECT_EQ(parts[static_cast<std::size_t>(Part::kHost)] -
                  alone->classes[0].breakdown[static_cast<std::size_t>(Part::kHost)],
              std::max<SimTime>(input - step, 0));
    EXPECT_EQ(run->warnings.size(), input > step ? 1 : 0);
  }
}

// A stage's passes wait for the slowest of the ranks that meet in them, the step for the most
// loaded stage of any replica, unless a slower rank of the others takes longer.
TEST_F(EngineTest, RanksWaitForTheSlowest) {
  constexpr double kDeviation = 0.03;
  const auto slowest_of = [](std::size_t n) { return 1 + kDeviation * constants::SlowestOf(n); };
  // Two ranks a stage, which meet in each of two micro-batches or in the last alone.
  const auto paces = [&](std::vector<SimTime> loads, bool together) {
    graph_.programs.clear();
    graph_.bindings.clear();
    graph::Comm sum;
    sum.group = graph::GroupSlot::kTp;
    sum.bytes.value = 1 << 20;
    for (std::size_t i = 0; i < 2 * loads.size(); ++i) {
      const SimTime half = loads[i / 2] / 2;
      AddRank({Block(half, together ? std::vector{sum} : std::vector<graph::Comm>{}),
               Block(half, {sum})});
      graph::Program& program = graph_.programs.back();
      program.stage = static_cast<std::int32_t>(i / 2);
      for (std::size_t c = 0; c < 2; ++c) {
        program.calls[c].microbatch = static_cast<std::int32_t>(c);
      }
      if (i % 2 == 0) continue;
      const std::array members = {RankId(i - 1), RankId(i)};
      const GroupId pair = graph_.groups.Add(graph::GroupSlot::kTp, members);
      for (RankId r : members) graph_.bindings[r.index()].groups[0] = pair;
    }
    PriceCache prices(compute_, planner_);
    return RankPaces(graph_, kDeviation, &prices);
  };
  constexpr SimTime kLoad = 10 * kMillisecond;
  const double own = slowest_of(2);
  EXPECT_THAT(paces({kLoad}, true), ElementsAre(own, own));
  EXPECT_THAT(paces({kLoad, kLoad}, true), ElementsAre(slowest_of(4), slowest_of(4), own, own));
  // Twice as much to do: nobody else comes near.
  EXPECT_THAT(paces({kLoad, 2 * kLoad}, true), ElementsAre(own, own, own, own));
  // A hundredth more: the slowest of all four, of whom two have that much less to do.
  const double all = slowest_of(4) / 1.01;
  EXPECT_GT(all, own);
  EXPECT_THAT(paces({kLoad, kLoad / 100 * 101}, true),
              ElementsAre(own, own, DoubleNear(all, 1e-12), DoubleNear(all, 1e-12)));
  // Replicas: the slowest of all four on the first stage, the mean on the other.
  EXPECT_THAT(paces({kLoad, kLoad}, false), ElementsAre(slowest_of(4), slowest_of(4), 1, 1));
}

TEST_F(EngineTest, OneRankRunsItsKernels) {
  // 3 ms of kernels: the host is far ahead of all but the first, so the period is the kernels'
  // time.
  AddRank({Block(kMillisecond, {}), Block(2 * kMillisecond, {})});
  const auto r = Run();
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->jobs[0].step_time, 3 * kMillisecond);
  EXPECT_EQ(r->classes[0].breakdown[static_cast<std::size_t>(Part::kCompute)], 3 * kMillisecond);
}

// Ten short kernels behind 0.9 ms of host work each, then ten of 1 ms: the host needs 9 ms for the
// first ten and is done with the others at once. A free host starts the next iteration's host work
// then, beside the long kernels: 10 + 0.01 ms a step, once it is ahead. Held back to one block
// ahead of the GPU it begins when the last block but one is done: the first 0.9 ms run beside the
// last block, then it waits for that one, and the GPU for nine times 0.9 ms.
TEST_F(EngineTest, APacedHostStaysABlockAhead) {
  const auto block = [&](SimTime kernel, SimTime host, bool paced) {
    graph::Block b;
    b.name = graph_.Intern("block");
    b.host_ps.push_back(host);
    b.kernels.push_back(graph::Timed{kernel});
    b.ops.push_back({graph::OpKind::kHost, graph::kNoEvent, 0, graph_.Intern("host"), {}});
    b.ops.push_back({graph::OpKind::kKernel, graph::kNoEvent, 0, graph_.Intern("kernel"), {}});
    if (paced) {
      b.ops.push_back({graph::OpKind::kHostPace, graph::kNoEvent, 0, graph_.Intern("pace"), {}});
    }
    b.Seal();
    graph_.blocks.push_back(std::move(b));
    return BlockId(graph_.blocks.size() - 1);
  };
  SimTime step[2] = {};
  for (const bool paced : {false, true}) {
    graph_.programs.clear();
    graph_.bindings.clear();
    placement_.device.clear();
    graph_.jobs[0].ranks = 0;
    std::vector<BlockId> blocks(10, block(kMillisecond / 1000, 9 * kMillisecond / 10, paced));
    blocks.insert(blocks.end(), 10, block(kMillisecond, 0, paced));
    AddRank(blocks);
    const auto r = Run();
    ASSERT_TRUE(r.ok()) << r.status().message();
    step[paced ? 1 : 0] = r->jobs[0].step_time;
  }
  const double ms = static_cast<double>(kMillisecond);
  EXPECT_NEAR(static_cast<double>(step[0]), 10.01 * ms, 0.1 * ms);
  EXPECT_NEAR(static_cast<double>(step[1]), (10.01 + 8.1) * ms, 0.25 * ms);
}

TEST_F(EngineTest, AReceiverWaitsForItsSender) {
  AddRank({Block(kMillisecond, {Message(Collective::kSend, graph::PeerSlot::kNext, 1 << 20)})});
  AddRank({Block(0, {Message(Collective::kRecv, graph::PeerSlot::kPrevious, 1 << 20)})});
  Pair();
  for (std::string_view network : {"analytic", "links"}) {
    const auto r = Run({}, network);
    ASSERT_TRUE(r.ok()) << r.status().message();
    // The sender's kernel and the message, which takes more than its bytes over the line.
    EXPECT_GT(r->jobs[0].step_time,
              kMillisecond + TransferTime(1 << 20, cluster_.spec().nvlink_Bps));
    EXPECT_LT(r->jobs[0].step_time, 2 * kMillisecond) << network;
  }
}

TEST_F(EngineTest, ACycleEndsWithWhoWaitsForWhom) {
  const BlockId first = Block(0, {Message(Collective::kRecv, graph::PeerSlot::kNext, 1024)});
  const BlockId second = Block(0, {Message(Collective::kRecv, graph::PeerSlot::kPrevious, 1024)});
  AddRank({first, Block(0, {Message(Collective::kSend, graph::PeerSlot::kNext, 1024)})});
  AddRank({second, Block(0, {Message(Collective::kSend, graph::PeerSlot::kPrevious, 1024)})});
  Pair();
  for (std::string_view network : {"analytic", "links"}) {
    const auto r = Run({}, network);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.status().code(), Code::kInfeasible);
    EXPECT_THAT(r.status().message(), HasSubstr("deadlock: 2 ranks wait for each other"));
    EXPECT_THAT(r.status().message(),
                HasSubstr("rank 0 (program 0) is in receive of 1024 bytes (comm, call 0 of block "
                          "'block'), waiting for rank 1"));
    EXPECT_THAT(r.status().message(), HasSubstr("rank 1 (program 1) is in receive"));
  }
}

TEST_F(EngineTest, MembersMustAgreeOnACollective) {
  graph::Comm reduce;
  reduce.bytes.value = 4096;
  graph::Comm larger = reduce;
  larger.bytes.value = 8192;
  AddRank({Block(kMicrosecond, {reduce})});
  AddRank({Block(kMicrosecond, {larger})});
  const RankId members[2] = {RankId(std::size_t{0}), RankId(std::size_t{1})};
  const GroupId tp = graph_.groups.Add(graph::GroupSlot::kTp, members);
  graph_.bindings[0].groups[0] = graph_.bindings[1].groups[0] = tp;
  const auto r = Run();
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.status().message(), HasSubstr("all-reduce of 8192 bytes"));
  EXPECT_THAT(r.status().message(), HasSubstr("its partner is in all-reduce of 4096 bytes"));
}

// Groups of eight hosts disagree: whichever thread meets one first, the report is
// one thread's.
TEST_F(EngineTest, OneOfSeveralMismatchesIsReported) {
  graph::Comm reduce;
  reduce.bytes.value = 4096;
  graph::Comm larger = reduce;
  larger.bytes.value = 8192;
  const BlockId blocks[2] = {Block(kMicrosecond, {reduce}), Block(kMicrosecond, {larger})};
  const std::size_t domain = static_cast<std::size_t>(cluster_.spec().gpus_per_nvlink_domain);
  for (std::size_t pair = 0; pair < 8; ++pair) {
    AddRank({blocks[0]});
    AddRank({blocks[1]});
    const RankId members[2] = {RankId(2 * pair), RankId(2 * pair + 1)};
    const GroupId tp = graph_.groups.Add(graph::GroupSlot::kTp, members);
    for (const RankId r : members) {
      graph_.bindings[r.index()].groups[0] = tp;
      placement_.device[r.index()] = DeviceId(pair * domain + r.index() % 2);
    }
  }
  const Status one = Run({.threads = 1}, "flow").status();
  EXPECT_THAT(one.message(), HasSubstr("its partner is in"));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Run({.threads = 4}, "flow").status().message(), one.message());
  }
}

// A rank may post receives for a whole step before it waits for one.
TEST_F(EngineTest, ManyMessagesAreOutstanding) {
  constexpr std::size_t kMessages = 300;
  graph::Comm send = Message(Collective::kSend, graph::PeerSlot::kNext, 1 << 20);
  graph::Comm receive = Message(Collective::kRecv, graph::PeerSlot::kPrevious, 1 << 20);
  send.blocking = receive.blocking = false;
  AddRank({Block(kMillisecond, std::vector(kMessages, send))});
  AddRank({Block(kMillisecond, std::vector(kMessages, receive))});
  Pair();
  placement_.device[1] = DeviceId(static_cast<std::size_t>(cluster_.spec().gpus_per_nvlink_domain));
  for (std::string_view network : {"analytic", "flow", "links"}) {
    EXPECT_TRUE(Run({}, network).ok()) << network;
  }
  // More than are counted are refused.
  for (graph::Program& program : graph_.programs) program.calls[0].repeat = 250;
  for (std::string_view network : {"analytic", "flow", "links"}) {
    EXPECT_THAT(Run({}, network).status().message(),
                HasSubstr("has 65535 communications under way"))
        << network;
  }
}

// A block beyond the fast machine's counters runs on the general one, and takes as long a copy.
TEST_F(EngineTest, ABlockOfVeryManyPiecesRunsOnTheGeneralMachine) {
  graph::Comm copy;
  copy.collective = Collective::kCopyToHost;
  copy.group = graph::GroupSlot::kOffload;
  copy.bytes.value = 8;
  AddRank({Block(0, std::vector(0xFFFF, copy))});
  const Result<Record> fast = Run();
  ASSERT_TRUE(fast.ok());
  EXPECT_EQ(fast->not_straight_because, "");
  graph_.programs[0].calls[0].block = Block(0, std::vector(0x10000, copy));
  const Result<Record> general = Run();
  ASSERT_TRUE(general.ok()) << general.status().message();
  EXPECT_THAT(general->not_straight_because, HasSubstr("65535"));
  // Both wait for the host, which issues one more.
  const double each = static_cast<double>(fast->jobs[0].step_time) / 0xFFFF;
  EXPECT_NEAR(static_cast<double>(general->jobs[0].step_time), 0x10000 * each, 2 * each);
}

// A block whose group lies in one class needs no events, whatever the group is for: those of the
// slots beyond the eighth did.
TEST_F(EngineTest, GroupsOfEverySlotAreTakenWhole) {
  std::vector<std::uint64_t> events;
  for (const graph::GroupSlot slot : {graph::GroupSlot::kTp, graph::GroupSlot::kReplica}) {
    graph_ = {};
    graph_.jobs.push_back({"job", 0, 0, 0});
    placement_.device.clear();
    graph::Comm reduce;
    reduce.group = slot;
    reduce.bytes.value = 4096;
    AddRank({Block(kMillisecond, {reduce})});
    graph_.bindings.push_back(graph_.bindings[0]);
    graph_.bindings[1].logical_rank = 1;
    placement_.device.emplace_back(std::size_t{1});
    ++graph_.jobs[0].ranks;
    const RankId members[2] = {RankId(std::size_t{0}), RankId(std::size_t{1})};
    const GroupId group = graph_.groups.Add(slot, members);
    for (graph::Binding& b : graph_.bindings) b.groups[static_cast<std::size_t>(slot)] = group;
    const auto r = Run();
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->ranks_simulated, 1u);
    events.push_back(r->events);
  }
  EXPECT_EQ(events[0], events[1]);
}

// Beside a job that waits for itself the other repeated its step for ever.
TEST_F(EngineTest, AJobThatNeverEndsStopsTheOthers) {
  AddRank({Block(0, {Message(Collective::kRecv, graph::PeerSlot::kNext, 1024)})});
  AddRank({Block(0, {Message(Collective::kRecv, graph::PeerSlot::kPrevious, 1024)})});
  Pair();
  AddRank({Block(kMillisecond, {})});
  graph_.jobs[0].ranks = 2;
  graph_.jobs.push_back({"other", 1, 0, 0});
  graph_.bindings[2].job = JobId(std::size_t{1});
  graph_.bindings[2].logical_rank = 0;
  for (std::string_view network : {"analytic", "flow", "links"}) {
    EXPECT_THAT(Run({}, network).status().message(), HasSubstr("deadlock: 2 ranks wait"))
        << network;
  }
}

TEST_F(EngineTest, ACopyTakesItsTimeOverPcie) {
  const cluster::Spec& spec = cluster_.spec();
  const auto bytes = [&](std::int64_t ms) { return spec.pcie_Bps / 1000 * ms; };
  graph::Comm copy;
  copy.collective = Collective::kCopyToHost;
  copy.group = graph::GroupSlot::kOffload;
  copy.bytes.value = bytes(4);
  AddRank({Block(kMillisecond, {copy}), Block(5 * kMillisecond, {})});
  for (std::string_view network : {"analytic", "links"}) {
    // Blocking: kernels and copy one after the other.
    const auto r = Run({}, network);
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->jobs[0].step_time, 10 * kMillisecond + spec.pcie_latency) << network;
    const std::size_t offload = static_cast<std::size_t>(Part::kExposed) +
                                static_cast<std::size_t>(graph::GroupSlot::kOffload);
    EXPECT_EQ(r->classes[0].breakdown[offload], 4 * kMillisecond + spec.pcie_latency);
  }
  copy.blocking = false;
  for (const auto& [ms, step] :
       {std::pair<std::int64_t, SimTime>{4, 6 * kMillisecond},
        std::pair<std::int64_t, SimTime>{8, 8 * kMillisecond + spec.pcie_latency}}) {
    copy.bytes.value = bytes(ms);
    graph_.programs[0].calls[0].block = Block(kMillisecond, {copy});
    const auto r = Run();
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->jobs[0].step_time, step);  // hidden, or one copy after the other
  }
}

TEST_F(EngineTest, ASlowRankTakesLonger) {
  AddRank({Block(kMillisecond, {})});
  Options o;
  o.ranks = {{RankId(std::size_t{0}), 0.5, 0}};
  const auto r = Run(o);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->jobs[0].step_time, 2 * kMillisecond);
}

TEST_F(EngineTest, OptionsOutOfRangeAreNamed) {
  AddRank({Block(kMillisecond, {})});
  Options o;
  o.iterations = 1;
  EXPECT_THAT(Run(o).status().message(), HasSubstr("simulation.iterations: 1 is not valid"));
  o = {};
  o.jitter = 0.5;
  EXPECT_THAT(Run(o).status().message(), HasSubstr("perturb.jitter: 0.5"));
  o = {};
  o.ranks = {{RankId(std::size_t{7}), 0.5, 0}};
  EXPECT_THAT(Run(o).status().message(), HasSubstr("rank 7 does not exist; the last is 0"));
  EXPECT_THAT(Run({}, "flwo").status().message(), HasSubstr("unknown network 'flwo'"));
}

}  // namespace
}  // namespace orrery::engine
