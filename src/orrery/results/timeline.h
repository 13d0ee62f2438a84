// A timeline in Perfetto's trace format (open it at ui.perfetto.dev), written while the engine
// replays the selected ranks.
//
// A rank is a process with one track for its compute stream and one for each communicator's stream.
// A communication that waited for its partners (its interval begins when the rank came) shows the
// wait as a slice of its own before it; those of one call, which wait together, one for all.
// Jitter is added to a stretch as a whole, so that a kernel may begin before the end of the stretch
// before; it is drawn from there on.
// The network is a process of its own with one counter for each class of links and each worst link.
// Perfetto counts nanoseconds: slices are rounded down to these, the exact duration stands in
// `duration_ps`. Names are interned, so that a slice takes some 40 bytes. Memory: one bit for each
// name and track. Field numbers: docs/formats/timeline.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "orrery/base/file.h"
#include "orrery/base/status.h"
#include "orrery/engine/engine.h"
#include "orrery/graph/graph.h"
#include "orrery/results/proto_writer.h"
#include "orrery/results/result.h"

namespace orrery::results {

// "0,8,16-19" → ranks; each below `ranks`. Sorted, each once.
Result<std::vector<RankId>> ParseRanks(std::string_view text, std::size_t ranks);
// The lowest rank of every pipeline stage of every job.
std::vector<RankId> DefaultRanks(const graph::Graph& graph);

class Timeline final : public engine::Sink {
 public:
  // `graph` must outlive the writer.
  static Result<Timeline> Create(const std::string& path, const graph::Graph& graph,
                                 const std::vector<RankId>& ranks);

  bool wants(RankId rank) const override { return wanted_[rank.index()]; }
  void Add(const Interval& interval) override;
  // Counters of the network: the share of their capacity that classes of links and the worst links
  // carry, in percent.
  void AddCounters(const UseOverTime& use);
  // Ends the file; reports the first error of all writes.
  Status Finish();

 private:
  Timeline(FileWriter writer, const graph::Graph& graph, const std::vector<RankId>& ranks);
  void Describe(RankId rank);
  std::uint64_t Track(RankId rank, std::uint32_t stream);
  std::string StreamName(RankId rank, std::uint32_t stream) const;
  void Annotate(ProtoWriter* event, std::uint32_t name, std::int64_t value);
  void Slice(std::uint64_t track, std::uint64_t name, std::uint64_t category, SimTime start,
             SimTime end, const Interval* details);
  std::uint64_t InternName(NameId name);
  std::uint64_t InternText(std::string_view text);
  void Counter(std::uint64_t track, const UseOverTime::Row& row, SimTime step);
  void Emit(const ProtoWriter& body);

  FileWriter writer_;
  const graph::Graph* graph_;
  std::vector<bool> wanted_;
  std::vector<bool> interned_;  // by NameId
  std::unordered_map<std::string, std::uint64_t> texts_;
  std::unordered_set<std::uint64_t> tracks_;
  std::unordered_map<std::uint64_t, SimTime> waited_until_;  // by track: end of its last wait
  std::unordered_map<std::uint64_t, SimTime> ended_;         // by track: end of its last slice
  ProtoWriter fresh_;  // interned data that the next packet brings
  Status failure_;     // the first one; later writes are dropped
};

}  // namespace orrery::results
