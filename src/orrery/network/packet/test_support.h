// What the tests of packets share: clusters, drawn traffic, and one run of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/network/network.h"
#include "orrery/network/packet/statistics.h"

namespace orrery::network::packet {

inline cluster::Spec SpecOf(std::string_view preset, int nodes, int nodes_per_leaf) {
  auto spec = cluster::FindPreset(preset);
  EXPECT_TRUE(spec.ok());
  spec->nodes = nodes;
  spec->nodes_per_leaf = nodes_per_leaf;
  return *spec;
}
inline cluster::Cluster Build(const cluster::Spec& spec) {
  auto cluster = cluster::Cluster::Build(spec);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return std::move(*cluster);
}
inline cluster::Cluster Build(std::string_view preset, int nodes, int nodes_per_leaf) {
  return Build(SpecOf(preset, nodes, nodes_per_leaf));
}

struct Begin {
  SimTime time = 0;
  Transfer transfer;
};
inline Transfer Make(FlightId id, std::size_t from, std::size_t to, std::int64_t bytes,
                     std::uint64_t salt = 0, std::uint8_t priority = 0) {
  return {id,   DeviceId(from), DeviceId(to), bytes, static_cast<std::uint32_t>(from),
          salt, priority};
}

struct Outcome {
  std::map<FlightId, SimTime> ends;
  PacketCounts counts;
  std::vector<PortStatistics> links;
  Status status;
  SimTime finish = 0;  // of the last message
  SimTime idle = 0;    // nothing happens any more
  UseLog use;          // where it was asked for
};

// by_event: an event at a time, so that no host runs ahead. On several threads all windows are
// shared, however little there is to do.
inline Outcome Simulate(const cluster::Cluster& cluster, std::vector<Begin> begins,
                        const PacketParameters& packet = {}, bool queue_log = false,
                        bool use_log = false, bool by_event = false, int threads = 1) {
  auto network = Create("packet", {.packet = packet});
  EXPECT_TRUE(network.ok());
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  const Status setup = (*network)->SetupLinks(cluster, owner, 0);
  EXPECT_TRUE(setup.ok()) << setup.message();
  if (queue_log) (*network)->KeepQueueLog(64);
  if (use_log) (*network)->KeepUseLog(64);
  (*network)->UseThreads(threads, true);
  std::stable_sort(begins.begin(), begins.end(),
                   [](const Begin& a, const Begin& b) { return a.time < b.time; });
  Outcome out;
  std::vector<Completion> done;
  std::size_t next = 0;
  for (;;) {
    const SimTime start = next == begins.size() ? kNever : begins[next].time;
    const SimTime event = (*network)->next_time();
    if (std::min(start, event) == kNever) break;
    const SimTime until = by_event ? std::min(start, event) : std::min(start, kMaxDuration);
    done.clear();
    const SimTime reached = (*network)->AdvanceUntil(until, &done);
    if (reached < kMaxDuration) out.idle = reached;
    for (const Completion& c : done) {
      EXPECT_TRUE(out.ends.emplace(c.id, c.time).second);
      out.finish = c.time;
    }
    if (reached != start) continue;
    std::vector<Transfer> batch;
    for (; next < begins.size() && begins[next].time == start; ++next) {
      batch.push_back(begins[next].transfer);
    }
    (*network)->Start(start, batch);
  }
  out.status = (*network)->status();
  out.counts = *(*network)->packet_counts();
  const auto links = (*network)->statistics();
  out.links.assign(links.begin(), links.end());
  if (use_log) out.use = std::move(*(*network)->use_log());
  return out;
}

// Same ends, and all that is counted but how the run was worked through.
inline void ExpectSame(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.status.message(), b.status.message());
  EXPECT_EQ(a.ends, b.ends);
  EXPECT_EQ(a.counts.hops, b.counts.hops);
  EXPECT_EQ(a.counts.control_hops, b.counts.control_hops);
  EXPECT_EQ(a.counts.largest_buffer, b.counts.largest_buffer);
  EXPECT_EQ(a.counts.retransmissions, b.counts.retransmissions);
  EXPECT_EQ(a.counts.timeouts, b.counts.timeouts);
  EXPECT_EQ(a.counts.data_packets, b.counts.data_packets);
  for (std::size_t l = 0; l < a.links.size(); ++l) {
    EXPECT_EQ(a.links[l].bytes, b.links[l].bytes) << l;
    EXPECT_EQ(a.links[l].busy, b.links[l].busy) << l;
    const PacketPort &p = a.counts.ports[l], &q = b.counts.ports[l];
    EXPECT_EQ(p.longest_queue, q.longest_queue) << l;
    EXPECT_EQ(p.longest_at, q.longest_at) << l;
    EXPECT_EQ(p.marks, q.marks) << l;
    EXPECT_EQ(p.trims, q.trims) << l;
    EXPECT_EQ(p.drops, q.drops) << l;
    EXPECT_EQ(p.pauses, q.pauses) << l;
    EXPECT_EQ(p.paused, q.paused) << l;
  }
}

// Bursts between random GPUs of different hosts.
inline std::vector<Begin> RandomTraffic(const cluster::Cluster& cluster, std::uint64_t seed,
                                        int flows) {
  CounterRng rng(seed);
  std::vector<Begin> begins;
  for (int i = 0; i < flows; ++i) {
    const std::size_t from = rng.Below(cluster.devices());
    std::size_t to = rng.Below(4) == 0 ? 3 : rng.Below(cluster.devices());  // an incast among them
    while (cluster.node(DeviceId(to)) == cluster.node(DeviceId(from))) {
      to = rng.Below(cluster.devices());
    }
    const auto bytes = static_cast<std::int64_t>(1 + rng.Below(1ULL << (8 + rng.Below(13))));
    begins.push_back({static_cast<SimTime>(rng.Below(20)) * kMicrosecond,
                      Make(static_cast<FlightId>(i), from, to, bytes, rng.Next() >> 8)});
  }
  return begins;
}

}  // namespace orrery::network::packet
