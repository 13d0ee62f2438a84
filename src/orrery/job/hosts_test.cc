// Ranks that share a host in LogGOPS (engine/general/near.cc): times derived by hand. A copy of
// 1,000 bytes at 1 GB/s takes 1,000 ns; o and L inside a host are 70 and 140 ns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "orrery/job/trace.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

Result<results::TraceResult> Simulated(const std::string& pattern, int ranks, int bytes,
                                       std::vector<std::string> set, std::string network = "") {
  TraceOptions options;
  options.set = std::move(set);
  options.set.push_back("pattern.name=" + pattern);
  options.set.push_back("pattern.ranks=" + std::to_string(ranks));
  options.set.push_back("pattern.size=" + std::to_string(bytes));
  options.network = std::move(network);
  if (!options.network.empty()) options.cluster = "h100-ib-400g";
  const TraceFiles files{{pattern}, {}};
  const Result<const Importer*> importer = FindImporter(files, "pattern");
  EXPECT_TRUE(importer.ok());
  return SimulateTrace(**importer, files, options);
}
std::int64_t FinishNs(const std::string& pattern, int ranks, int bytes,
                      std::vector<std::string> set) {
  const auto run = Simulated(pattern, ranks, bytes, std::move(set));
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run.ok() ? run->record.finish_time / kNanosecond : -1;
}

// The sender has copied at 70 + 1,000; the receiver sees it at 1,210 and has copied 1,070 later.
TEST(SharedHosts, AShortMessageIsCopiedTwice) {
  EXPECT_EQ(
      FinishNs("linear-scatter", 2, 1000, {"loggops.host_ranks=2", "loggops.host_copy=1GB/s"}),
      2280);
}

// Its address comes at 70 + 140 and is taken up at 280; then the receiver copies.
TEST(SharedHosts, ALongMessageIsCopiedOnce) {
  EXPECT_EQ(
      FinishNs("linear-scatter", 2, 10'000, {"loggops.host_ranks=2", "loggops.host_copy=1GB/s"}),
      10'280);
}

// The memory of 1 GB/s reads and writes 1,000 bytes in 2,000 ns. Both senders begin at 70: they end
// at 2,070 and 4,070. The receiver copies from 2,280 on, behind these: until 6,070; then, o later,
// from 6,140 to 8,140.
TEST(SharedHosts, CopiesShareTheMemory) {
  EXPECT_EQ(
      FinishNs("linear-gather", 3, 1000,
               {"loggops.host_ranks=3", "loggops.host_copy=1GB/s", "loggops.host_memory=1GB/s"}),
      8140);
}

// Ranks 2 and 3 send to rank 0 of the other host through one interface: it is free again at
// g + 999 G = 6,994 ns. Their first bytes come at 4,000 and 10,994; rank 0 takes the first in until
// 4,000 + o + 999 G = 11,494, the second until 18,988. Rank 1's message is over long before.
TEST(SharedHosts, RanksShareTheirInterface) {
  EXPECT_EQ(FinishNs("linear-gather", 4, 1000, {"loggops.host_ranks=2", "loggops.host_copy=1GB/s"}),
            18'988);
  // Each with its own: 4,000 + 3 × 7,494.
  EXPECT_EQ(FinishNs("linear-gather", 4, 1000, {}), 26'482);
}

TEST(SharedHosts, SayWhatIsWrong) {
  EXPECT_THAT(Simulated("ring", 4, 1000, {"loggops.host_L=1us"}).status().message(),
              HasSubstr("has no effect without loggops.host_ranks"));
  EXPECT_THAT(Simulated("ring", 4, 1000, {"loggops.host_ranks=2"}, "flow").status().message(),
              HasSubstr("only network loggops with joint endpoints has such hosts"));
  EXPECT_THAT(
      Simulated("ring", 4, 1000, {"loggops.host_ranks=2", "loggops.receiver_bandwidth=false"})
          .status()
          .message(),
      HasSubstr("hosts need loggops.receiver_bandwidth=true"));
}

}  // namespace
}  // namespace orrery::job
