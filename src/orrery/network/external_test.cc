// A network in a process of its own: what it is told, and what becomes of answers that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "orrery/network/network.h"

namespace orrery::network {
namespace {

using testing::HasSubstr;

cluster::Cluster TwoHosts() {
  Result<cluster::Spec> spec = cluster::FindPreset("h100-ib-400g");
  EXPECT_TRUE(spec.ok());
  spec->nodes = 2;
  Result<cluster::Cluster> cluster = cluster::Cluster::Build(*spec);
  EXPECT_TRUE(cluster.ok());
  return *std::move(cluster);
}

// Every GPU sends to the next but three, twice, at two instants.
std::vector<Completion> AllEnds(Network* network, const cluster::Cluster& cluster) {
  std::vector<Transfer> transfers;
  for (std::uint32_t i = 0; i < 32; ++i) {
    transfers.push_back({.id = i,
                         .from = DeviceId(i % 16),
                         .to = DeviceId((i * 3 + 5) % 16),
                         .bytes = 100'000 * (1 + i % 4),
                         .creator = i % 16});
  }
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  EXPECT_TRUE(network->SetupLinks(cluster, owner, 0).ok());
  std::vector<Completion> done;
  network->Start(0, std::span(transfers).first(16));
  network->AdvanceUntil(1000, &done);
  network->Start(1000, std::span(transfers).last(16));
  while (network->next_time() != kNever) network->AdvanceUntil(network->next_time(), &done);
  std::ranges::sort(done, {}, [](const Completion& c) { return std::pair(c.time, c.id); });
  return done;
}

void Command(const std::string& text) { setenv("ORRERY_NETWORK_COMMAND", text.c_str(), 1); }

// The example models what `links` does: all ends are equal to the picosecond.
TEST(External, TheExampleIsLinks) {
  if (std::system("python3 -c 'import heapq' >/dev/null 2>&1") != 0) GTEST_SKIP() << "no Python 3";
  Command("python3 " ORRERY_SOURCE_DIR "/examples/external/fifo.py");
  const cluster::Cluster cluster = TwoHosts();
  const auto external = Create("external"), links = Create("links");
  const std::vector<Completion> theirs = AllEnds(external->get(), cluster);
  const std::vector<Completion> ours = AllEnds(links->get(), cluster);
  EXPECT_TRUE((*external)->status().ok()) << (*external)->status().message();
  ASSERT_EQ(theirs.size(), 32u);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(theirs[i].time, ours[i].time) << i;
    EXPECT_EQ(theirs[i].id, ours[i].id) << i;
  }
}

std::string StatusOf(const std::string& answers) {
  const std::string path = testing::TempDir() + "external_answers.sh";
  std::ofstream(path) << "while read -r word rest; do case $word in\n"
                      << answers << "\nesac; done\n";
  Command("sh " + path);
  const cluster::Cluster cluster = TwoHosts();
  const auto network = Create("external");
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  Status setup = (*network)->SetupLinks(cluster, owner, 0);
  if (!setup.ok()) return setup.message();
  const Transfer transfer{.id = 7, .from = DeviceId(0), .to = DeviceId(8), .bytes = 100};
  (*network)->Start(5, {&transfer, 1});
  std::vector<Completion> done;
  if ((*network)->next_time() != kNever) (*network)->AdvanceUntil((*network)->next_time(), &done);
  EXPECT_EQ((*network)->next_time(), kNever) << "nothing comes after an answer that is wrong";
  return (*network)->status().message();
}

TEST(External, WrongAnswersEndTheRun) {
  EXPECT_EQ(
      StatusOf("ready) echo ready;; next) echo next 9;; until) echo done 9 0; echo at 9 never;;"),
      "");
  EXPECT_THAT(StatusOf("ready) echo hello;;"), HasSubstr("'hello' where 'ready' belongs"));
  EXPECT_THAT(StatusOf("ready) exit;;"), HasSubstr("the program ended before it was done"));
  EXPECT_THAT(StatusOf("ready) echo ready;; next) echo next soon;;"),
              HasSubstr("'soon' where a whole number of picoseconds or an id belongs"));
  EXPECT_THAT(StatusOf("ready) echo ready;; next) echo next 9;; until) echo done 9 1;;"),
              HasSubstr("names no message under way"));
  EXPECT_THAT(StatusOf("ready) echo ready;; next) echo next 9;; until) echo done 10 0;;"),
              HasSubstr("is later than was asked for"));
  EXPECT_THAT(StatusOf("ready) echo ready;; next) echo next 9;; until) echo on 9 0;;"),
              HasSubstr("where 'done TIME ID' or 'at TIME NEXT' belongs"));
  unsetenv("ORRERY_NETWORK_COMMAND");
  const auto network = Create("external");
  EXPECT_THAT((*network)->SetupLinks(TwoHosts(), {}, 0).message(),
              HasSubstr("set ORRERY_NETWORK_COMMAND to its command line"));
}

}  // namespace
}  // namespace orrery::network
