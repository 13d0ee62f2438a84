// What holds for every drawn fabric, traffic and congestion control.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

#include "orrery/base/text.h"
#include "orrery/network/packet/packet.h"
#include "orrery/network/packet/settings.h"
#include "orrery/network/packet/test_support.h"
#include "orrery/network/wire.h"

namespace orrery::network::packet {
namespace {

struct Drawn {
  cluster::Spec spec;
  PacketParameters packet;
  std::vector<Begin> begins;
  bool may_deadlock = false;  // routes of the topology close circles
};

void DrawTopology(CounterRng* rng, Drawn* d) {
  cluster::Spec& spec = d->spec;
  spec = SpecOf("h100-roce-400g", static_cast<int>(4 + 2 * rng->Below(5)), 2);
  const int gpus = rng->Below(2) == 0 ? 1 : 2;
  spec.gpus_per_node = spec.nics_per_node = spec.gpus_per_nvlink_domain = gpus;
  spec.nic_Bps = 12'500'000'000 << rng->Below(3);
  spec.nic_latency = static_cast<SimTime>(200 + rng->Below(2000)) * kNanosecond;
  spec.nic_mtu_bytes = 1000 << rng->Below(3);
  spec.oversubscription = static_cast<double>(1 << rng->Below(3));
  spec.rail_optimised = rng->Below(2) == 0;
  cluster::TopologySpec& t = spec.topology;
  switch (rng->Below(5)) {
    case 0:
      break;
    case 1:
      t.name = "fat-tree-2";
      break;
    case 2:
      t.name = "fat-tree-3";
      t.nodes_per_pod = 4;
      break;
    case 3:
      t.name = "dragonfly";
      t.nics_per_router = 2;
      t.routers_per_group = 2;
      d->may_deadlock = true;
      break;
    default:
      t.name = "torus";
      t.dimensions = {{cluster::DimensionKind::kRing, spec.nodes, 0, 0}};
      spec.gpus_per_node = spec.nics_per_node = spec.gpus_per_nvlink_domain = 1;
      d->may_deadlock = true;
  }
}

void DrawSettings(CounterRng* rng, PacketParameters* p) {
  p->congestion_control = Controls()[rng->Below(Controls().size())].name;
  p->cut_through = rng->Below(4) == 0;
  p->control_first = rng->Below(4) != 0;
  p->paths = 1 << rng->Below(6);
  if (rng->Below(3) == 0) p->load_balancing = LoadBalancers()[rng->Below(6)].name;
  if (rng->Below(3) == 0) p->buffer_per_port = static_cast<std::int64_t>(400'000 << rng->Below(3));
  if (rng->Below(4) == 0) p->queue = static_cast<std::int64_t>(8'000 << rng->Below(5));
  if (rng->Below(4) == 0) p->ack_every = static_cast<int>(1 + rng->Below(8));
  if (rng->Below(4) == 0) p->window = static_cast<std::int64_t>(4'000 << rng->Below(8));
}

// Bursts, incasts, and connections that are used again. The connection gives the priority.
void DrawTraffic(CounterRng* rng, std::size_t gpus, int per_node, bool priorities,
                 std::vector<Begin>* begins) {
  const std::size_t victim = rng->Below(gpus), flows = 20 + rng->Below(100);
  const std::uint64_t connections = 1 + rng->Below(3), largest = 8 + rng->Below(11);
  const SimTime span = static_cast<SimTime>(1 + rng->Below(100)) * kMicrosecond;
  for (std::size_t i = 0; i < flows; ++i) {
    const std::size_t from = rng->Below(gpus);
    std::size_t to = rng->Below(3) == 0 ? victim : rng->Below(gpus);
    while (to / static_cast<std::size_t>(per_node) == from / static_cast<std::size_t>(per_node)) {
      to = rng->Below(gpus);
    }
    const std::uint64_t salt = rng->Below(connections);
    const auto bytes = static_cast<std::int64_t>(rng->Below(1ULL << largest));
    const auto priority = static_cast<std::uint8_t>(priorities ? (from + to + salt) % 3 : 0);
    const SimTime time = static_cast<SimTime>(rng->Below(8)) * span / 8;
    begins->push_back({time, Make(static_cast<FlightId>(i), from, to, bytes, salt, priority)});
  }
  std::ranges::stable_sort(*begins, {}, &Begin::time);
}

bool OfFabric(const cluster::Cluster& cluster, std::size_t link) {
  return cluster.direct() || !cluster::IsLocal(cluster.links()[link].kind);
}

// Everything ends after its uncontended time, in the order of its connection; or PFC's deadlock is
// named.
void ExpectEnds(const cluster::Cluster& cluster, const Drawn& d, const Settings& settings,
                const Outcome& out) {
  if (!out.status.ok()) {
    EXPECT_TRUE(d.may_deadlock) << out.status.message();
    EXPECT_NE(out.status.message().find("waits for"), std::string::npos) << out.status.message();
    return;
  }
  ASSERT_EQ(out.ends.size(), d.begins.size());
  std::int64_t slowest = cluster.spec().nic_Bps;
  for (std::size_t l = 0; l < cluster.links().size(); ++l) {
    if (OfFabric(cluster, l)) slowest = std::min(slowest, cluster.links()[l].bandwidth_Bps);
  }
  const SimTime head = TransferTime(settings.packet_bytes(), slowest);
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, SimTime> last;
  for (const Begin& b : d.begins) {
    const Transfer& t = b.transfer;
    const SimTime end = out.ends.at(t.id);
    if (t.bytes == 0) continue;
    // Other ways than the cluster's own may be faster: links of three tiers differ.
    if (!d.packet.cut_through && settings.balance == Balance::kEcmp) {
      // A short last packet is earlier by less than a full one on every hop.
      EXPECT_GE(end - b.time + 16 * head, Uncontended(cluster, t));
    }
    SimTime& before = last[{t.from.value, t.to.value, t.salt}];
    EXPECT_GE(end, before) << "message " << t.id;
    before = end;
  }
}

// Bytes conserved: what goes into a switch comes out of it, and every link of a route has carried
// every message.
void ExpectConserved(const cluster::Cluster& cluster, const Drawn& d, const Settings& settings,
                     const Outcome& out) {
  if (!out.status.ok()) return;
  std::uint64_t lost = 0, packets = 0;
  std::vector<std::int64_t> through(cluster.vertices());
  std::int64_t carried = 0;
  const std::size_t first_switch = cluster.vertices() - cluster.switches();
  for (std::size_t l = 0; l < out.links.size(); ++l) {
    if (!OfFabric(cluster, l)) continue;
    lost += out.counts.ports[l].drops + out.counts.ports[l].trims;
    carried += out.links[l].bytes;
    through[cluster.links()[l].to] += out.links[l].bytes;
    through[cluster.links()[l].from] -= out.links[l].bytes;
  }
  std::int64_t sent = 0;
  std::vector<LinkId> route;
  for (const Begin& b : d.begins) {
    const Transfer& t = b.transfer;
    packets += static_cast<std::uint64_t>((t.bytes + settings.payload - 1) / settings.payload);
    cluster.Route(t.from, t.to, t.salt, &route);
    const auto hops =
        std::ranges::count_if(route, [&](LinkId link) { return OfFabric(cluster, link.index()); });
    sent += hops * WireBytes(cluster, t.from, t.to, t.bytes);
  }
  const std::uint64_t most = packets + out.counts.retransmissions;
  EXPECT_LE(out.counts.data_packets, most);
  EXPECT_GE(out.counts.data_packets, settings.selective ? most : packets);
  if (settings.pfc) {
    EXPECT_EQ(lost, 0u);
  }
  if (lost > 0) return;
  for (std::size_t v = first_switch; v < through.size(); ++v) EXPECT_EQ(through[v], 0) << v;
  if (out.counts.retransmissions > 0 || settings.balance != Balance::kEcmp) return;
  const auto control = static_cast<std::int64_t>(out.counts.control_hops) * kControlBytes;
  EXPECT_EQ(carried, sent + control);
}

// No link above its rate in any step of time, no queue above its buffer.
void ExpectWithinBounds(const cluster::Cluster& cluster, const Drawn& d, const Settings& settings,
                        const Outcome& out) {
  const std::size_t first_switch = cluster.vertices() - cluster.switches();
  std::vector<std::int64_t> buffer(cluster.vertices());
  for (std::size_t l = 0; l < out.links.size(); ++l) {
    const cluster::Link& link = cluster.links()[l];
    EXPECT_LE(out.links[l].busy, out.idle) << l;
    const std::int64_t step = static_cast<std::int64_t>(
        ToSeconds(out.use.width()) * static_cast<double>(link.bandwidth_Bps) * UseLog::kByte);
    for (const std::int64_t bytes : out.use.of(l)) EXPECT_LE(bytes, step + 2 * UseLog::kByte) << l;
    if (OfFabric(cluster, l)) buffer[link.to] += settings.buffer_per_port;
  }
  const bool priorities =
      std::ranges::any_of(d.begins, [](const Begin& b) { return b.transfer.priority > 0; });
  // With PFC the headroom of further priorities comes on top.
  if (settings.pfc && priorities) return;
  std::int64_t most = 0;
  for (std::size_t l = 0; l < out.links.size(); ++l) {
    const std::uint32_t from = cluster.links()[l].from;
    if (!OfFabric(cluster, l) || from < first_switch) continue;
    most = std::max(most, buffer[from]);
    const std::int64_t longest = out.counts.ports[l].longest_queue;
    EXPECT_LE(longest, buffer[from]) << l;
    if (!settings.pfc && settings.queue > 0) {
      EXPECT_LE(longest, settings.queue) << l;
    }
  }
  EXPECT_LE(out.counts.largest_buffer, most);
}

TEST(PacketLaws, HoldOnDrawnFabricsAndTraffic) {
  int ran = 0, lossy = 0, shared = 0;
  std::map<std::string, int> controls;
  // More for a longer campaign.
  const char* draws = std::getenv("ORRERY_DRAWS");
  const std::uint64_t last = draws == nullptr ? 150 : std::strtoull(draws, nullptr, 10);
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    CounterRng rng(seed);
    Drawn d;
    DrawTopology(&rng, &d);
    DrawSettings(&rng, &d.packet);
    const bool priorities = rng.Below(2) == 0;
    auto built = cluster::Cluster::Build(d.spec);
    if (!built.ok()) continue;
    const cluster::Cluster cluster = std::move(*built);
    const auto settings = Resolve(d.packet, cluster);
    if (!settings.ok()) continue;  // settings that exclude each other
    DrawTraffic(&rng, cluster.devices(), d.spec.gpus_per_node, priorities, &d.begins);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + d.packet.congestion_control + " and " +
                 d.packet.load_balancing + " on '" + d.spec.topology.name + "'");
    const Outcome out = Simulate(cluster, d.begins, d.packet, rng.Below(2) == 0, true);
    ++ran;
    ++controls[d.packet.congestion_control];
    ExpectEnds(cluster, d, *settings, out);
    ExpectConserved(cluster, d, *settings, out);
    ExpectWithinBounds(cluster, d, *settings, out);
    for (const PacketPort& port : out.counts.ports) {
      if (port.drops + port.trims == 0) continue;
      ++lossy;
      break;
    }
    // Who comes first among the transfers of an instant is no matter.
    std::vector<Begin> shuffled = d.begins;
    std::ranges::stable_sort(shuffled, {}, [&](const Begin& b) {
      return std::pair(b.time, HashCombine(seed, b.transfer.creator));
    });
    EXPECT_EQ(Simulate(cluster, shuffled, d.packet).ends, out.ends);
    const int threads = static_cast<int>(2 + seed % 3);
    const Outcome threaded =
        Simulate(cluster, d.begins, d.packet, false, false, seed % 2 == 0, threads);
    shared += threaded.counts.windows > 0 ? 1 : 0;
    ExpectSame(threaded, Simulate(cluster, d.begins, d.packet, false, false, seed % 2 == 0));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(shared, 50);
  EXPECT_GT(ran, 90);
  EXPECT_GT(lossy, 10);
  EXPECT_EQ(controls.size(), Controls().size());
}

}  // namespace
}  // namespace orrery::network::packet
