// Groups of one host that meet on its PCIe switches, as each network sees them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "orrery/collective/collective.h"
#include "orrery/engine/engine.h"

namespace orrery::engine {
namespace {

constexpr std::int64_t kBytes = 256 << 20;

cluster::Cluster HostOf(const std::string& tree) {
  cluster::Spec spec = *cluster::FindPreset("a100-pcie-80g-ib-200g");  // 8 GPUs, Gen4, AMD
  spec.nodes = 1;
  spec.pcie_tree.name = tree;
  return *cluster::Cluster::Build(spec);
}

// An all-reduce of kBytes by each group of GPUs, all at once: its record.
Record Reduce(const cluster::Cluster& cluster, const std::vector<std::vector<std::size_t>>& groups,
              std::string_view network, bool fold = true) {
  graph::Graph graph;
  graph.jobs.push_back({"job", 0, 0, 0});
  graph::Block block;
  block.name = graph.Intern("all-reduce");
  block.ops.push_back({graph::OpKind::kComm, graph::kNoEvent, 0, graph.Intern("comm"), {}});
  graph::Comm comm;
  comm.bytes.value = kBytes;
  block.comms.push_back(comm);
  block.Seal();
  graph.blocks.push_back(block);
  graph::Program program;
  program.name = "program";
  graph::Call call;
  call.block = BlockId(std::size_t{0});
  program.calls.push_back(call);
  graph.programs.push_back(program);
  cluster::Placement placement;
  for (const std::vector<std::size_t>& devices : groups) {
    std::vector<RankId> members;
    for (const std::size_t d : devices) {
      members.emplace_back(graph.bindings.size());
      placement.device.emplace_back(d);
      graph::Binding binding;
      binding.program = ProgramId(std::size_t{0});
      binding.job = JobId(std::size_t{0});
      binding.logical_rank = static_cast<std::uint32_t>(graph.bindings.size());
      graph.bindings.push_back(binding);
      ++graph.jobs[0].ranks;
    }
    const GroupId group = graph.groups.Add(graph::GroupSlot::kTp, members);
    for (const RankId m : members) graph.bindings[m.index()].groups[0] = group;
  }
  const auto compute = *compute::CostModel::Create(cluster.spec().device, {});
  const collective::Planner planner(cluster, collective::Environment{});
  Options options;
  options.fold = fold;
  Result<Record> record = Run({&graph, &cluster, &placement, &compute, &planner, network}, options);
  EXPECT_TRUE(record.ok()) << record.status().message();
  return *std::move(record);
}

double Milliseconds(const Record& record) {
  return static_cast<double>(record.jobs[0].step_time) / kMillisecond;
}

// Four pairs, each below one switch, go side by side; across the sockets they share 16 GB/s.
TEST(HostPorts, PairsAcrossTheSocketsShareItsLink) {
  const cluster::Cluster host = HostOf("switch-per-four");
  const std::vector<std::vector<std::size_t>> below = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  const std::vector<std::vector<std::size_t>> across = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (const char* network : {"analytic", "flow", "flow-chunks", "links"}) {
    const double alone = Milliseconds(Reduce(host, {{0, 1}}, network));
    EXPECT_NEAR(Milliseconds(Reduce(host, below, network)), alone, 0.001 * alone) << network;
    // An all-reduce of two sends its bytes once each way: four of them over one link.
    const double shared = 4 * static_cast<double>(kBytes) / 16e9 * 1e3;
    const double measured = Milliseconds(Reduce(host, across, network));
    EXPECT_NEAR(measured, shared, 0.06 * shared) << network;
    EXPECT_GT(measured, 2 * alone) << network;
  }
}

TEST(HostPorts, FoldedAsUnfolded) {
  const cluster::Cluster host = HostOf("switch-per-four");
  const std::vector<std::vector<std::size_t>> across = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (const char* network : {"analytic", "flow"}) {
    const Record folded = Reduce(host, across, network);
    const Record whole = Reduce(host, across, network, false);
    EXPECT_EQ(folded.jobs[0].step_time, whole.jobs[0].step_time) << network;
    EXPECT_EQ(folded.fingerprint, whole.fingerprint) << network;
  }
  EXPECT_EQ(Reduce(host, across, "analytic").not_folded_because,
            "ranks share their hosts' PCIe trees");
}

TEST(HostPorts, WhatTheLinksCarriedIsReported) {
  const Record record = Reduce(HostOf("switch-per-four"), {{0, 4}}, "analytic");
  std::string kinds;
  for (const LinkClassUse& use : record.network) {
    kinds += use.name + " ";
    if (use.name != "socket") continue;
    EXPECT_GE(use.bytes, 2 * kBytes);  // both ways, both iterations
  }
  EXPECT_EQ(kinds, "nic pcie pcie-up socket ");
}

}  // namespace
}  // namespace orrery::engine
