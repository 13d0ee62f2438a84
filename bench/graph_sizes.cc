// How many bytes an operation costs on disk and in memory, and how long reading takes, for the
// graphs whose figures docs/formats/graph.md quotes:
//   ring        a ring all-reduce of 1,024 ranks, 2,046 steps: one block, peers by offset
//   durations   1,024 ranks, 100,000 operations each, every one with a duration of its own: one
//               block, a column an operation
//   structures  the ring with a block of its own for every rank, in another order
// Usage: graph_sizes [ring|durations|structures]... (all). Each is written, read and mapped in a
// process of its own, so that one's memory is not counted to another. `graph_sizes --keep
// ring.graph ring` leaves the file behind, for `orrery simulate`.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "orrery/base/file.h"
#include "orrery/base/rng.h"
#include "orrery/graph/forms/binary_form.h"
#include "orrery/graph/forms/text_form.h"

namespace orrery::graph {
namespace {

constexpr std::size_t kRanks = 1024;
constexpr std::size_t kSteps = 2 * (kRanks - 1);
constexpr std::size_t kTimed = 100'000;

// Of this process, so that others on the machine do not count.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::int64_t ResidentBytes(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == field && status >> kib) return kib * 1024;
  }
  return 0;
}

// One rank's ring: a receive of every step lets the next step's send go. `spread`: how far, in
// steps, operations stand from their order by time.
Block Ring(Peer next, Peer previous, std::size_t spread, CounterRng* rng) {
  Block block;
  block.issue = Issue::kFree;
  block.comms.reserve(2);
  for (const bool send : {true, false}) {
    Comm comm;
    comm.collective = send ? Collective::kSend : Collective::kRecv;
    comm.group = GroupSlot::kModel;
    comm.peer = send ? next : previous;
    comm.stream = kNoStream;
    comm.bytes = {1 << 16, -1};
    comm.blocking = false;
    block.comms.push_back(comm);
  }
  std::vector<std::uint32_t> received(kSteps);
  block.dep_begin.push_back(0);
  const auto add = [&](std::uint32_t index) {
    Op op;
    op.kind = OpKind::kComm;
    op.index = index;
    block.ops.push_back(op);
  };
  for (std::size_t s = 0; s < kSteps; ++s) {
    const bool turned = spread > 0 && rng->Below(2) == 0;
    for (const bool send : {!turned, turned}) {
      if (send && s > 0) {
        Dep dep;
        dep.op = received[s - 1] & 0x7fffffff;
        block.deps.push_back(dep);
      }
      if (!send) received[s] = static_cast<std::uint32_t>(block.ops.size());
      add(send ? 0 : 1);
      block.dep_begin.push_back(static_cast<std::uint32_t>(block.deps.size()));
    }
  }
  block.Seal();
  return block;
}

void Bind(std::size_t programs, Graph* graph) {
  std::vector<RankId> all;
  graph->jobs.push_back({"bench", static_cast<std::uint32_t>(kRanks), 0, 0, true});
  for (std::size_t r = 0; r < kRanks; ++r) {
    Binding& b = graph->bindings.emplace_back();
    b.program = ProgramId(r % programs);
    b.job = JobId(0);
    b.logical_rank = static_cast<std::uint32_t>(r);
    b.row = static_cast<std::uint32_t>(programs == 1 ? r : 0);
    b.groups[static_cast<std::size_t>(GroupSlot::kModel)] = GroupId(0);
    all.push_back(RankId(r));
  }
  graph->groups.Add(GroupSlot::kModel, all);
}

void AddProgram(Block block, Graph* graph) {
  graph->blocks.push_back(std::move(block));
  Program& program = graph->programs.emplace_back();
  Call call;
  call.block = BlockId(graph->blocks.size() - 1);
  program.calls.push_back(call);
}

Graph Build(std::string_view what) {
  Graph graph;
  CounterRng rng(1);
  if (what == "ring") {
    AddProgram(Ring({PeerKind::kOffset, 1}, {PeerKind::kOffset, -1}, 0, &rng), &graph);
  } else if (what == "structures") {
    for (std::size_t r = 0; r < kRanks; ++r) {
      const auto at = [&](std::size_t member) {
        return Peer(PeerKind::kMember, static_cast<std::int32_t>(member % kRanks));
      };
      AddProgram(Ring(at(r + 1), at(r + kRanks - 1), 1, &rng), &graph);
    }
  } else {
    Block block;
    AddProgram({}, &graph);
    for (std::size_t i = 0; i < kTimed; ++i) {
      // Nanoseconds around a mean of the operation's own, as a tracer would have them.
      const auto mean = static_cast<std::int64_t>(5000 + rng.Below(200'000));
      std::vector<std::int64_t> column(kRanks);
      for (std::int64_t& ps : column) {
        ps = 1000 *
             (mean + static_cast<std::int64_t>(rng.Below(static_cast<std::uint64_t>(mean) / 10)));
      }
      const std::size_t slot = graph.programs[0].columns.Add(column);
      block.times.push_back({1, static_cast<std::int32_t>(slot)});
      Op op;
      op.kind = OpKind::kTimed;
      op.index = static_cast<std::uint32_t>(i);
      op.stream = static_cast<std::uint32_t>(i % 3);
      block.ops.push_back(op);
    }
    block.Seal();
    graph.blocks[0] = std::move(block);
  }
  Bind(graph.programs.size(), &graph);
  return graph;
}

// In a process of its own. Its exit status is the answer's.
template <class Act>
void Apart(const Act& act) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    act();
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::exit(1);
}

void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.message());
  _exit(1);
}

void Measure(const std::string& what, const std::string& keep) {
  const std::string path =
      keep.empty() ? fmt::format("/tmp/graph_sizes.{}.{}", getpid(), what) : keep;
  const double ops =
      static_cast<double>(kRanks) * static_cast<double>(what == "durations" ? kTimed : 2 * kSteps);
  Apart([&] {
    const Graph graph = Build(what);
    const double begin = CpuSeconds();
    const std::string bytes = ToBinary(graph);
    const double end = CpuSeconds();
    Must(WriteFile(path, bytes));
    fmt::print(
        "{}: {:.0f} operations, binary {} bytes ({:.3f} an operation), written in {:.2f} s of "
        "CPU\n",
        what, ops, bytes.size(), static_cast<double>(bytes.size()) / ops, end - begin);
    if (what != "durations") {
      const std::size_t text = ToText(graph).size();
      fmt::print("  text {} bytes ({:.3f})\n", text, static_cast<double>(text) / ops);
    }
  });
  Apart([&] {
    const std::int64_t before = ResidentBytes("RssAnon:");
    const double begin = CpuSeconds();
    const Result<MappedGraph> graph = MapBinary(path);
    const double end = CpuSeconds();
    Must(graph.ok() ? Status() : graph.status());
    const std::int64_t anonymous = ResidentBytes("RssAnon:") - before;
    fmt::print(
        "  mapped: {:.2f} s of CPU, {:.1f} MB of its own ({:.2f} bytes an operation), {:.1f} MB of "
        "the file\n",
        end - begin, static_cast<double>(anonymous) * 1e-6, static_cast<double>(anonymous) / ops,
        static_cast<double>(ResidentBytes("RssFile:")) * 1e-6);
  });
  Apart([&] {
    const std::int64_t before = ResidentBytes("RssAnon:");
    double begin = CpuSeconds();
    Result<std::string> bytes = ReadFile(path, std::int64_t{4} << 30);
    Must(bytes.ok() ? Status() : bytes.status());
    const Result<Graph> graph = FromBinary(*bytes);
    Must(graph.ok() ? Status() : graph.status());
    const double end = CpuSeconds();
    std::string().swap(*bytes);
    const std::int64_t anonymous = ResidentBytes("RssAnon:") - before;
    fmt::print("  read: {:.2f} s of CPU, {:.1f} MB ({:.2f} bytes an operation)\n", end - begin,
               static_cast<double>(anonymous) * 1e-6, static_cast<double>(anonymous) / ops);
  });
  if (keep.empty()) unlink(path.c_str());
}

}  // namespace
}  // namespace orrery::graph

int main(int argc, char** argv) {
  std::vector<std::string> what(argv + 1, argv + argc);
  std::string keep;
  if (what.size() == 3 && what[0] == "--keep") {
    keep = what[1];
    what = {what[2]};
  }
  if (what.empty()) what = {"ring", "durations", "structures"};
  for (const std::string& w : what) {
    if (w != "ring" && w != "durations" && w != "structures") {
      fmt::print(stderr, "usage: graph_sizes [--keep FILE] [ring|durations|structures]...\n");
      return 2;
    }
  }
  for (const std::string& w : what) orrery::graph::Measure(w, keep);
  return 0;
}
