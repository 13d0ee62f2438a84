#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/collective/choice/inert_variables.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

std::string Refusal(const Variables& variables) {
  const Result<Environment> environment = ParseEnvironment(variables);
  return environment.ok() ? "accepted" : environment.status().message();
}

TEST(Environment, ListsPerFunction) {
  const Environment e =
      *ParseEnvironment(Variables{{"NCCL_ALGO", "Tree;AllGather:ring"}, {"NCCL_PROTO", "^LL128"}});
  using Allowed = std::array<bool, kAlgorithms>;                    // the third is point-to-point
  EXPECT_EQ(e.algorithm_allowed[0], (Allowed{true, false, true}));  // all-reduce
  EXPECT_EQ(e.algorithm_allowed[1], (Allowed{false, true, true}));  // all-gather
  EXPECT_EQ(e.protocol_allowed[2], (std::array<bool, 3>{true, false, true}));
  EXPECT_TRUE(e.protocol_forced);
  EXPECT_TRUE(e.nvls);  // NCCL_NVLS_ENABLE alone decides
}

TEST(Environment, NegationKeepsTheRest) {
  const Environment e = *ParseEnvironment(Variables{{"NCCL_ALGO", "^NVLS,NVLSTree,PAT"}});
  EXPECT_EQ(e.algorithm_allowed[0],
            (std::array<bool, kAlgorithms>{true, true, true, false, false, false, true, true}));
  EXPECT_TRUE(ParseEnvironment(Variables{{"NCCL_ALGO", "Ring,PAT"}})->algorithm_allowed[1][5]);
  EXPECT_FALSE(ParseEnvironment(Variables{{"NCCL_PAT_ENABLE", "0"}})->pat);
  EXPECT_TRUE(ParseEnvironment(Variables{{"NCCL_ALGO", "CollNetChain"}})->algorithm_allowed[0][7]);
}

TEST(Environment, NumbersAndVersion) {
  const Environment e = *ParseEnvironment(Variables{{"NCCL_VERSION", "2.27.3-1"},
                                                    {"NCCL_MIN_CTAS", "24"},
                                                    {"NCCL_BUFFSIZE", "8388608"},
                                                    {"NCCL_NTHREADS", "300"},
                                                    {"NCCL_DEBUG", "INFO"},
                                                    {"NCCL_IB_TC", "106"}});
  EXPECT_EQ(e.version, 22703);
  EXPECT_EQ(e.min_channels, 24);
  EXPECT_EQ(e.buffer_bytes, 8 << 20);
  EXPECT_EQ(e.threads, 288);  // whole warps
  EXPECT_THAT(e.noted, ::testing::ElementsAre("NCCL_IB_TC"));
}

TEST(Environment, ThresholdsAndWays) {
  const Environment e = *ParseEnvironment(Variables{{"NCCL_THREAD_THRESHOLDS", "8 -2 128 16"},
                                                    {"NCCL_P2P_PXN_LEVEL", "1"},
                                                    {"NCCL_MNNVL_ENABLE", "0"}});
  EXPECT_EQ(e.thread_thresholds[0], (std::array<std::int64_t, 3>{8, -1, 128}));
  EXPECT_EQ(e.thread_thresholds[1], (std::array<std::int64_t, 3>{16, -1, -1}));
  EXPECT_FALSE(e.pxn);
  EXPECT_FALSE(e.domains_of_hosts);
  EXPECT_FALSE(ParseEnvironment(Variables{{"NCCL_PXN_DISABLE", "1"}})->pxn);
  EXPECT_TRUE(ParseEnvironment(Variables{{"NCCL_PXN_DISABLE", "0"}})->pxn);
}

// Without effect, each for a stated reason; refused where there would be one.
TEST(Environment, InertVariablesHaveReasons) {
  for (const InertVariable& noted : InertVariables()) {
    EXPECT_FALSE(noted.why.empty()) << noted.name;
    EXPECT_EQ(noted.only.empty(), noted.otherwise.empty()) << noted.name;
    for (const std::string_view irrelevant : IrrelevantVariables()) {
      EXPECT_NE(noted.name, irrelevant);
    }
  }
  EXPECT_TRUE(ParseEnvironment(Variables{{"NCCL_NET_GDR_LEVEL", "sys"}}).ok());
  EXPECT_TRUE(ParseEnvironment(Variables{{"NCCL_SYM_CTAS", "4"}}).ok());
  EXPECT_EQ(Refusal({{"NCCL_NET_GDR_READ", "0"}}),
            "NCCL_NET_GDR_READ: '0' sends through host memory, which is not built; leave it out");
  EXPECT_EQ(Refusal({{"NCCL_CROSS_NIC", "1"}}),
            "NCCL_CROSS_NIC: '1' lets rings change rails freely, which is not built; use 2, NCCL's "
            "default, or leave it out");
  const Environment e = *ParseEnvironment(
      Variables{{"NCCL_IB_DISABLE", "1"}, {"NCCL_P2P_LEVEL", "NVL"}, {"NCCL_NET", "socket"}});
  EXPECT_TRUE(e.sockets && e.peer_level && !e.verbs);
  EXPECT_FALSE(ParseEnvironment(Variables{{"NCCL_IB_DISABLE", "0"}})->sockets);
}

TEST(Environment, RefusesByName) {
  EXPECT_EQ(Refusal({{"NCCL_COLLNET_ENABLE", "2"}}), "NCCL_COLLNET_ENABLE: 2 is not in 0 to 1");
  EXPECT_EQ(Refusal({{"NCCL_THREAD_THRESHOLDS", "8 x"}}),
            "NCCL_THREAD_THRESHOLDS: 'x' is not a whole number");
  EXPECT_EQ(Refusal({{"NCCL_ALG", "Ring"}}), "NCCL_ALG: unknown variable; did you mean NCCL_ALGO?");
  EXPECT_EQ(Refusal({{"ALGO", "Ring"}}), "ALGO: unknown variable; did you mean NCCL_ALGO?");
  EXPECT_THAT(Refusal({{"COLOUR", "red"}}), ::testing::HasSubstr("; modelled: NCCL_ALGO, "));
  EXPECT_EQ(Refusal({{"NCCL_BUFFSIZE", "4M"}}), "NCCL_BUFFSIZE: '4M' is not a whole number");
  EXPECT_EQ(Refusal({{"NCCL_MAX_CTAS", "65"}}), "NCCL_MAX_CTAS: 65 is not in 1 to 64");
  EXPECT_EQ(Refusal({{"NCCL_MIN_CTAS", "8"}, {"NCCL_MAX_CTAS", "4"}}),
            "NCCL_MIN_CTAS: 8 is above NCCL_MAX_CTAS = 4");
  EXPECT_EQ(Refusal({{"NCCL_ALGO", "Ring;Tree"}}),
            "NCCL_ALGO: 'Tree' needs a function before it, as in AllReduce:Tree");
  EXPECT_EQ(Refusal({{"NCCL_VERSION", "3.0"}}),
            "NCCL_VERSION: '3.0' is not modelled; give 2.9 or later");
  EXPECT_THAT(Refusal({{"NCCL_PROTO", "LL256"}}),
              ::testing::HasSubstr("unknown protocol 'LL256'; valid: LL, LL128, Simple"));
}

}  // namespace
}  // namespace orrery::collective
