// What a run of a trace says: when each rank is done, what its time went to, and its memory where
// the trace has allocations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/memory/storage_replay.h"
#include "orrery/network/parameters.h"
#include "orrery/results/requests.h"
#include "orrery/results/result.h"

namespace orrery::results {

// Device memory of a rank whose allocations the trace has.
struct TraceMemory {
  std::uint32_t rank = 0, ranks = 1;  // the traced one, and how many it stands for
  memory::StorageReplay replay;
  std::int64_t context_bytes = 0;  // outside PyTorch's allocator: CUDA, NCCL
  std::string peak_at, oom_at;     // what ran: "aten::mm of layers.3.mlp"

  std::int64_t total() const { return replay.peak_reserved + context_bytes; }
};

struct TraceResult {
  std::string source;   // the file
  std::string format;   // "GOAL"
  std::string cluster;  // empty: none, every pair of ranks alike
  std::string network;
  std::string parameters;  // of the network, for the report; may be empty
  std::size_t operations = 0;
  std::size_t programs = 0;
  SimTime measured = -1;                // what the traced run took; -1: the trace does not say
  bool measured_communication = false;  // all communication took what was measured
  int processors = 0;                   // a rank's, where its operations hold them
  bool repeats = false;    // a step that comes again: its time is that of one in the steady state
  double model_flops = 0;  // of such a step, over all ranks; 0: not known
  std::vector<TraceMemory> memory;  // by distinct program; empty: the trace says nothing of it
  engine::Record record;
  // What ASTRA-sim's system counts besides, by rank: when some communication was under way, hidden
  // or not, and the sum of its GPU nodes' times.
  struct Counts {
    SimTime communication = 0, gpu_ticks = 0;
  };
  std::vector<Counts> counts;
  std::optional<RequestResult> requests;  // where the trace serves some
  std::vector<WorstLink> worst_links;
  UseOverTime over_time;
  std::optional<PacketUse> packets;  // where the network sees packets
  Simulation simulation;
  std::vector<std::string> assumed, warnings;
  std::string config_json;  // what was chosen, one JSON object

  bool out_of_memory() const;
};

std::string ToJson(const TraceResult& result);
std::string Report(const TraceResult& result);
// A line a rank, or for ranks simulated as one (`alike` of them): when it is done, and what its
// time went to, in ps. Of requests: a line each.
std::string ToCsv(const TraceResult& result);

}  // namespace orrery::results
