#include "orrery/workload/importers/mpi/collectives.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/workload/schedules/algorithms.h"

namespace orrery::workload {
namespace {

constexpr std::string_view kChoiceLines[] = {
#include "orrery_data_mpi_algorithms.inc"
};

using Run = CollectiveRun;
using Writer = ScheduleWriter;
enum class Shape : std::uint8_t { kAny, kPower, kEven };

std::vector<std::int64_t> Equal(const Run& r) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(r.team.size), r.bytes);
}

struct Algorithm {
  MpiCall call;
  std::string_view name;
  void (*write)(Writer* w, const Run& r);
  Shape needs = Shape::kAny;
};
constexpr Algorithm kAlgorithms[] = {
    {MpiCall::kBarrier, "dissemination",
     [](Writer* w, const Run& r) { Dissemination(w, r.team, 0); }},
    {MpiCall::kBarrier, "recursive-doubling",
     [](Writer* w, const Run& r) { RecursiveDoubling(w, r.team, 0, 0); }},
    {MpiCall::kBcast, "binomial",
     [](Writer* w, const Run& r) {
       TreeBroadcast(w, BinomialTree(r.team, r.root), r.bytes, r.segment);
     }},
    {MpiCall::kBcast, "linear",
     [](Writer* w, const Run& r) { TreeBroadcast(w, Star(r.team, r.root), r.bytes, r.segment); }},
    {MpiCall::kBcast, "pipeline",
     [](Writer* w, const Run& r) { TreeBroadcast(w, Chain(r.team, r.root), r.bytes, r.segment); }},
    {MpiCall::kBcast, "split-binary",
     [](Writer* w, const Run& r) { SplitBinaryBroadcast(w, r.team, r.root, r.bytes, r.segment); }},
    {MpiCall::kBcast, "scatter-doubling",
     [](Writer* w, const Run& r) { ScatterGatherBroadcast(w, r.team, r.root, r.bytes, false); },
     Shape::kPower},
    {MpiCall::kBcast, "scatter-ring",
     [](Writer* w, const Run& r) { ScatterGatherBroadcast(w, r.team, r.root, r.bytes, true); }},
    {MpiCall::kReduce, "binomial",
     [](Writer* w, const Run& r) {
       TreeReduce(w, BinomialTree(r.team, r.root), r.bytes, r.segment, r.reduce_ns);
     }},
    {MpiCall::kReduce, "binary",
     [](Writer* w, const Run& r) {
       TreeReduce(w, BinaryTree(r.team, r.root), r.bytes, r.segment, r.reduce_ns);
     }},
    {MpiCall::kReduce, "linear",
     [](Writer* w, const Run& r) {
       TreeReduce(w, Star(r.team, r.root), r.bytes, r.segment, r.reduce_ns);
     }},
    {MpiCall::kReduce, "pipeline",
     [](Writer* w, const Run& r) {
       TreeReduce(w, Chain(r.team, r.root), r.bytes, r.segment, r.reduce_ns);
     }},
    {MpiCall::kReduce, "halving",
     [](Writer* w, const Run& r) { HalvingReduce(w, r.team, r.root, r.bytes, r.reduce_ns); }},
    {MpiCall::kAllreduce, "recursive-doubling",
     [](Writer* w, const Run& r) { RecursiveDoubling(w, r.team, r.bytes, r.reduce_ns); }},
    {MpiCall::kAllreduce, "rabenseifner",
     [](Writer* w, const Run& r) { Rabenseifner(w, r.team, r.bytes, r.reduce_ns); }},
    {MpiCall::kAllreduce, "ring",
     [](Writer* w, const Run& r) { RingAllReduce(w, r.team, r.bytes, r.reduce_ns); }},
    {MpiCall::kAllreduce, "reduce-bcast",
     [](Writer* w, const Run& r) {
       TreeReduce(w, BinomialTree(r.team, 0), r.bytes, 0, r.reduce_ns);
       TreeBroadcast(w, BinomialTree(r.team, 0), r.bytes, 0);
     }},
    {MpiCall::kGather, "binomial",
     [](Writer* w, const Run& r) { BinomialGather(w, r.team, r.root, r.bytes); }},
    {MpiCall::kGather, "linear",
     [](Writer* w, const Run& r) { LinearGatherV(w, r.team, r.root, r.bytes, Equal(r)); }},
    {MpiCall::kGatherv, "linear",
     [](Writer* w, const Run& r) { LinearGatherV(w, r.team, r.root, r.bytes, r.in); }},
    {MpiCall::kScatter, "binomial",
     [](Writer* w, const Run& r) { BinomialScatter(w, r.team, r.root, r.bytes); }},
    {MpiCall::kScatter, "linear",
     [](Writer* w, const Run& r) { LinearScatterV(w, r.team, r.root, r.bytes, Equal(r)); }},
    {MpiCall::kScatterv, "linear",
     [](Writer* w, const Run& r) { LinearScatterV(w, r.team, r.root, r.bytes, r.out); }},
    {MpiCall::kAllgather, "recursive-doubling",
     [](Writer* w, const Run& r) { DoublingAllGather(w, r.team, r.bytes); }, Shape::kPower},
    {MpiCall::kAllgather, "bruck",
     [](Writer* w, const Run& r) { BruckAllGather(w, r.team, r.bytes); }},
    {MpiCall::kAllgather, "ring",
     [](Writer* w, const Run& r) { RingAllGather(w, r.team, Equal(r)); }},
    {MpiCall::kAllgather, "neighbour",
     [](Writer* w, const Run& r) { NeighbourAllGather(w, r.team, r.bytes); }, Shape::kEven},
    {MpiCall::kAllgatherv, "ring", [](Writer* w, const Run& r) { RingAllGather(w, r.team, r.in); }},
    {MpiCall::kAlltoall, "bruck",
     [](Writer* w, const Run& r) { BruckAllToAll(w, r.team, r.bytes); }},
    {MpiCall::kAlltoall, "linear",
     [](Writer* w, const Run& r) { LinearAllToAll(w, r.team, r.bytes); }},
    {MpiCall::kAlltoall, "pairwise",
     [](Writer* w, const Run& r) { PairwiseAllToAll(w, r.team, r.bytes); }},
    {MpiCall::kAlltoallv, "linear",
     [](Writer* w, const Run& r) { LinearAllToAllV(w, r.team, r.out, r.in); }},
    {MpiCall::kAlltoallv, "pairwise",
     [](Writer* w, const Run& r) { PairwiseAllToAllV(w, r.team, r.out, r.in); }},
    {MpiCall::kReduceScatter, "halving",
     [](Writer* w, const Run& r) { HalvingReduceScatter(w, r.team, r.bytes, r.reduce_ns); }},
    {MpiCall::kReduceScatter, "pairwise",
     [](Writer* w, const Run& r) { PairwiseReduceScatter(w, r.team, r.bytes, r.reduce_ns); }},
    {MpiCall::kScan, "linear",
     [](Writer* w, const Run& r) { LinearScan(w, r.team, r.bytes, r.reduce_ns); }},
    {MpiCall::kScan, "recursive-doubling",
     [](Writer* w, const Run& r) { DoublingScan(w, r.team, r.bytes, r.reduce_ns); }},
};

const Algorithm* FindAlgorithm(MpiCall call, std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.call == call && a.name == name) return &a;
  }
  return nullptr;
}

struct Choice {
  MpiLibrary library;
  const Algorithm* algorithm;
  std::int64_t min_ranks = 0, max_ranks = INT64_MAX, below_bytes = INT64_MAX, segment = 0;
  Shape shape = Shape::kAny;
  std::string_view elements;
  char side = ' ';
  double slope = 0, offset = 0;
};

template <typename T>
void ReadCell(std::string_view cell, T* value) {
  if (cell.empty()) return;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *value);
  ORRERY_CHECK(error == std::errc() && end == cell.data() + cell.size(),
               "algorithms.csv has a number where one belongs");
}

Choice ReadChoice(std::string_view line) {
  std::array<std::string_view, 12> cell;
  for (std::string_view& c : cell) {
    c = line.substr(0, line.find(','));
    line.remove_prefix(std::min(line.size(), c.size() + 1));
  }
  MpiCall call = MpiCall::kBarrier;
  while (Name(call) != cell[1]) {
    call = static_cast<MpiCall>(static_cast<int>(call) + 1);
    ORRERY_CHECK(static_cast<int>(call) < kMpiCalls, "algorithms.csv names an unknown collective");
  }
  Choice choice{cell[0] == "mpich" ? MpiLibrary::kMpich : MpiLibrary::kOpenMpi,
                FindAlgorithm(call, cell[10])};
  ORRERY_CHECK(choice.algorithm != nullptr, "algorithms.csv names an unknown algorithm");
  ReadCell(cell[2], &choice.min_ranks);
  ReadCell(cell[3], &choice.max_ranks);
  if (!cell[4].empty()) choice.shape = cell[4] == "power" ? Shape::kPower : Shape::kEven;
  ReadCell(cell[5], &choice.below_bytes);
  choice.elements = cell[6];
  if (!cell[7].empty()) choice.side = cell[7].front();
  ReadCell(cell[8], &choice.slope);
  ReadCell(cell[9], &choice.offset);
  ReadCell(cell[11], &choice.segment);
  return choice;
}

const std::vector<Choice>& Choices() {
  static const std::vector<Choice> choices = [] {
    std::vector<Choice> all;
    for (std::size_t i = 1; i < std::size(kChoiceLines); ++i)
      all.push_back(ReadChoice(kChoiceLines[i]));
    return all;
  }();
  return choices;
}

bool Has(Shape shape, int ranks) {
  return shape == Shape::kAny || (shape == Shape::kEven && ranks % 2 == 0) ||
         (shape == Shape::kPower && PowerBelow(ranks) == ranks);
}

bool Fits(const Choice& c, const Run& r, std::int64_t bytes) {
  if (r.team.size < c.min_ranks || r.team.size > c.max_ranks || bytes >= c.below_bytes) {
    return false;
  }
  if (!Has(c.shape, r.team.size)) return false;
  if (c.elements == "power" && r.elements < PowerBelow(r.team.size)) return false;
  if (c.elements == "ranks" && r.elements <= r.team.size) return false;
  const double line = c.slope * static_cast<double>(bytes) + c.offset;
  if (c.side == '<') return r.team.size < line;
  return c.side != '>' || r.team.size > line;
}

std::size_t Number(MpiCall call) {
  return static_cast<std::size_t>(static_cast<int>(call) - static_cast<int>(MpiCall::kBarrier));
}

}  // namespace

CollectiveChoices::CollectiveChoices(MpiLibrary library,
                                     std::array<std::string, kCollectives> fixed)
    : library_(library), fixed_(std::move(fixed)) {}

Status CollectiveChoices::Write(MpiCall call, CollectiveRun run, ScheduleWriter* w) const {
  if (const std::string& name = fixed_[Number(call)]; !name.empty()) {
    const Algorithm* const algorithm = FindAlgorithm(call, name);
    ORRERY_CHECK(algorithm != nullptr, "a fixed algorithm has been checked");
    if (!Has(algorithm->needs, run.team.size)) {
      return InvalidInput(
          "mpi.{}: '{}' needs {} of ranks, the communicator has {}", Name(call), name,
          algorithm->needs == Shape::kEven ? "an even number" : "a power of two", run.team.size);
    }
    algorithm->write(w, run);
    return {};
  }
  const std::int64_t bytes = call == MpiCall::kAllgather ? run.bytes * run.team.size : run.bytes;
  for (const Choice& choice : Choices()) {
    if (choice.library != library_ || choice.algorithm->call != call) continue;
    if (!Fits(choice, run, bytes)) continue;
    run.segment = choice.segment;
    constexpr std::int64_t kMostSegments = 1 << 18;
    if (run.segment > 0 && run.bytes / run.segment > kMostSegments) {
      return InvalidInput("{} bytes in segments of {} are too many; choose another, mpi.{}=…",
                          run.bytes, run.segment, Name(call));
    }
    choice.algorithm->write(w, run);
    return {};
  }
  ORRERY_CHECK(false, "algorithms.csv has a row for every case");
  return {};
}

std::string_view AlgorithmNames(MpiCall call) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all(CollectiveChoices::kCollectives, "auto");
    for (const Algorithm& a : kAlgorithms) {
      all[Number(a.call)] += '|';
      all[Number(a.call)] += a.name;
    }
    return all;
  }();
  return names[Number(call)];
}

}  // namespace orrery::workload
