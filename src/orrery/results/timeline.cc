#include "orrery/results/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"

namespace orrery::results {
namespace {

// Field numbers of Perfetto's protocol (perfetto/protos/perfetto/trace), stable by its promise.
namespace trace {
constexpr std::uint32_t kPacket = 1;
}
namespace packet {
constexpr std::uint32_t kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kInternedData = 12,
                        kSequenceFlags = 13, kTrackDescriptor = 60;
constexpr std::uint64_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace descriptor {
constexpr std::uint32_t kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8;
constexpr std::uint32_t kPid = 1, kProcessName = 6;
constexpr std::uint32_t kUnitName = 6;  // of a counter
}  // namespace descriptor
namespace event {
constexpr std::uint32_t kCategoryIid = 3, kAnnotation = 4, kType = 9, kNameIid = 10,
                        kTrackUuid = 11, kDoubleValue = 44;
constexpr std::uint64_t kBegin = 1, kEnd = 2, kCounterValue = 4;
}  // namespace event
namespace interned {
constexpr std::uint32_t kCategories = 1, kNames = 2, kAnnotationNames = 3;
constexpr std::uint32_t kIid = 1, kText = 2;
}  // namespace interned
namespace annotation {
constexpr std::uint32_t kNameIid = 1, kInt = 4, kString = 6;
}

constexpr std::uint64_t kSequence = 1;
constexpr std::array<std::string_view, 3> kCategories = {"compute", "communication", "waiting"};
// Annotation names, interned once at the start: iid is the index + 1.
constexpr std::array<std::string_view, 9> kAnnotations = {"duration_ps", "iteration", "microbatch",
                                                          "layer",       "bytes",     "module",
                                                          "detail",      "waited_ps", "start_ps"};
enum Annotation : std::uint32_t {
  kDurationPs = 1,
  kIteration,
  kMicrobatch,
  kLayer,
  kBytes,
  kModule,
  kDetail,
  kWaitedPs,
  kStartPs
};
// Interned event names: the graph's come first, then texts of our own.
constexpr std::uint64_t kFirstText = std::uint64_t{1} << 33;

std::uint64_t ProcessTrack(RankId rank) { return (rank.index() + 1) << 32 | 0xFFFFFFFFu; }

// The network's: no rank has these.
constexpr std::uint64_t kNetworkTrack = 0xFF, kFirstCounter = 1, kMostCounters = 0xFE;

ProtoWriter Entry(std::uint64_t iid, std::string_view text) {
  ProtoWriter entry;
  entry.Varint(interned::kIid, iid);
  entry.Bytes(interned::kText, text);
  return entry;
}

}  // namespace

Result<std::vector<RankId>> ParseRanks(std::string_view text, std::size_t ranks) {
  std::vector<RankId> chosen;
  const auto number = [&](std::string_view part) -> Result<std::size_t> {
    Result<std::int64_t> value = ParseInteger(part);
    if (!value.ok()) {
      return InvalidInput("--timeline-ranks {}: {}; write for example 0,8,16-19", Printable(text),
                          value.status().message());
    }
    if (*value < 0 || static_cast<std::size_t>(*value) >= ranks) {
      return InvalidInput("--timeline-ranks {}: there is no rank {}; the run has ranks 0 to {}",
                          Printable(text), *value, ranks - 1);
    }
    return static_cast<std::size_t>(*value);
  };
  for (std::string_view left = text; !left.empty();) {
    const std::size_t comma = left.find(',');
    const std::string_view part = left.substr(0, comma);
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
    const std::size_t dash = part.find('-');
    ORRERY_ASSIGN_OR_RETURN(const std::size_t first, number(part.substr(0, dash)));
    std::size_t last = first;
    if (dash != std::string_view::npos) {
      ORRERY_ASSIGN_OR_RETURN(last, number(part.substr(dash + 1)));
      if (last < first) {
        return InvalidInput("--timeline-ranks {}: '{}' names no rank; write {}-{}", Printable(text),
                            Printable(part), last, first);
      }
    }
    for (std::size_t rank = first; rank <= last; ++rank) chosen.emplace_back(rank);
  }
  if (chosen.empty()) return InvalidInput("--timeline-ranks names no rank; write for example 0,8");
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

std::vector<RankId> DefaultRanks(const graph::Graph& graph) {
  std::map<std::pair<std::size_t, std::int32_t>, RankId> first;
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const graph::Binding& binding = graph.bindings[r];
    first.try_emplace({binding.job.index(), graph.programs[binding.program.index()].stage},
                      RankId(r));
  }
  std::vector<RankId> ranks;
  for (const auto& [stage, rank] : first) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Timeline::Timeline(FileWriter writer, const graph::Graph& graph, const std::vector<RankId>& ranks)
    : writer_(std::move(writer)),
      graph_(&graph),
      wanted_(graph.bindings.size()),
      interned_(graph.names().size()) {
  ProtoWriter cleared;
  for (std::size_t i = 0; i < kCategories.size(); ++i) {
    cleared.Message(interned::kCategories, Entry(i + 1, kCategories[i]));
  }
  for (std::size_t i = 0; i < kAnnotations.size(); ++i) {
    cleared.Message(interned::kAnnotationNames, Entry(i + 1, kAnnotations[i]));
  }
  ProtoWriter first;
  first.Varint(packet::kSequenceId, kSequence);
  first.Varint(packet::kSequenceFlags, packet::kStateCleared);
  first.Message(packet::kInternedData, cleared);
  Emit(first);
  for (const RankId rank : ranks) {
    wanted_[rank.index()] = true;
    Describe(rank);
  }
}

Result<Timeline> Timeline::Create(const std::string& path, const graph::Graph& graph,
                                  const std::vector<RankId>& ranks) {
  ORRERY_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(path));
  return Timeline(std::move(writer), graph, ranks);
}

void Timeline::Emit(const ProtoWriter& body) {
  ProtoWriter out;
  out.Message(trace::kPacket, body);
  if (failure_.ok()) failure_ = writer_.Write(out.bytes());
}

void Timeline::Describe(RankId rank) {
  const graph::Binding& binding = graph_->bindings[rank.index()];
  const graph::Program& program = graph_->programs[binding.program.index()];
  std::string name = fmt::format("rank {} ({})", rank.index(), Printable(program.name));
  if (graph_->jobs.size() > 1) {
    name += fmt::format(" of {}", Printable(graph_->jobs[binding.job.index()].name));
  }
  ProtoWriter process;
  process.Varint(descriptor::kPid, rank.index() + 1);
  process.Bytes(descriptor::kProcessName, name);
  ProtoWriter track;
  track.Varint(descriptor::kUuid, ProcessTrack(rank));
  track.Message(descriptor::kProcess, process);
  ProtoWriter out;
  out.Varint(packet::kSequenceId, kSequence);
  out.Message(packet::kTrackDescriptor, track);
  Emit(out);
}

// "communication 1 (tp)": with the roles of the groups that meet on it.
std::string Timeline::StreamName(RankId rank, std::uint32_t stream) const {
  std::string roles;
  const graph::Program& program = graph_->programs[graph_->bindings[rank.index()].program.index()];
  std::vector<bool> seen(graph_->blocks.size());
  for (const graph::Call& call : program.calls) {
    if (seen[call.block.index()]) continue;
    seen[call.block.index()] = true;
    for (const graph::Comm& comm : graph_->blocks[call.block.index()].comms) {
      if (comm.stream != stream) continue;
      const std::string_view role = graph::Name(comm.group);
      if (roles.find(role) == roles.npos) roles.append(roles.empty() ? "" : ", ").append(role);
    }
  }
  return fmt::format("communication {}{}", stream,
                     roles.empty() ? "" : fmt::format(" ({})", roles));
}

std::uint64_t Timeline::Track(RankId rank, std::uint32_t stream) {
  const std::uint64_t uuid = (rank.index() + 1) << 32 | stream;
  if (!tracks_.insert(uuid).second) return uuid;
  ProtoWriter track;
  track.Varint(descriptor::kUuid, uuid);
  track.Varint(descriptor::kParent, ProcessTrack(rank));
  const bool named = stream < graph_->streams.size() && graph_->streams[stream].name.valid();
  track.Bytes(descriptor::kName, named ? Printable(graph_->name(graph_->streams[stream].name))
                                 : stream == 0 ? std::string("compute")
                                               : StreamName(rank, stream));
  ProtoWriter out;
  out.Varint(packet::kSequenceId, kSequence);
  out.Message(packet::kTrackDescriptor, track);
  Emit(out);
  return uuid;
}

std::uint64_t Timeline::InternName(NameId name) {
  if (!name.valid()) return InternText("unnamed");
  const std::uint64_t iid = name.index() + 1;
  if (!interned_[name.index()]) {
    interned_[name.index()] = true;
    fresh_.Message(interned::kNames, Entry(iid, Printable(graph_->name(name))));
  }
  return iid;
}

std::uint64_t Timeline::InternText(std::string_view text) {
  const auto [at, added] = texts_.try_emplace(std::string(text), kFirstText + texts_.size());
  if (added) fresh_.Message(interned::kNames, Entry(at->second, Printable(text)));
  return at->second;
}

void Timeline::Annotate(ProtoWriter* event, std::uint32_t name, std::int64_t value) {
  ProtoWriter one;
  one.Varint(annotation::kNameIid, name);
  one.Varint(annotation::kInt, static_cast<std::uint64_t>(value));
  event->Message(event::kAnnotation, one);
}

void Timeline::Slice(std::uint64_t track, std::uint64_t name, std::uint64_t category, SimTime start,
                     SimTime end, const Interval* details) {
  // Perfetto ends the innermost slice: two that cross would change their ends.
  SimTime& last = ended_[track];
  if (start < last && last < end) start = last;
  last = std::max(last, end);
  ProtoWriter begin;
  begin.Varint(event::kType, event::kBegin);
  begin.Varint(event::kTrackUuid, track);
  begin.Varint(event::kNameIid, name);
  begin.Varint(event::kCategoryIid, category);
  Annotate(&begin, kDurationPs, end - start);
  Annotate(&begin, kStartPs, start);
  if (details != nullptr) {
    Annotate(&begin, kIteration, details->iteration);
    if (details->microbatch >= 0) Annotate(&begin, kMicrobatch, details->microbatch);
    if (details->layer >= 0) Annotate(&begin, kLayer, details->layer);
    if (details->bytes > 0) Annotate(&begin, kBytes, details->bytes);
    if (details->waited > 0) Annotate(&begin, kWaitedPs, details->waited);
    const auto text = [&](std::uint32_t annotation_name, std::string_view value) {
      ProtoWriter one;
      one.Varint(annotation::kNameIid, annotation_name);
      one.Bytes(annotation::kString, Printable(value));
      begin.Message(event::kAnnotation, one);
    };
    if (details->module.valid()) text(kModule, graph_->name(details->module));
    if (!details->detail.empty()) text(kDetail, details->detail);
  }
  const auto emit = [&](SimTime at, const ProtoWriter& body) {
    ProtoWriter out;
    out.Varint(packet::kTimestamp, static_cast<std::uint64_t>(at / kNanosecond));
    out.Varint(packet::kSequenceId, kSequence);
    out.Varint(packet::kSequenceFlags, packet::kNeedsState);
    if (!fresh_.empty()) out.Message(packet::kInternedData, fresh_);
    fresh_.Clear();
    out.Message(packet::kTrackEvent, body);
    Emit(out);
  };
  emit(start, begin);
  ProtoWriter stop;
  stop.Varint(event::kType, event::kEnd);
  stop.Varint(event::kTrackUuid, track);
  emit(end, stop);
}

void Timeline::Add(const Interval& interval) {
  const std::uint64_t track = Track(interval.rank, interval.stream);
  const bool communication = interval.stream != 0;
  SimTime start = interval.start;
  if (communication && interval.waited > 0) {
    start += interval.waited;
    SimTime& told = waited_until_[track];
    if (told != start)
      Slice(track, InternText("waiting for partners"), 3, interval.start, start, nullptr);
    told = start;
  }
  Slice(track, InternName(interval.name), communication ? 2 : 1, start, interval.end, &interval);
}

void Timeline::AddCounters(const UseOverTime& use) {
  if (use.empty()) return;
  ProtoWriter process;
  process.Varint(descriptor::kPid, wanted_.size() + 1);
  process.Bytes(descriptor::kProcessName, "network");
  ProtoWriter track;
  track.Varint(descriptor::kUuid, kNetworkTrack);
  track.Message(descriptor::kProcess, process);
  ProtoWriter out;
  out.Varint(packet::kSequenceId, kSequence);
  out.Message(packet::kTrackDescriptor, track);
  Emit(out);
  std::uint64_t next = kFirstCounter;
  for (const auto* rows : {&use.classes, &use.links}) {
    for (const UseOverTime::Row& row : *rows) {
      if (next <= kMostCounters) Counter(next++, row, use.step);
    }
  }
}

// A value holds until the next one.
void Timeline::Counter(std::uint64_t track, const UseOverTime::Row& row, SimTime step) {
  ProtoWriter unit;
  unit.Bytes(descriptor::kUnitName, "%");
  ProtoWriter description;
  description.Varint(descriptor::kUuid, track);
  description.Varint(descriptor::kParent, kNetworkTrack);
  description.Bytes(descriptor::kName, Printable(row.name));
  description.Message(descriptor::kCounter, unit);
  ProtoWriter out;
  out.Varint(packet::kSequenceId, kSequence);
  out.Message(packet::kTrackDescriptor, description);
  Emit(out);
  double before = -1;
  const auto value = [&](std::size_t i, double share) {
    if (share == before) return;
    before = share;
    ProtoWriter event;
    event.Varint(event::kType, event::kCounterValue);
    event.Varint(event::kTrackUuid, track);
    event.Double(event::kDoubleValue, 100 * share);
    ProtoWriter packet;
    packet.Varint(packet::kTimestamp,
                  static_cast<std::uint64_t>(static_cast<SimTime>(i) * step / kNanosecond));
    packet.Varint(packet::kSequenceId, kSequence);
    packet.Message(packet::kTrackEvent, event);
    Emit(packet);
  };
  for (std::size_t i = 0; i < row.utilisation.size(); ++i) value(i, row.utilisation[i]);
  value(row.utilisation.size(), 0);
}

Status Timeline::Finish() {
  ORRERY_RETURN_IF_ERROR(failure_);
  return writer_.Commit();
}

}  // namespace orrery::results
