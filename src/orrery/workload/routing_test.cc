// Drawn routings: distributions against their moments, loads against their sums, programs by rank.
#include "orrery/workload/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/plan_experts.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using ::testing::HasSubstr;

Model Experts16(int layers) {
  Model m = SmallGpt(layers);
  m.experts = {.count = 16, .top_k = 2, .ffn_hidden = 256};
  return m;
}

Plan Drawn(Routing routing) {
  Plan p{.parallel = {.dp = 4}, .batch = {.global_batch = 4, .micro_batch = 1, .seq_len = 128}};
  p.parallel.ep = 4;
  p.experts.routing = routing;
  return p;
}

double Sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

// A share of Dirichlet(a, …, a) over E has mean 1/E and variance (1/E)(1 - 1/E)/(E·a + 1).
TEST(Routing, DirichletHasItsMoments) {
  Model m = Experts16(1);
  m.experts.top_k = 1;  // no share is capped
  for (const double alpha : {0.3, 1.0, 8.0}) {
    Plan p = Drawn(Routing::kDirichlet);
    p.experts.routing_alpha = alpha;
    double mean = 0, square = 0;
    constexpr int kLayers = 4000;
    for (int l = 0; l < kLayers; ++l) {
      const std::vector<double> share = ExpertShares(m, p, l);
      ASSERT_NEAR(Sum(share), 1, 1e-12);
      mean += share[3] / kLayers;
      square += share[3] * share[3] / kLayers;
    }
    const double variance = 1.0 / 16 * (1 - 1.0 / 16) / (16 * alpha + 1);
    EXPECT_NEAR(mean, 1.0 / 16, 0.004) << alpha;
    EXPECT_NEAR(square - mean * mean, variance, 0.1 * variance) << alpha;
  }
}

TEST(Routing, ZipfIsAPermutationOfItsWeights) {
  Model m = Experts16(1);
  m.experts.top_k = 1;
  Plan p = Drawn(Routing::kDrawnZipf);
  p.experts.routing_exponent = 1;
  std::vector<double> first = ExpertShares(m, p, 0), second = ExpertShares(m, p, 1);
  EXPECT_NE(first, second);
  std::sort(first.rbegin(), first.rend());
  double harmonic = 0;
  for (int i = 1; i <= 16; ++i) harmonic += 1.0 / i;
  for (int i = 0; i < 16; ++i) {
    EXPECT_NEAR(first[static_cast<std::size_t>(i)], 1 / harmonic / (i + 1), 1e-12);
  }
  p.experts.routing_exponent = 0;
  for (const double s : ExpertShares(m, p, 5)) EXPECT_NEAR(s, 1.0 / 16, 1e-12);
}

// A token's two experts are different ones: none has more than half of the copies.
// Of exponential variates the largest of n has the mean 1 + 1/2 + … + 1/n; of two of shape 2, 2.75.
TEST(Routing, BusiestOfAnyDivision) {
  EXPECT_NEAR(BusiestOfAnyDivision(1, 16), 3.380729, 2e-4);
  EXPECT_NEAR(BusiestOfAnyDivision(2, 2), 1.375, 2e-4);
  EXPECT_NEAR(BusiestOfAnyDivision(8, 1), 1, 2e-4);
  // Many experts: normal variates, 1 + 1.4236/sqrt(n) for the largest of eight, and the skew.
  EXPECT_NEAR(BusiestOfAnyDivision(2000, 8), 1.032, 5e-4);
  Model m = Experts16(2);
  Plan p = Drawn(Routing::kNatural);
  p.parallel.ep = 1;
  EXPECT_EQ(BusiestLoad(m, p), 1);
  p.parallel.ep = 16;
  EXPECT_NEAR(BusiestLoad(m, p), 3.3807, 1e-3);
  m.experts.top_k = 8;  // an expert meets every token at most
  EXPECT_EQ(BusiestLoad(m, p), 2);
}

TEST(Routing, NoExpertMeetsATokenTwice) {
  Plan p = Drawn(Routing::kDirichlet);
  p.experts.routing_alpha = 0.01;
  for (int l = 0; l < 50; ++l) {
    const std::vector<double> share = ExpertShares(Experts16(1), p, l);
    EXPECT_LE(*std::max_element(share.begin(), share.end()), 0.5 + 1e-9);
    EXPECT_NEAR(Sum(share), 1, 1e-9);
  }
}

TEST(Routing, LoadsOfRanksSumToAll) {
  Plan p = Drawn(Routing::kDirichlet);
  p.experts.routing_alpha = 0.5;
  const LayerLoad load = LoadOfLayer(Experts16(1), p, 3);
  ASSERT_EQ(load.received.size(), 4u);
  EXPECT_NEAR(static_cast<double>(
                  std::accumulate(load.received.begin(), load.received.end(), std::int64_t{0})),
              4000, 2);
  EXPECT_EQ(load.sent, 1000);
  EXPECT_EQ(load.busiest, *std::max_element(load.received.begin(), load.received.end()));
  EXPECT_GT(load.busiest, 1000);
  // Another seed is another draw; the same is the same, whatever was asked for before.
  EXPECT_EQ(LoadOfLayer(Experts16(1), p, 3).received, load.received);
  p.experts.routing_seed = 2;
  EXPECT_NE(LoadOfLayer(Experts16(1), p, 3).received, load.received);
}

TEST(Routing, CapacityDropsWhatIsAbove) {
  Plan p = Drawn(Routing::kGiven);
  GivenRouting given{.name = "all", .layers = {std::vector<double>(16, 0)}};
  given.layers[0][0] = given.layers[0][1] = 1;  // two experts of the first rank get all
  p.experts.given_routing = std::make_shared<const GivenRouting>(given);
  EXPECT_EQ(LoadOfLayer(Experts16(1), p, 0).received, (std::vector<std::int64_t>{4000, 0, 0, 0}));
  p.experts.expert_capacity = 2;  // each of them 2/16 of the copies
  const LayerLoad load = LoadOfLayer(Experts16(1), p, 0);
  EXPECT_EQ(load.received, (std::vector<std::int64_t>{1000, 0, 0, 0}));
  EXPECT_EQ(load.sent, 250);
}

TEST(Routing, EachRankRunsItsOwnRows) {
  Plan p = Drawn(Routing::kGiven);
  GivenRouting given{.name = "halves", .layers = {std::vector<double>(16, 1)}};
  for (std::size_t e = 0; e < 4; ++e) given.layers[0][e] = 3;  // rank 0: 12 of 24, others 4 of 24
  p.experts.given_routing = std::make_shared<const GivenRouting>(given);
  const graph::Graph g = Make(Experts16(2), p);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  ASSERT_TRUE(verified.ok()) << verified.message();
  ASSERT_EQ(g.programs.size(), 4u);
  ASSERT_EQ(g.shares.size(), 1u);  // both layers have the same
  EXPECT_EQ(g.shares[0].parts, (std::vector<std::int64_t>{2000000, 667000, 667000, 667000}));
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(g.bindings[r].program.index(), r);
    EXPECT_EQ(g.programs[r].stage, 0);
    std::int64_t rows = 0;
    std::vector<graph::Comm> exchanges;
    for (const graph::Call& call : g.programs[r].calls) {
      const graph::Block& block = g.blocks[call.block.index()];
      if (g.name(block.name) != "layer.forward") continue;
      for (const graph::Kernel& k : block.kernels) {
        const auto* gemm = std::get_if<graph::Gemm>(&k);
        if (gemm != nullptr && gemm->batch == 4) rows = gemm->m;
      }
      for (const graph::Comm& c : block.comms) {
        if (c.collective == graph::Collective::kAllToAll) exchanges.push_back(c);
      }
    }
    // 128 tokens, 2 experts each: 256 rows a rank if even, on four experts. Rank 0 has twice that,
    // the others two thirds (667 thousandths); what went to rank 0 comes back from it.
    EXPECT_EQ(rows, r == 0 ? 128 : 43) << r;
    ASSERT_EQ(exchanges.size(), 6u);  // of two layers: weights, tokens there and back
    for (const graph::Comm& c : exchanges) ASSERT_EQ(c.shares, SharesId(0));
    EXPECT_EQ(exchanges[1].bytes.value, 256 * 256 * 2) << r;
    EXPECT_FALSE(exchanges[1].returned);
    EXPECT_TRUE(exchanges[2].returned);
  }
}

TEST(Routing, BalancedIsOneProgramAStage) {
  EXPECT_EQ(Make(Experts16(2), Drawn(Routing::kBalanced)).programs.size(), 1u);
}

TEST(Routing, FilesAndTheirErrors) {
  const auto read = ParseRouting("my.csv", "# two layers\n1, 2,0.5\n\n3,3,3\n");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->layers, (std::vector<std::vector<double>>{{1, 2, 0.5}, {3, 3, 3}}));
  const auto error = [](std::string_view text) {
    return ParseRouting("my.csv", text).status().message();
  };
  EXPECT_THAT(error("1,2\n1,x\n"), HasSubstr("my.csv, line 2: 'x'"));
  EXPECT_THAT(error("1,-2\n"), HasSubstr("line 1: '-2'"));
  EXPECT_THAT(error("1,\n"), HasSubstr("line 1: ''"));
  EXPECT_THAT(error("0,0\n"), HasSubstr("no expert gets anything"));
  EXPECT_THAT(error("# nothing\n"), HasSubstr("my.csv: empty"));
  Plan p = Drawn(Routing::kGiven);
  const auto says = [&](const std::string& text) {
    p.experts.given_routing = std::make_shared<const GivenRouting>(*ParseRouting("my.csv", text));
    return std::string(CheckRouting(Experts16(3), p).message());
  };
  EXPECT_THAT(says("1,2\n"), HasSubstr("layer 0 has 2 numbers for 16 experts"));
  EXPECT_THAT(says("1\n1\n"), HasSubstr("2 lines for the 3 layers"));
  p = Drawn(Routing::kDirichlet);
  p.experts.moe_imbalance = 2;
  EXPECT_THAT(std::string(CheckRouting(Experts16(3), p).message()), HasSubstr("leave one"));
}

}  // namespace
}  // namespace orrery::workload
