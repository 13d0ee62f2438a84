#include "orrery/traffic/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/rng.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/compute/compute.h"

namespace orrery::traffic {
namespace {

using graph::Collective;

struct Named {
  std::string_view name;
  Collective collective;
};
constexpr std::array kCollectives = {Named{"all-reduce", Collective::kAllReduce},
                                     Named{"all-gather", Collective::kAllGather},
                                     Named{"reduce-scatter", Collective::kReduceScatter},
                                     Named{"broadcast", Collective::kBroadcast},
                                     Named{"alltoall", Collective::kAllToAll},
                                     Named{"gather", Collective::kGather},
                                     Named{"scatter", Collective::kScatter}};

// As a flow of a connection matrix; what is summed up from it stays in 64 bits.
constexpr std::int64_t kLargestCollective = std::int64_t{1} << 50;
// Enough that what the first one waits for is over.
constexpr int kIterations = 3;

double BusFactor(Collective collective, std::size_t ranks) {
  const auto r = static_cast<double>(ranks);
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (r - 1) / r;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return (r - 1) / r;
    default:
      return 1;
  }
}

graph::Graph OneCollective(const SweepOptions& options, std::size_t ranks, std::int64_t bytes) {
  graph::Graph graph;
  graph::Block block;
  block.name = graph.Intern("collective");
  // As within a CUDA graph: the host of nccl-tests, a loop in C++, keeps ahead.
  block.launch = graph::Launch::kInGraph;
  graph::Comm comm;
  comm.collective = options.collective;
  comm.group = graph::GroupSlot::kDp;
  comm.dtype = graph::DType::kFp32;  // nccl-tests' default
  comm.bytes = {bytes, -1};
  if (options.shares.ranks > 0) {
    comm.shares = SharesId(0);
    graph.shares.push_back(options.shares);
  }
  block.comms.push_back(comm);
  block.ops.push_back({graph::OpKind::kComm,
                       graph::kNoEvent,
                       0,
                       graph.Intern(graph::Name(options.collective)),
                       {}});
  block.Seal();
  graph.blocks.push_back(std::move(block));
  graph::Program program;
  program.name = "rank";
  program.calls.push_back({.block = BlockId(0)});
  graph.programs.push_back(std::move(program));
  std::vector<RankId> members;
  for (std::size_t r = 0; r < ranks; ++r) members.emplace_back(r);
  const GroupId group = graph.groups.Add(graph::GroupSlot::kDp, members);
  graph.jobs.push_back({.name = "collective", .ranks = static_cast<std::uint32_t>(ranks)});
  for (std::size_t r = 0; r < ranks; ++r) {
    graph::Binding binding;
    binding.program = ProgramId(0);
    binding.job = JobId(0);
    binding.logical_rank = static_cast<std::uint32_t>(r);
    binding.groups[static_cast<std::size_t>(graph::GroupSlot::kDp)] = group;
    graph.bindings.push_back(binding);
  }
  return graph;
}

}  // namespace

std::vector<std::string_view> CollectiveNames() {
  std::vector<std::string_view> names;
  for (const Named& one : kCollectives) names.push_back(one.name);
  return names;
}

bool IsCollective(std::string_view name) { return FindCollective(name).ok(); }

Result<Collective> FindCollective(std::string_view name) {
  for (const Named& one : kCollectives) {
    if (one.name == name) return one.collective;
  }
  return InvalidInput("{}", UnknownName("collective", name, CollectiveNames()));
}

Result<std::vector<std::int64_t>> SweepSizes(std::int64_t least, std::int64_t most,
                                             std::int64_t factor) {
  if (least < 1) return InvalidInput("--min {}: a collective needs a byte or more", least);
  if (most < least) {
    return InvalidInput("--max {} is below --min {}; sizes go up from --min to --max",
                        HumanBytes(most), HumanBytes(least));
  }
  if (most > kLargestCollective) {
    return InvalidInput("--max {}: at most {}", HumanBytes(most), HumanBytes(kLargestCollective));
  }
  if (factor < 2) return InvalidInput("--factor {}: give 2 or more", factor);
  std::vector<std::int64_t> sizes;
  sizes.push_back(least);
  while (sizes.back() <= most / factor) sizes.push_back(sizes.back() * factor);
  return sizes;
}

Result<Sweep> RunSweep(const cluster::Cluster& cluster, const collective::Environment& environment,
                       const SweepOptions& options) {
  Sweep sweep;
  sweep.gpus = options.gpus == 0 ? cluster.devices() : options.gpus;
  if (sweep.gpus < 2 || sweep.gpus > cluster.devices()) {
    return InvalidInput("--gpus {}: a collective needs 2 or more; the cluster has {}", sweep.gpus,
                        cluster.devices());
  }
  for (const Named& named : kCollectives) {
    if (named.collective == options.collective) sweep.collective = named.name;
  }
  ORRERY_ASSIGN_OR_RETURN(const compute::CostModel compute,
                          compute::CostModel::Create(cluster.spec().device, {}));
  const collective::Planner planner(cluster, environment, options.pricing);
  cluster::Placement placement;
  for (std::size_t r = 0; r < sweep.gpus; ++r) placement.device.emplace_back(r);
  const collective::GroupShape shape = collective::ShapeOf(cluster, placement.device);
  for (const std::int64_t bytes : options.sizes) {
    SweepRow row;
    row.bytes = bytes;
    ORRERY_ASSIGN_OR_RETURN(const collective::Plan plan,
                            options.shares.ranks > 0
                                ? planner.UnevenPlan(bytes, shape, options.shares, false)
                                : planner.MakePlan(options.collective, bytes, shape));
    row.plan =
        fmt::format("{} {}, {} channel{}", collective::Name(plan.algorithm),
                    collective::Name(plan.protocol), plan.channels, plan.channels == 1 ? "" : "s");
    row.instead_of = plan.instead_of;
    row.note = plan.note;
    const graph::Graph graph = OneCollective(options, sweep.gpus, bytes);
    const engine::Inputs inputs{&graph, &cluster, &placement, &compute, &planner, options.network};
    engine::Options run;
    run.iterations = kIterations;
    Result<engine::Record> record = engine::Run(inputs, run);
    if (!record.ok()) {
      return std::move(record).TakeStatus().In(
          fmt::format("{} of {} bytes", sweep.collective, bytes));
    }
    row.time = record->jobs.front().step_time;
    row.algbw_GBps = static_cast<double>(bytes) / ToSeconds(row.time) * 1e-9;
    row.busbw_GBps = row.algbw_GBps * BusFactor(options.collective, sweep.gpus);
    sweep.fingerprint = HashCombine(sweep.fingerprint, record->fingerprint);
    sweep.rows.push_back(std::move(row));
    if (options.progress) options.progress(sweep.rows.size(), options.sizes.size());
  }
  return sweep;
}

void AddMeasured(const formats::NcclTestsLog& log, Sweep* sweep) {
  for (const formats::NcclTestsLog::Row& measured : log.rows) {
    for (SweepRow& row : sweep->rows) {
      if (row.bytes != measured.bytes || row.measured_us > 0) continue;
      row.measured_us = measured.time_us;
      row.measured_busbw_GBps = measured.busbw_GBps;
    }
  }
}

}  // namespace orrery::traffic
