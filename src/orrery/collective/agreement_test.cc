// The two readings of a plan against each other: closed form and uncontended lowering, for every
// algorithm, protocol and group shape, 1 KiB to 4 GiB in steps of 4: within 3 %, rings that wait
// for acknowledgements within 4 %, exchanges within 4.5 %. No case is estimated: of a long one the
// periods that repeat to the picosecond are left out (IdealExecutor::RunPeriodic), and a case of
// more steps than a bound is not run, which the counts say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "orrery/collective/ideal_executor_test.h"

namespace orrery::collective {
namespace {

using graph::Collective;

struct Tally {
  int cases = 0, within = 0, skipped = 0;
  double bound = 3, worst = 0;  // per cent
  std::string where;
};

double Steps(const Plan& plan) {
  const model::Pieces p = model::Cut(plan);
  const double slices = static_cast<double>(p.rounds) * p.full.slices + p.tail.slices;
  if (plan.collective == Collective::kAllToAll) {
    return 2 * slices * plan.channels * plan.shape.ranks * plan.shape.ranks;
  }
  if (model::IsExchange(plan.collective)) return 2 * slices * plan.channels * plan.shape.ranks;
  if (plan.algorithm == Algorithm::kPat) {
    const double actions = static_cast<double>(pat::Pattern(plan).Actions().size());
    return slices * actions * plan.channels * plan.shape.ranks;
  }
  if (model::IsCollNet(plan)) {
    return slices * 4 * std::max(2, plan.heads) * plan.channels * plan.shape.ranks;
  }
  if (model::IsNvls(plan)) return slices * 4 * plan.heads * plan.channels * plan.shape.ranks;
  const double per_slice =
      plan.algorithm == Algorithm::kTree ? 4
      : plan.algorithm == Algorithm::kRing && model::IsRotating(plan.collective)
          ? static_cast<double>(model::RingSteps(plan))
          : 1;
  return slices * per_slice * plan.channels * plan.shape.ranks;
}

// ORRERY_AGREEMENT_ONLY: what the name of a row holds, to look at a part.
class Agreement {
 public:
  explicit Agreement(double most_steps) : most_steps_(most_steps) {}

  void Run() {
    for (const char* preset : {"a100-80g-ib-200g", "h100-ib-400g", "b200-ib-400g"}) {
      for (int nodes = 1; nodes <= 8; ++nodes) {
        for (int ranks = nodes == 1 ? 2 : 1; ranks <= 8; ++ranks) Group(preset, nodes, ranks);
      }
    }
  }
  void Print() const {
    for (const auto& [name, t] : tallies_) {
      std::printf(
          "%-24s %5d cases, %5d within %.0f %%, %4d left out (above %.0f steps), worst %+.2f %% "
          "(%s)\n",
          name.c_str(), t.cases, t.within, t.bound, t.skipped, most_steps_, t.worst,
          t.where.c_str());
    }
  }
  const std::map<std::string, Tally>& tallies() const { return tallies_; }

 private:
  void Group(const char* preset, int nodes, int ranks) {
    cluster::Spec spec = *cluster::FindPreset(preset);
    spec.nodes = nodes;
    spec.sharp = true;
    const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
    std::vector<DeviceId> members;
    for (int n = 0; n < nodes; ++n) {
      for (int i = 0; i < ranks; ++i) members.emplace_back(static_cast<std::size_t>(n * 8 + i));
    }
    const GroupShape shape = ShapeOf(cluster, members);
    const Planner planner(cluster, {});
    const std::string where = fmt::format("{}, {} x {}", preset, nodes, ranks);
    for (std::int64_t bytes = 1 << 10; bytes <= std::int64_t{4} << 30; bytes *= 4) {
      for (Protocol p : {Protocol::kLL, Protocol::kLL128, Protocol::kSimple}) {
        const auto one = [&](Collective c, Algorithm a) {
          Compare(planner, planner.Shape(c, a, p, bytes, shape), members, where);
        };
        one(Collective::kAllReduce, Algorithm::kRing);
        one(Collective::kAllReduce, Algorithm::kTree);
        one(Collective::kAllGather, Algorithm::kRing);
        one(Collective::kReduceScatter, Algorithm::kRing);
        one(Collective::kBroadcast, Algorithm::kRing);
      }
      Nvls(planner, members, bytes, shape, where);
      if (nodes > 1) CollNet(planner, members, bytes, shape, where);
      if (ranks == 1) {
        for (Collective c : {Collective::kAllGather, Collective::kReduceScatter}) {
          Compare(planner, planner.Shape(c, Algorithm::kPat, Protocol::kSimple, bytes, shape),
                  members, where);
        }
      }
      Compare(planner, *planner.MakePlan(Collective::kAllToAll, bytes, shape), members, where);
      for (Collective c : {Collective::kGather, Collective::kScatter}) {
        Compare(planner, *planner.MakePlan(c, bytes, shape), members, where);
      }
      if (shape.ranks == 2) {
        Compare(planner, *planner.MakePlan(Collective::kSend, bytes, shape), members, where);
      }
    }
  }

  void Nvls(const Planner& planner, std::span<const DeviceId> members, std::int64_t bytes,
            const GroupShape& shape, const std::string& where) {
    const bool switches = planner.cluster().spec().device.arch >= cluster::Arch::kHopper;
    if (!switches || shape.ranks_per_domain < 2) return;
    const auto one = [&](Collective c, Algorithm a) {
      Compare(planner, planner.Shape(c, a, Protocol::kSimple, bytes, shape), members, where);
    };
    if (shape.domains > 1) return one(Collective::kAllReduce, Algorithm::kNvlsTree);
    one(Collective::kAllReduce, Algorithm::kNvls);
    one(Collective::kAllGather, Algorithm::kNvls);
    one(Collective::kReduceScatter, Algorithm::kNvls);
  }

  void CollNet(const Planner& planner, std::span<const DeviceId> members, std::int64_t bytes,
               const GroupShape& shape, const std::string& where) {
    const bool multicasts = planner.cluster().spec().device.arch >= cluster::Arch::kHopper;
    for (Algorithm a : {Algorithm::kCollNetDirect, Algorithm::kCollNetChain, Algorithm::kNvls}) {
      if (a == Algorithm::kNvls && (!multicasts || shape.ranks_per_domain < 2)) continue;
      const auto one = [&](Collective c) {
        Compare(planner, planner.Shape(c, a, Protocol::kSimple, bytes, shape), members, where);
      };
      one(Collective::kAllReduce);
      if (a == Algorithm::kCollNetChain) continue;
      one(Collective::kAllGather);
      one(Collective::kReduceScatter);
    }
  }

  void Compare(const Planner& planner, const Plan& plan, std::span<const DeviceId> members,
               const std::string& where) {
    // Rings over adaptive routes.
    const bool waits = model::MakeWhiteBox(plan, planner.cluster().spec()).inter.unsent > 0;
    Tally& tally = tallies_[fmt::format(
        "{} {}{} {}{}", graph::Name(plan.collective), Name(plan.algorithm),
        model::IsCollNet(plan) ? " over SHARP" : "", Name(plan.protocol), waits ? ", waits" : "")];
    if (waits) tally.bound = 4;
    if (model::IsExchange(plan.collective)) tally.bound = 4.5;
    const char* only = std::getenv("ORRERY_AGREEMENT_ONLY");
    if (only != nullptr && std::string(only) != "all" &&
        fmt::format("{} {}", Name(plan.algorithm), model::IsCollNet(plan) ? "SHARP" : "")
                .find(only) == std::string::npos) {
      return;
    }
    if (Steps(plan) > most_steps_) {
      ++tally.skipped;
      return;
    }
    IdealExecutor executor(Schedule(plan, planner.cluster(), members), planner.cluster(), members);
    const auto run = static_cast<double>(executor.RunPeriodic());
    ASSERT_GT(run, 0) << "deadlock: " << where;
    const double error = 100 * (static_cast<double>(planner.ClosedForm(plan).total()) / run - 1);
    ++tally.cases;
    tally.within += std::abs(error) <= tally.bound;
    if (std::abs(error) > std::abs(tally.worst)) {
      tally.worst = error;
      tally.where = fmt::format("{}, {} B, {} channels", where, plan.bytes, plan.channels);
    }
  }

  double most_steps_;
  std::map<std::string, Tally> tallies_;
};

// ORRERY_AGREEMENT_STEPS: runs of up to so many steps; 1e12: all, which takes hours.
TEST(Agreement, ClosedFormAndLowering) {
  const char* steps = std::getenv("ORRERY_AGREEMENT_STEPS");
  Agreement agreement(steps == nullptr ? 20000 : std::atof(steps));
  agreement.Run();
  agreement.Print();
  int cases = 0, within = 0, skipped = 0;
  for (const auto& [name, t] : agreement.tallies()) {
    cases += t.cases;
    within += t.within;
    skipped += t.skipped;
    EXPECT_LE(std::abs(t.worst), t.bound) << name << ": " << t.where;
  }
  std::printf("%d left out\n", skipped);
  std::printf("%d of %d cases within their bounds\n", within, cases);
  if (std::getenv("ORRERY_AGREEMENT_ONLY") == nullptr) {
    EXPECT_GT(cases, 25000);
  }
  EXPECT_EQ(within, cases);
}

// What RunPeriodic leaves out repeats to the picosecond.
TEST(Agreement, PeriodsAreExact) {
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 3;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  std::vector<DeviceId> members;
  for (int n = 0; n < 3; ++n) {
    for (int i = 0; i < 4; ++i) members.emplace_back(static_cast<std::size_t>(n * 8 + i));
  }
  const Planner planner(cluster, {});
  const GroupShape shape = ShapeOf(cluster, members);
  int skipped = 0;
  for (Algorithm a : {Algorithm::kRing, Algorithm::kTree, Algorithm::kNvlsTree}) {
    const std::int64_t bytes = a == Algorithm::kTree ? 64 << 20 : 256 << 20;
    for (Protocol p : {Protocol::kLL, Protocol::kSimple}) {
      if (a == Algorithm::kNvlsTree && p == Protocol::kLL) continue;
      const Plan plan = planner.Shape(Collective::kAllReduce, a, p, bytes, shape);
      const Schedule schedule(plan, cluster, members);
      IdealExecutor all(schedule, cluster, members), part(schedule, cluster, members);
      EXPECT_EQ(all.Run(), part.RunPeriodic());
      skipped += part.skipped_rounds() > 0;
    }
  }
  EXPECT_GE(skipped, 2);
}

}  // namespace
}  // namespace orrery::collective
