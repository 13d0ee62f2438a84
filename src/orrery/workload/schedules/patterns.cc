#include "orrery/workload/schedules/patterns.h"

#include <algorithm>
#include <array>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/workload/importers/goal/goal.h"
#include "orrery/workload/schedules/algorithms.h"
#include "orrery/workload/schedules/loops.h"

namespace orrery::workload {
namespace {

using formats::Section;

constexpr int kMostRanks = 1 << 20;
constexpr std::int64_t kMostOperations = 200'000'000;

constexpr Option kKeys[] = {
    {.name = "name", .type = OptionType::kText, .doc = "The pattern. Required."},
    {.name = "ranks",
     .type = OptionType::kInteger,
     .min = 2,
     .max = kMostRanks,
     .doc = "How many take part. Required."},
    {.name = "size",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "1MiB",
     .max = 1e15,
     .doc = "What a rank gives: the vector of a reduction, a message of an all-to-all, a face."},
    {.name = "root",
     .type = OptionType::kInteger,
     .fallback = "0",
     .max = kMostRanks - 1,
     .doc = "Where trees, gathers, scatters and pipelined rings begin or end."},
    {.name = "segment",
     .type = OptionType::kBytes,
     .unit = "B",
     .fallback = "64KiB",
     .min = 1,
     .max = 1e15,
     .doc = "Of pipelined rings: bytes of a message."},
    {.name = "ways",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 64,
     .doc = "Messages of a round of nway-dissemination, of a superstep of bsp."},
    {.name = "steps",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 1000000,
     .doc = "Iterations of nearest-2d, nearest-3d, sweep-2d, sweep-3d and bsp."},
    {.name = "compute",
     .type = OptionType::kTime,
     .unit = "us",
     .fallback = "0us",
     .max = 1e12,
     .doc = "Work of an iteration; of all-reduces, combining one vector. In whole ns."},
    {.name = "grid",
     .type = OptionType::kText,
     .doc = "Of nearest and sweep: ranks along each dimension, 8x4x2; as near to a cube as it goes "
            "when left out."},
};
constexpr OptionTable kTable{
    .path = "pattern",
    .doc = "A communication pattern that runs as a schedule (docs/formats/pattern.md).",
    .options = kKeys};

// Of one pattern, all ranks'.
struct Request {
  int ranks = 2, root = 0, ways = 1, steps = 1;
  std::int64_t bytes = 0, segment = 1, compute_ns = 0;
  Grid grid;

  Loop loop() const { return {steps, bytes, compute_ns, ways}; }
};

struct Row {
  SchedulePattern pattern;
  Posting posting;
  void (*write)(ScheduleWriter* w, Team team, const Request& r);
  int dimensions = 0;                            // of its grid
  bool power_of_two = false;                     // that ranks must be
  std::int64_t (*operations)(const Request& r);  // of one rank, about
};

std::int64_t Rounds(const Request& r) { return r.ranks < 2 ? 1 : 3 * 20; }
std::int64_t PerRank(const Request& r) { return 4 * std::int64_t{r.ranks}; }
std::int64_t PerSegment(const Request& r) { return 2 * (r.bytes / r.segment + 1); }
std::int64_t PerWay(const Request& r) { return 3 * 20 * std::int64_t{r.ways}; }
std::int64_t PerStep(const Request& r) { return std::int64_t{r.steps} * (65 + 2 * r.ways); }

constexpr std::array<Row, 22> kRows = {{
    {{"binomial-bcast", "Broadcast over a binomial tree, near members first.", "binomialtreebcast",
      kPatternSize | kPatternRoot},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { BinomialBroadcast(w, t, r.root, r.bytes); },
     0,
     false,
     Rounds},
    {{"binomial-reduce", "Reduction over a binomial tree.", "binomialtreereduce",
      kPatternSize | kPatternRoot},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { BinomialReduce(w, t, r.root, r.bytes); },
     0,
     false,
     Rounds},
    {{"binary-bcast", "Broadcast over a binary tree.", "binarytreebcast",
      kPatternSize | kPatternRoot},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { BinaryBroadcast(w, t, r.root, r.bytes); },
     0,
     false,
     Rounds},
    {{"dissemination", "Round r sends to the rank 2^r on: a barrier, an all-reduce of a vector.",
      "dissemination", kPatternSize},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { Dissemination(w, t, r.bytes); },
     0,
     false,
     Rounds},
    {{"nway-dissemination",
      "Dissemination with `ways` messages a round; combining one takes a ns a byte.",
      "nwaydissemination", kPatternSize | kPatternWays},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) {
       WayDissemination(w, t, r.ways, r.bytes, r.bytes);
     },
     0,
     false,
     PerWay},
    {{"recursive-doubling",
      "All-reduce: whole vectors with the rank whose number differs in bit r.", "",
      kPatternSize | kPatternCompute},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) {
       RecursiveDoubling(w, t, r.bytes, r.compute_ns);
     },
     0,
     false,
     Rounds},
    {{"halving-doubling",
      "All-reduce: halves of the vector, near ranks first, and back; ranks are a power of two.",
      "allreduce_recdoub", kPatternSize},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { HalvingDoubling(w, t, r.bytes); },
     0,
     true,
     Rounds},
    {{"rabenseifner",
      "All-reduce: reduce-scatter by halving, near ranks first, all-gather by doubling.", "",
      kPatternSize | kPatternCompute},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { Rabenseifner(w, t, r.bytes, r.compute_ns); },
     0,
     false,
     Rounds},
    {{"ring", "All-reduce round a ring: size/ranks bytes a step, 2·(ranks − 1) steps.",
      "allreduce_ring", kPatternSize | kPatternCompute},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) {
       RingAllReduce(w, t, r.bytes, r.compute_ns);
     },
     0,
     false,
     PerRank},
    {{"pipelined-ring", "Broadcast once round a ring in segments.", "pipelinedring",
      kPatternSize | kPatternRoot | kPatternSegment},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) {
       PipelinedRing(w, t, r.root, r.bytes, r.segment, false);
     },
     0,
     false,
     PerSegment},
    {{"pipelined-ring-in-turn",
      "The same; a segment is received once the one before it was sent on.", "pipelinedringdep",
      kPatternSize | kPatternRoot | kPatternSegment},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) {
       PipelinedRing(w, t, r.root, r.bytes, r.segment, true);
     },
     0,
     false,
     PerSegment},
    {{"double-ring", "A message from rank 0 round the ring both ways.", "doublering", kPatternSize},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { DoubleRing(w, t, r.bytes); },
     0,
     false,
     Rounds},
    {{"linear-gather", "All send to the root.", "gather", kPatternSize | kPatternRoot},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { LinearGather(w, t, r.root, r.bytes); },
     0,
     false,
     PerRank},
    {{"linear-scatter", "The root sends to all.", "scatter", kPatternSize | kPatternRoot},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { LinearScatter(w, t, r.root, r.bytes); },
     0,
     false,
     PerRank},
    {{"linear-barrier", "All send a byte to rank 0, which then sends one to all.", "linbarrier", 0},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request&) { LinearBarrier(w, t); },
     0,
     false,
     PerRank},
    {{"linear-alltoall", "All messages at once, to the next rank first.", "linear_alltoall",
      kPatternSize},
     Posting::kAhead,
     [](ScheduleWriter* w, Team t, const Request& r) { LinearAllToAll(w, t, r.bytes); },
     0,
     false,
     PerRank},
    {{"pairwise-alltoall", "One partner a step; a step begins when the one before is over.", "",
      kPatternSize},
     Posting::kInSteps,
     [](ScheduleWriter* w, Team t, const Request& r) { PairwiseAllToAll(w, t, r.bytes); },
     0,
     false,
     PerRank},
    {{"nearest-2d", "Iterations of work and messages to the neighbours on a torus of 2 dimensions.",
      "", kPatternSize | kPatternSteps | kPatternCompute | kPatternGrid},
     Posting::kInSteps,
     [](ScheduleWriter* w, Team t, const Request& r) {
       NearestNeighbours(w, t.rank, r.grid, r.loop());
     },
     2,
     false,
     PerStep},
    {{"nearest-3d", "The same on a torus of 3 dimensions.", "",
      kPatternSize | kPatternSteps | kPatternCompute | kPatternGrid},
     Posting::kInSteps,
     [](ScheduleWriter* w, Team t, const Request& r) {
       NearestNeighbours(w, t.rank, r.grid, r.loop());
     },
     3,
     false,
     PerStep},
    {{"sweep-2d", "Wavefronts over a grid from its corners in turn: receive, work, send on.", "",
      kPatternSize | kPatternSteps | kPatternCompute | kPatternGrid},
     Posting::kInSteps,
     [](ScheduleWriter* w, Team t, const Request& r) { Sweeps(w, t.rank, r.grid, r.loop()); },
     2,
     false,
     PerStep},
    {{"sweep-3d", "The same over a grid of 3 dimensions.", "",
      kPatternSize | kPatternSteps | kPatternCompute | kPatternGrid},
     Posting::kInSteps,
     [](ScheduleWriter* w, Team t, const Request& r) { Sweeps(w, t.rank, r.grid, r.loop()); },
     3,
     false,
     PerStep},
    {{"bsp", "Supersteps: work, a message to each of the next `ways` ranks, a barrier.", "",
      kPatternSize | kPatternSteps | kPatternCompute | kPatternWays},
     Posting::kInSteps,
     [](ScheduleWriter* w, Team t, const Request& r) { Supersteps(w, t, r.loop()); },
     0,
     false,
     PerStep},
}};

constexpr std::array<SchedulePattern, kRows.size()> Listed() {
  std::array<SchedulePattern, kRows.size()> listed;
  for (std::size_t i = 0; i < listed.size(); ++i) listed[i] = kRows[i].pattern;
  return listed;
}
constexpr std::array kListed = Listed();

Result<Grid> ReadGrid(const Section& section, int ranks, int dimensions) {
  if (!section.Has("grid")) return NearestGrid(ranks, dimensions);
  const std::string text = section.Text("grid");
  Grid grid;
  std::size_t at = 0;
  for (int d = 0; d < dimensions; ++d) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    const Result<std::int64_t> extent = ParseInteger(std::string_view(text).substr(at, end - at));
    const bool last = d + 1 == dimensions;
    if (!extent.ok() || *extent < 1 || *extent > kMostRanks || last != (end == text.size())) {
      return InvalidInput("{}: '{}' is not {} whole numbers with an x between",
                          section.Where("grid"), Printable(text), dimensions);
    }
    grid.extent[static_cast<std::size_t>(d)] = static_cast<int>(*extent);
    at = end + 1;
  }
  const std::int64_t all = std::int64_t{grid.extent[0]} * grid.extent[1] * grid.extent[2];
  if (all != ranks) {
    return InvalidInput("{}: '{}' has room for {} ranks, the pattern has {}", section.Where("grid"),
                        Printable(text), all, ranks);
  }
  return grid;
}

Status CheckKeys(const Section& section, const SchedulePattern& pattern) {
  constexpr std::pair<unsigned, std::string_view> kNames[] = {
      {kPatternSize, "size"}, {kPatternRoot, "root"},   {kPatternSegment, "segment"},
      {kPatternWays, "ways"}, {kPatternSteps, "steps"}, {kPatternCompute, "compute"},
      {kPatternGrid, "grid"},
  };
  for (const auto& [key, name] : kNames) {
    if (!section.Has(name) || (pattern.keys & key) != 0) continue;
    return InvalidInput("{}: '{}' has none; leave it out", section.Where(name), pattern.name);
  }
  return {};
}

Result<const Row*> FindRow(const Section& section) {
  if (!section.Has("name")) {
    return InvalidInput("pattern.name is missing ('orrery list schedule-patterns' lists them)");
  }
  const std::string name = section.Text("name");
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    if (row.pattern.name == name) return &row;
    names.push_back(row.pattern.name);
  }
  return InvalidInput("{}: {}", section.Where("name"),
                      UnknownName("pattern", Printable(name), names));
}

Result<Request> ReadRequest(const Section& section, const Row& row) {
  ORRERY_RETURN_IF_ERROR(CheckKeys(section, row.pattern));
  if (!section.Has("ranks")) return InvalidInput("pattern.ranks is missing");
  Request r{.ranks = static_cast<int>(section.Integer("ranks")),
            .root = static_cast<int>(section.Integer("root")),
            .ways = static_cast<int>(section.Integer("ways")),
            .steps = static_cast<int>(section.Integer("steps")),
            .bytes = section.Integer("size"),
            .segment = section.Integer("segment")};
  if (r.root >= r.ranks) {
    return InvalidInput("{}: there are ranks 0 to {}", section.Where("root"), r.ranks - 1);
  }
  if (row.power_of_two && PowerBelow(r.ranks) != r.ranks) {
    return InvalidInput("{}: '{}' needs a power of two, not {} (rabenseifner takes any)",
                        section.Where("ranks"), row.pattern.name, r.ranks);
  }
  if ((row.pattern.keys & kPatternSteps) != 0 && r.ways >= r.ranks) {
    return InvalidInput("{}: a rank has {} others", section.Where("ways"), r.ranks - 1);
  }
  const std::int64_t compute = section.Integer("compute");
  if (compute % kNanosecond != 0) {
    return InvalidInput("{}: give whole nanoseconds, as GOAL does", section.Where("compute"));
  }
  r.compute_ns = compute / kNanosecond;
  if (row.dimensions > 0) {
    ORRERY_ASSIGN_OR_RETURN(r.grid, ReadGrid(section, r.ranks, row.dimensions));
  }
  if (row.operations(r) > kMostOperations / r.ranks) {
    return InvalidInput(
        "{}: some {} operations a rank for {} ranks; at most {} in all are possible",
        section.Where("ranks"), row.operations(r), r.ranks, kMostOperations);
  }
  return r;
}

}  // namespace

std::span<const SchedulePattern> SchedulePatterns() { return kListed; }

bool IsSchedulePattern(std::string_view name) {
  return std::ranges::any_of(kRows, [&](const Row& row) { return row.pattern.name == name; });
}

const OptionTable& PatternOptions() { return kTable; }

Result<Section> ParsePattern(std::string_view text, const std::string& name) {
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, formats::ParseYaml(text, name));
  const formats::Node* keys = nullptr;
  for (const formats::Field& field : document.root.fields) {
    if (field.key != kTable.path) {
      return InvalidInput("{}: {}; --cluster, --network and --set say where a pattern runs",
                          document.Where(field.value),
                          UnknownName("key", Printable(field.key), {{kTable.path}}));
    }
    keys = &field.value;
  }
  if (keys == nullptr) return InvalidInput("{}: no key 'pattern'", Printable(name));
  return Section::Read(document, *keys, kTable);
}

Result<graph::Graph> MakePattern(const Section& section) {
  ORRERY_ASSIGN_OR_RETURN(const Row* const row, FindRow(section));
  ORRERY_ASSIGN_OR_RETURN(const Request request, ReadRequest(section, *row));
  GoalImporter importer;
  for (int rank = 0; rank < request.ranks; ++rank) {
    formats::GoalBuilder builder(static_cast<std::uint32_t>(rank));
    builder.BeginRank();
    ScheduleWriter writer(&builder, row->posting);
    writer.Begin(0, ScheduleWriter::kNone);
    row->write(&writer, {rank, request.ranks}, request);
    ORRERY_ASSIGN_OR_RETURN(const formats::GoalSchedule part, builder.Take(false));
    importer.Add(part, static_cast<std::uint32_t>(request.ranks));
  }
  return importer.Take(std::string(row->pattern.name));
}

}  // namespace orrery::workload
