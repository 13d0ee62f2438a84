// Schedules of queues, derived by hand.
#include "orrery/search/queue/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace orrery::search {
namespace {

using ::testing::ElementsAre;

// Two racks of two hosts.
const std::vector<std::size_t> kRacks = {0, 0, 1, 1};

QueueRun Played(const std::vector<QueuedJob>& jobs, const std::vector<double>& times,
                QueueOrder order, HostChoice choice = HostChoice::kPacked,
                const std::vector<std::size_t>& racks = kRacks) {
  Result<QueueRun> run =
      RunQueue(jobs, racks, order, choice, 1,
               [&](std::size_t j, std::span<const std::size_t>) { return times[j]; });
  EXPECT_TRUE(run.ok());
  return *std::move(run);
}
std::vector<double> Starts(const QueueRun& run) {
  std::vector<double> starts;
  for (const QueueRun::Row& row : run.jobs) starts.push_back(row.start_s);
  return starts;
}

// a holds 2 of 4 hosts to 10. b needs all 4: it starts at 10 and ends at 15. c (1 host, 8 s) ends
// before 10; d (1 host, 20 s) would hold b up.
const std::vector<QueuedJob> kJobs = {{"a", 0, 2}, {"b", 1, 4}, {"c", 2, 1}, {"d", 2, 1}};
const std::vector<double> kTimes = {10, 5, 8, 20};

TEST(Queue, FifoLetsNobodyAhead) {
  const QueueRun run = Played(kJobs, kTimes, QueueOrder::kFifo);
  EXPECT_THAT(Starts(run), ElementsAre(0, 10, 15, 15));
  EXPECT_DOUBLE_EQ(run.mean_wait_s, (0 + 9 + 13 + 13) / 4.0);
  EXPECT_DOUBLE_EQ(run.mean_completion_s, (10 + 14 + 21 + 33) / 4.0);
  EXPECT_DOUBLE_EQ(run.p95_completion_s, 33);
  EXPECT_DOUBLE_EQ(run.makespan_s, 35);
  EXPECT_DOUBLE_EQ(run.utilisation, (20 + 20 + 8 + 20) / (4 * 35.0));
}

TEST(Queue, EasyLetsAheadWhatDelaysNoFirst) {
  const QueueRun run = Played(kJobs, kTimes, QueueOrder::kEasy);
  EXPECT_THAT(Starts(run), ElementsAre(0, 10, 2, 15));
  // Were b smaller by one host, d would run in what b leaves, for however long.
  std::vector<QueuedJob> smaller = kJobs;
  smaller[1].hosts = 3;
  EXPECT_THAT(Starts(Played(smaller, kTimes, QueueOrder::kEasy)), ElementsAre(0, 10, 2, 2));
}

// A drawn queue: nobody starts before its arrival, and no host is given twice.
TEST(Queue, EasyWaitsLessAndGivesNoHostTwice) {
  std::vector<QueuedJob> jobs;
  std::vector<double> times;
  for (std::size_t i = 0; i < 60; ++i) {
    jobs.push_back({"", static_cast<double>(i), 1 + (i * 7 + i * i) % 4});
    times.push_back(static_cast<double>(1 + (i * 13) % 17));
  }
  const QueueRun fifo = Played(jobs, times, QueueOrder::kFifo);
  const QueueRun easy = Played(jobs, times, QueueOrder::kEasy);
  EXPECT_LT(easy.mean_wait_s, fifo.mean_wait_s);
  EXPECT_LE(easy.makespan_s, fifo.makespan_s);
  for (const QueueRun* run : {&fifo, &easy}) {
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      EXPECT_GE(run->jobs[j].start_s, jobs[j].arrival_s);
      std::size_t used = 0;  // whoever runs as j starts
      for (const QueueRun::Row& row : run->jobs) {
        if (row.start_s <= run->jobs[j].start_s && run->jobs[j].start_s < row.end_s) {
          used += row.hosts.size();
        }
      }
      EXPECT_LE(used, kRacks.size());
    }
  }
}

TEST(Queue, ChoosesHosts) {
  // Host 0 is taken; two more are wanted.
  const std::vector<QueuedJob> jobs = {{"a", 0, 1}, {"b", 0, 2}};
  const auto hosts = [&](HostChoice choice) {
    return Played(jobs, {1, 1}, QueueOrder::kFifo, choice).jobs[1].hosts;
  };
  EXPECT_THAT(hosts(HostChoice::kPacked), ElementsAre(1, 2));
  EXPECT_THAT(hosts(HostChoice::kStriped), ElementsAre(1, 2));
  EXPECT_THAT(hosts(HostChoice::kFewestRacks), ElementsAre(2, 3));
  const QueueRun packed = Played(jobs, {1, 1}, QueueOrder::kFifo);
  EXPECT_EQ(packed.jobs[1].racks, 2U);
  EXPECT_EQ(packed.jobs[1].fewest_racks, 1U);
  EXPECT_DOUBLE_EQ(packed.racks_over_fewest, (1 * 1 + 2 * 2) / 3.0);
  // Racks of unequal size: the fewest that hold a job are counted from the largest on.
  const std::vector<std::size_t> sizes =
      RackSizes(std::vector<std::size_t>{0, 0, 0, 0, 1, 1, 2, 2});
  EXPECT_THAT(sizes, ElementsAre(4, 2, 2));
  EXPECT_EQ(FewestRacks(sizes, 4), 1u);
  EXPECT_EQ(FewestRacks(sizes, 8), 3u);
  // Striped over four racks of four: a host of each; random ones are other hosts than packed ones.
  std::vector<std::size_t> racks(16);
  for (std::size_t h = 0; h < 16; ++h) racks[h] = h / 4;
  const std::vector<QueuedJob> four = {{"a", 0, 4}};
  EXPECT_THAT(Played(four, {1}, QueueOrder::kFifo, HostChoice::kStriped, racks).jobs[0].hosts,
              ElementsAre(0, 4, 8, 12));
  EXPECT_NE(Played(four, {1}, QueueOrder::kFifo, HostChoice::kRandom, racks).jobs[0].hosts,
            (std::vector<std::size_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace orrery::search
