// The table of fingerprints: what must be equal is equal, what must differ differs, and the numbers
// themselves stand in fingerprints.txt, one file for every compiler, build type and machine.
//
// A change of prices moves them all: ORRERY_UPDATE_GOLDEN=1 rewrites the file, and CHANGELOG.md
// says under "Predictions changed" what moved and why.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

using engine::Options;

workload::Plan SmallPlan(int tp, int pp, int dp) {
  workload::Plan plan = Gpt3Plan(tp, pp, dp, static_cast<std::int64_t>(pp) * dp);
  plan.batch.seq_len = 256;
  return plan;
}

class Table : public ::testing::Test {
 protected:
  std::uint64_t Add(const std::string& name, Scenario* s, const Options& options,
                    std::string_view network) {
    const auto record = s->Run(options, network);
    EXPECT_TRUE(record.ok()) << name << ": " << (record.ok() ? "" : record.status().message());
    const std::uint64_t value = record.ok() ? record->fingerprint : 0;
    lines_[name] = value;
    return value;
  }

  void Compare() {
    const std::string path = std::string(ORRERY_SOURCE_DIR) + "/tests/spine/fingerprints.txt";
    std::string text;
    for (const auto& [name, value] : lines_) text += fmt::format("{:016x}  {}\n", value, name);
    const char* update = std::getenv("ORRERY_UPDATE_GOLDEN");
    if (update != nullptr && *update != '\0') std::ofstream(path) << text;
    std::ifstream in(path);
    const std::string golden((std::istreambuf_iterator<char>(in)), {});
    EXPECT_EQ(text, golden) << "a prediction moved; see the head of this file";
  }

  std::map<std::string, std::uint64_t> lines_;
};

Options With(bool fold, int threads = 1) {
  Options o;
  o.fold = fold;
  o.threads = threads;
  o.iterations = 2;
  return o;
}

// Nodes in another order: other devices, same neighbours.
void Rename(Scenario* s) {
  const std::size_t nodes = s->placement().device.size() / 8;
  for (DeviceId& d : s->placement().device) {
    d = DeviceId((nodes - 1 - d.index() / 8) * 8 + d.index() % 8);
  }
}

TEST_F(Table, Fingerprints) {
  std::set<std::uint64_t> different;
  for (const auto& [tp, pp, dp] :
       {std::array{8, 4, 2}, std::array{4, 4, 4}, std::array{2, 2, 16}}) {
    const std::string job = fmt::format("64 ranks tp{} pp{} dp{}", tp, pp, dp);
    Scenario s("h100-ib-400g", 8);
    ASSERT_TRUE(s.Add(SmallGpt(), SmallPlan(tp, pp, dp), "job").ok());
    s.PlacePacked();
    // Folding changes who is simulated, never what happens.
    const std::uint64_t folded = Add(job + ", analytic, folded", &s, With(true), "analytic");
    EXPECT_EQ(Add(job + ", analytic, every rank", &s, With(false), "analytic"), folded);
    // Partitions change which thread makes an event, never its time.
    const std::uint64_t links = Add(job + ", links, 1 partition", &s, With(true), "links");
    EXPECT_EQ(Add(job + ", links, 2 partitions", &s, With(true, 2), "links"), links);
    EXPECT_EQ(Add(job + ", links, 3 partitions", &s, With(true, 3), "links"), links);
    // Another network is another answer.
    EXPECT_NE(folded, links);
    // One rank at 0.9 speed: its kernels are longer; partly folded equals unfolded.
    Options slow = With(true);
    slow.ranks = {{RankId(3), 0.9, 0}};
    const std::uint64_t straggler = Add(job + ", analytic, straggler", &s, slow, "analytic");
    slow.fold = false;
    EXPECT_EQ(Add(job + ", analytic, straggler, every rank", &s, slow, "analytic"), straggler);
    // Jitter draws by (seed, rank, iteration, op): same seed same answer, other seed another.
    Options jitter = With(true);
    jitter.jitter = 0.01;
    const std::uint64_t shaken = Add(job + ", analytic, jitter, seed 1", &s, jitter, "analytic");
    EXPECT_EQ(Add(job + ", analytic, jitter, seed 1 again", &s, jitter, "analytic"), shaken);
    jitter.seed = 2;
    different.insert({folded, links, straggler, shaken,
                      Add(job + ", analytic, jitter, seed 2", &s, jitter, "analytic")});
    // Nodes renamed: nothing is tied or drawn per rank, so nothing changes.
    Rename(&s);
    EXPECT_EQ(Add(job + ", analytic, nodes renamed", &s, With(true), "analytic"), folded);
  }
  EXPECT_EQ(different.size(), 15u);  // three jobs, five answers each

  // Two jobs on one cluster.
  Scenario two("h100-ib-400g", 8);
  ASSERT_TRUE(two.Add(SmallGpt(), SmallPlan(8, 2, 2), "a").ok());
  ASSERT_TRUE(two.Add(SmallGpt(), SmallPlan(4, 2, 4), "b").ok());
  two.PlacePacked();
  const std::uint64_t both = Add("two jobs, analytic, folded", &two, With(true), "analytic");
  EXPECT_EQ(Add("two jobs, analytic, every rank", &two, With(false), "analytic"), both);
  const std::uint64_t links = Add("two jobs, links, 1 partition", &two, With(true), "links");
  EXPECT_EQ(Add("two jobs, links, 2 partitions", &two, With(true, 2), "links"), links);
  EXPECT_EQ(Add("two jobs, links, 3 partitions", &two, With(true, 3), "links"), links);
  Compare();
}

}  // namespace
}  // namespace orrery::testing
