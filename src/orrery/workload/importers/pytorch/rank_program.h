// What one rank did in a step, as nodes that begin after others: its threads, the streams of its
// GPU, its communication. Replayed with the times it has, every node begins when it did.
//
//   threads   The calls of the CUDA runtime that launch or wait, and the posts of communication on
//             CPUs, cut a thread into pieces of measured time; on CPUs operators are work of their
//             own. A thread that pauses while another is at work goes on after it.
//   streams   An operation of a GPU begins after its launch, after the one before it on its stream
//             and after what its stream was told to wait for; what is left until it began is a
//             delay of its own, measured.
//   waits     Of streams, and of the host, from the profile's synchronisation events where it has
//             them. Where not: a kernel of NCCL's waits for the last kernel that its thread
//             launched before it (as ProcessGroupNCCL has it), a kernel behind cudaStreamWaitEvent
//             for the communication that was done before it began, a host that synchronises for the
//             last operation that ended before it went on.
//   CPU       A thread waits for communication that it posted as blocking; for other communication
//             where it is idle when that ends, else at its next wait, else at the step's end.
//
// What was inferred rather than read is in `assumed`, what was not there in `missing`. Cost:
// O(events · log events).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "orrery/workload/importers/pytorch/communications.h"

namespace orrery::workload {

struct RankNode {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  enum class Kind : std::uint8_t {
    kHost,  // a thread's time, or a delay
    kWork,  // a kernel, a copy; on a CPU an operator
    kComm,
  };
  struct Dep {
    std::uint32_t node = 0;
    bool on_start = false;
  };
  std::int64_t start_ns = 0, duration_ns = 0;
  std::uint32_t track = kNone;  // of the profile; kNone: on no stream
  std::uint32_t name = kNone;   // of the profile's names
  std::uint32_t comm = kNone;   // of Communications::list
  Kind kind = Kind::kHost;
  std::vector<Dep> deps;
  std::int64_t end_ns() const { return start_ns + duration_ns; }
};

struct RankSteps {
  std::vector<RankNode> nodes;  // those on one stream in its order; deps lead to earlier ones
  std::set<std::string> assumed, missing;
  std::uint32_t main = RankNode::kNone;  // the thread of the step
};

RankSteps StepsOf(const PyTorchRank& rank, const Window& window, const Communications& comms);

}  // namespace orrery::workload
