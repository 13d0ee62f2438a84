// Collectives alone, by size: the simulator's nccl-tests.
//
// Each size is a job of one collective and nothing else, repeated back to back on every GPU, run by
// the engine on any network back end; the time is that from the end of one to the end of the next
// (nccl-tests' average over its iterations). algbw = size / time, busbw = algbw times nccl-tests'
// factor: 2 (R - 1) / R for all-reduce, (R - 1) / R for all-gather, reduce-scatter, all-to-all,
// gather and scatter, 1 for broadcast. Sizes are nccl-tests': the whole buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/engine/engine.h"
#include "orrery/formats/nccl_log.h"
#include "orrery/graph/graph.h"

namespace orrery::traffic {

struct SweepOptions {
  graph::Collective collective = graph::Collective::kAllReduce;
  std::vector<std::int64_t> sizes;
  std::size_t gpus = 0;  // the first so many; 0: all
  graph::Shares shares;  // alltoall: of all GPUs; of none: all messages are alike
  std::string network = "analytic";
  collective::Pricing pricing;
  std::function<void(std::size_t, std::size_t)> progress;
};

struct SweepRow {
  std::int64_t bytes = 0;
  SimTime time = 0;
  double algbw_GBps = 0, busbw_GBps = 0;
  std::string plan;        // "Ring Simple, 16 channels"
  std::string instead_of;  // what NCCL would have taken and is not modelled; empty: nothing
  std::string note;        // what the price rests on, where that is not the plan alone
  double measured_us = 0, measured_busbw_GBps = 0;  // of a log; 0: none
  double error() const { return ToSeconds(time) * 1e6 / measured_us - 1; }
};

struct Sweep {
  std::string collective;
  std::size_t gpus = 0;
  std::vector<SweepRow> rows;
  std::uint64_t fingerprint = 0;
};

std::vector<std::string_view> CollectiveNames();
bool IsCollective(std::string_view name);
// "all-reduce" to the collective. An unknown name lists the nearest valid ones.
Result<graph::Collective> FindCollective(std::string_view name);

// From `least` to `most` bytes by `factor`.
Result<std::vector<std::int64_t>> SweepSizes(std::int64_t least, std::int64_t most,
                                             std::int64_t factor);
// Shares for an all-to-all of so many: lines of `ranks` numbers from 0 with commas between, '#'
// begins a comment. Line i is what GPU i sends each, its own part included; one line: what everyone
// sends each. Only proportions count: sizes are the mean GPU's whole buffer. REQUIRES: ranks > 0.
Result<graph::Shares> ParseShares(std::string_view text, std::string_view name, std::size_t ranks);
Result<Sweep> RunSweep(const cluster::Cluster& cluster, const collective::Environment& environment,
                       const SweepOptions& options);
// Puts the measured times beside the rows; every size of the log has its row.
void AddMeasured(const formats::NcclTestsLog& log, Sweep* sweep);

}  // namespace orrery::traffic
