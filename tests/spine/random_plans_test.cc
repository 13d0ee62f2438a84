// What must hold for any plan: 500 drawn plans, each printed with the seed that makes it again.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "orrery/base/rng.h"
#include "orrery/memory/memory.h"
#include "tests/spine/drawn_plan.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

using engine::Options;
using engine::Record;

// A permutation of the devices that keeps NVLink domains together: ranks renamed.
void Rename(Scenario* s, std::uint64_t seed) {
  auto& device = s->placement().device;
  const std::size_t nodes = (device.size() + 7) / 8;
  std::vector<std::size_t> order(nodes);
  std::iota(order.begin(), order.end(), std::size_t{0});
  CounterRng rng(seed);
  for (std::size_t i = nodes; i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
  for (DeviceId& d : device) d = DeviceId(order[d.index() / 8] * 8 + d.index() % 8);
}

void ExpectEqual(const Record& a, const Record& b) {
  ASSERT_EQ(a.fingerprint, b.fingerprint);
  ASSERT_EQ(a.finish_time, b.finish_time);
  for (std::size_t j = 0; j < a.jobs.size(); ++j) {
    ASSERT_EQ(a.jobs[j].iteration_end, b.jobs[j].iteration_end);
  }
  for (std::size_t c = 0; c < a.classes.size(); ++c) {
    ASSERT_EQ(a.classes[c].breakdown, b.classes[c].breakdown) << "rank " << c;
  }
  for (std::size_t n = 0; n < a.network.size(); ++n) {
    ASSERT_EQ(a.network[n].bytes, b.network[n].bytes) << a.network[n].name;
    ASSERT_EQ(a.network[n].busy_share, b.network[n].busy_share) << a.network[n].name;
  }
}

TEST(RandomPlans, FoldedRenamedAndRepeatedAgree) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    Scenario s("h100-ib-400g", d.nodes);
    const Status added = s.Add(d.model, d.plan, "job");
    ASSERT_TRUE(added.ok() || added.code() == Code::kInvalidInput) << added.message();
    if (!added.ok()) continue;
    s.PlacePacked();
    ++ran;
    const auto folded = s.Run({});
    ASSERT_TRUE(folded.ok()) << folded.status().message();
    Options full;
    full.fold = false;
    full.iterations = folded->iterations;
    const auto unfolded = s.Run(full);
    ASSERT_TRUE(unfolded.ok()) << unfolded.status().message();
    ASSERT_EQ(folded->fingerprint, unfolded->fingerprint);
    ASSERT_EQ(folded->jobs[0].step_time, unfolded->jobs[0].step_time);
    full.stepwise = true;
    const auto stepped = s.Run(full);
    ASSERT_TRUE(stepped.ok()) << stepped.status().message();
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*unfolded, *stepped));
    for (const auto& c : folded->classes) {
      // The parts tile the step, none negative, but for what a class change rounds away and, where
      // no barrier ends the step and it has not settled, for what a rank's own last period differs
      // from the job's by: that counts as waiting.
      const SimTime step = folded->jobs[0].step_time;
      const SimTime slack = 1000 + (folded->jobs[0].settled ? step / 5000 : step / 100);
      SimTime sum = 0;
      for (SimTime part : c.breakdown) {
        sum += part;
        ASSERT_GE(part, -slack);
      }
      ASSERT_EQ(sum, folded->jobs[0].step_time);
    }
    // Within one leaf: elsewhere another node is another distance.
    if (d.plan.ranks() % 8 == 0 && d.nodes <= s.cluster().spec().nodes_per_leaf) {
      Rename(&s, seed);
      const auto renamed = s.Run({});
      ASSERT_TRUE(renamed.ok());
      ASSERT_EQ(renamed->fingerprint, folded->fingerprint);
    }
  }
  EXPECT_GT(ran, 350);  // the rest breaks a rule of the schedule and was refused
}

// A group that takes a block's fixed course together, and one that steps through it item by item:
// slow ranks, late ranks and other jobs are where the first may not.
TEST(RandomPlans, BlocksTakenTogetherAreBlocksStepped) {
  int ran = 0, fewer = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    CounterRng rng(seed ^ 0x70e7);
    const bool two = d.nodes <= 2 && rng.Below(3) == 0;
    Scenario s("h100-ib-400g", two ? 2 * d.nodes : d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    if (two && !s.Add(d.model, d.plan, "beside").ok()) continue;
    s.PlacePacked();
    ++ran;
    Options o;
    o.fold = false;
    o.iterations = 3;
    const std::size_t perturbed = rng.Below(4);
    for (std::size_t i = 0; i < perturbed; ++i) {
      const RankId rank(rng.Below(s.graph().bindings.size()));
      const double speed = rng.Below(2) == 0 ? 1 : 0.8 + 0.1 * static_cast<double>(rng.Below(4));
      o.ranks.push_back({rank, speed, static_cast<SimTime>(rng.Below(3) * 77'777'777)});
    }
    const auto together = s.Run(o);
    ASSERT_TRUE(together.ok()) << together.status().message();
    o.stepwise = true;
    const auto stepped = s.Run(o);
    ASSERT_TRUE(stepped.ok()) << stepped.status().message();
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*together, *stepped));
    ASSERT_LE(together->events, stepped->events);
    if (together->events < stepped->events) ++fewer;
  }
  EXPECT_GT(ran, 280);
  EXPECT_GT(fewer, 100);
}

// A collective that takes its group's course, and one whose chunks are events: slow ranks, late
// ranks and other groups on the same links are where the first may not.
TEST(RandomPlans, CoursesAreChunks) {
  int ran = 0, fewer = 0;
  for (std::uint64_t seed = 1; ran < 40; ++seed) {
    ASSERT_LT(seed, 10'000u) << "plans are refused";
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    if (d.plan.ranks() > 16) continue;  // every chunk is an event
    CounterRng rng(seed ^ 0xc0125e);
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    ++ran;
    Options o;
    o.iterations = 2;
    const std::size_t perturbed = rng.Below(3);
    for (std::size_t i = 0; i < perturbed; ++i) {
      const RankId rank(rng.Below(s.graph().bindings.size()));
      const double speed = rng.Below(2) == 0 ? 1 : 0.8 + 0.1 * static_cast<double>(rng.Below(4));
      o.ranks.push_back({rank, speed, static_cast<SimTime>(rng.Below(3) * 777'777)});
    }
    const std::string_view network = seed % 2 == 0 ? "links" : "packet";
    const auto courses = s.Run(o, network);
    ASSERT_TRUE(courses.ok()) << courses.status().message();
    o.stepwise = true;
    const auto chunks = s.Run(o, network);
    ASSERT_TRUE(chunks.ok()) << chunks.status().message();
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(*courses, *chunks));
    if (courses->events < chunks->events) ++fewer;
  }
  EXPECT_GT(fewer, 10);
}

// Packets and fair shares tell nearly the same step time where nothing is congested. What is left
// is messages of 512 tokens, which wait for each other one way here and another there.
TEST(RandomPlans, PacketsAgreeWithFairShares) {
  int ran = 0, close = 0;
  for (std::uint64_t seed = 1; ran < 25; ++seed) {
    ASSERT_LT(seed, 10'000u) << "plans are refused";
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    if (d.plan.ranks() > 32 || d.nodes < 2) continue;
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    ++ran;
    Options o;
    o.iterations = 2;
    const auto packets = s.Run(o, "packet");
    ASSERT_TRUE(packets.ok()) << packets.status().message();
    const auto shares = s.Run(o, "flow");
    ASSERT_TRUE(shares.ok()) << shares.status().message();
    const double gap = static_cast<double>(packets->jobs[0].step_time) /
                           static_cast<double>(shares->jobs[0].step_time) -
                       1;
    EXPECT_LT(std::abs(gap), 0.1) << gap;
    if (std::abs(gap) < 0.03) ++close;
  }
  EXPECT_GE(close, 20);
}

// The general machine knows one rule, the fast one many: of a straight program both find the same
// end of every iteration, to the picosecond.
TEST(RandomPlans, BothMachinesAgree) {
  int ran = 0, mismatched = 0;
  for (std::uint64_t seed = 1; ran < 2000; ++seed) {
    ASSERT_LT(seed, 10'000u) << "plans are refused";
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    if (d.plan.ranks() > 32) continue;  // every kernel is an event there
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    Options o;
    o.fold = false;
    o.iterations = 2;
    const auto fast = s.Run(o);
    o.general = true;
    const auto general = s.Run(o);
    ASSERT_EQ(fast.ok(), general.ok()) << fast.status().message() << general.status().message();
    if (!fast.ok()) {  // DualPipe over a hybrid's layers: two ranks disagree on a reduction
      ASSERT_EQ(fast.status().code(), general.status().code());
      ++mismatched;
      continue;
    }
    ++ran;
    ASSERT_EQ(fast->jobs[0].iteration_end, general->jobs[0].iteration_end);
  }
  EXPECT_LE(mismatched, 1);
}

// Memory returns to its base, and both readings of a program see the same peak of requests.
TEST(RandomPlans, RecomputedLayersGiveTheirMemoryBack) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    if (!d.plan.recomputes_in_parts()) continue;
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    ++ran;
    const auto nets = memory::BlockNets(s.graph());
    for (std::size_t p = 0; p < s.graph().programs.size(); ++p) {
      const auto replayed = memory::Replay(s.graph(), ProgramId(p), s.cluster().spec().device);
      ASSERT_TRUE(replayed.ok()) << replayed.status().message();
      ASSERT_TRUE(replayed->settled);
      const auto quick = memory::QuickPeak(s.graph(), ProgramId(p), nets);
      ASSERT_TRUE(quick.ok()) << quick.status().message();
      ASSERT_EQ(*quick, replayed->peak_requested);
    }
  }
  EXPECT_GT(ran, 20);
}

// Message by message. What two lanes want of one link at one instant is settled by each machine's
// own order, so that ends may differ by a little.
TEST(RandomPlans, BothMachinesAgreeOverLinks) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Drawn d = Draw(seed);
    if (d.nodes > 2 || d.model.experts.count > 0) continue;  // `links` has no all-to-all
    d.plan.batch.seq_len = 128;
    d.plan.batch.global_batch = d.plan.batch.micro_batch * d.plan.parallel.dp * d.plan.parallel.pp;
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    Options o;
    o.fold = false;
    o.iterations = 2;
    const auto fast = s.Run(o, "links");
    ASSERT_TRUE(fast.ok()) << fast.status().message();
    o.general = true;
    const auto general = s.Run(o, "links");
    ASSERT_TRUE(general.ok()) << general.status().message();
    ++ran;
    EXPECT_NEAR(static_cast<double>(general->jobs[0].step_time) /
                    static_cast<double>(fast->jobs[0].step_time),
                1, 1e-4)
        << fast->jobs[0].step_time << " " << general->jobs[0].step_time;
  }
  EXPECT_GT(ran, 10);
}

TEST(RandomPlans, PartitionsOfLinksAgree) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Drawn d = Draw(seed);
    if (d.nodes < 2 || d.model.experts.count > 0) continue;  // `links` has no all-to-all
    d.plan.batch.seq_len = 128;  // messages stay few: this is about order, not size
    d.plan.batch.global_batch = d.plan.batch.micro_batch * d.plan.parallel.dp * d.plan.parallel.pp;
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    std::uint64_t fingerprint = 0;
    for (int threads : {1, 2, 3}) {
      Options o;
      o.threads = threads;
      o.iterations = 2;
      const auto r = s.Run(o, "links");
      ASSERT_TRUE(r.ok()) << r.status().message();
      if (threads == 1) fingerprint = r->fingerprint;
      ASSERT_EQ(r->fingerprint, fingerprint) << threads << " threads";
    }
  }
}

// Of the plans that spine_bench evaluates: what folding saves changes nothing.
TEST(SearchPlans, TwentyEqualEveryRankSimulated) {
  std::vector<std::unique_ptr<Scenario>> clusters;
  for (std::string_view preset : {"h100-ib-400g", "h100-roce-400g"}) {
    clusters.push_back(std::make_unique<Scenario>(preset, 128));
  }
  const workload::Model model = Gpt3();
  int compared = 0;
  for (std::uint64_t seed = 1000; compared < 20; ++seed) {
    ASSERT_LT(seed, 1100u) << "plans are refused";
    CounterRng rng(seed);
    Scenario& s = *clusters[rng.Below(clusters.size())];
    s.Clear();
    if (!s.Add(model, SearchPlan(&rng), "job").ok()) continue;
    s.PlacePacked();
    Options options;
    options.iterations = 2;
    const auto folded = s.Run(options);
    options.fold = false;
    const auto all = s.Run(options);
    ASSERT_TRUE(folded.ok() && all.ok()) << seed;
    EXPECT_EQ(folded->jobs[0].step_time, all->jobs[0].step_time) << seed;
    EXPECT_EQ(folded->fingerprint, all->fingerprint) << seed;
    EXPECT_LT(folded->events, all->events) << seed;
    ++compared;
  }
}

}  // namespace
}  // namespace orrery::testing
