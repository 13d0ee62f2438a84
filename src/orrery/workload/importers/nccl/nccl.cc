#include "orrery/workload/importers/nccl/nccl.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/time.h"

namespace orrery::workload {
namespace {

using formats::NcclCalls;
using graph::Collective;

// By ncclDataType_t; of bytes and 64 bits the type of that width.
constexpr graph::DType kTypes[] = {graph::DType::kFp8,  graph::DType::kFp8,   graph::DType::kFp32,
                                   graph::DType::kFp32, graph::DType::kInt64, graph::DType::kInt64,
                                   graph::DType::kFp16, graph::DType::kFp32,  graph::DType::kInt64,
                                   graph::DType::kBf16, graph::DType::kFp8,   graph::DType::kFp8};

struct Named {
  std::string_view name;
  Collective collective;
  bool of_each;  // the count is one member's: the buffer has as many as members
};
constexpr Named kNames[] = {{"AllReduce", Collective::kAllReduce, false},
                            {"AllGather", Collective::kAllGather, true},
                            {"ReduceScatter", Collective::kReduceScatter, true},
                            {"Broadcast", Collective::kBroadcast, false},
                            {"Reduce", Collective::kReduce, false},
                            {"AlltoAll", Collective::kAllToAll, true},
                            {"AllToAll", Collective::kAllToAll, true},
                            {"Gather", Collective::kGather, true},
                            {"Scatter", Collective::kScatter, true},
                            {"Send", Collective::kSend, false},
                            {"Recv", Collective::kRecv, false}};

class Importer {
 public:
  Importer(const NcclCalls& calls, const std::string& name) : in_(calls), name_(name) {}

  Result<NcclImport> Import() {
    if (in_.calls.empty()) {
      return InvalidInput(
          "'{}': no call of NCCL: take NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,"
          "COLL",
          Printable(name_));
    }
    ORRERY_RETURN_IF_ERROR(NumberRanks());
    ORRERY_RETURN_IF_ERROR(FindGroups());
    blocks_.resize(rank_of_.size());
    ORRERY_RETURN_IF_ERROR(AddCalls());
    ShareTimes();
    Bind();
    out_.assumed.push_back("communication back to back: the file does not say what runs between");
    return std::move(out_);
  }

 private:
  struct RankBlock {
    graph::Block block;
    std::map<std::uint32_t, std::uint32_t> slots;                     // by group
    std::map<std::string, std::uint32_t> streams;                     // by name
    std::map<std::uint32_t, std::vector<std::uint32_t>> collectives;  // by group: entries
    std::uint32_t batch = 0;
    std::pair<std::uint32_t, std::int64_t> last_message{~0u, 0};  // group, number
  };

  // By their places in the communicator that has most, which all must be in.
  Status NumberRanks() {
    std::int64_t most = 0;
    std::string world;
    std::set<std::string> processes;
    for (const NcclCalls::Communicator& c : in_.communicators) {
      processes.insert(c.process);
      if (c.ranks > most) world = c.id;
      most = std::max(most, c.ranks);
    }
    std::vector<std::string> by_rank(processes.size());
    bool complete = static_cast<std::size_t>(most) == processes.size();
    for (const NcclCalls::Communicator& c : in_.communicators) {
      if (c.id != world || !complete) continue;
      std::string& process = by_rank[static_cast<std::size_t>(c.rank)];
      complete = process.empty() || process == c.process;
      process = c.process;
    }
    complete = complete && std::find(by_rank.begin(), by_rank.end(), "") == by_rank.end();
    if (!complete) {
      return InvalidInput(
          "'{}': {} processes wrote, and the largest communicator has {} ranks: give the logs of "
          "all ranks, from their beginning",
          Printable(name_), processes.size(), most);
    }
    for (std::uint32_t r = 0; r < by_rank.size(); ++r) rank_of_[by_rank[r]] = r;
    return {};
  }

  Status FindGroups() {
    std::map<std::string, std::uint32_t> known;
    std::vector<std::vector<std::uint32_t>> members;
    constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
    for (const NcclCalls::Communicator& c : in_.communicators) {
      const auto [at, fresh] = known.try_emplace(c.id, static_cast<std::uint32_t>(members.size()));
      if (fresh) {
        if (static_cast<std::size_t>(c.ranks) > rank_of_.size()) {
          return InvalidInput("'{}': communicator {} has {} ranks, and {} processes wrote",
                              Printable(name_), Printable(c.id, 40), c.ranks, rank_of_.size());
        }
        members.emplace_back(static_cast<std::size_t>(c.ranks), kNobody);
      }
      group_.push_back(at->second);
      std::vector<std::uint32_t>& list = members[at->second];
      if (static_cast<std::size_t>(c.rank) >= list.size()) {
        return InvalidInput("'{}': communicator {} has {} ranks on one, {} on another",
                            Printable(name_), Printable(c.id, 40), list.size(), c.ranks);
      }
      list[static_cast<std::size_t>(c.rank)] = rank_of_.at(c.process);
    }
    for (std::size_t g = 0; g < members.size(); ++g) {
      const std::set<std::uint32_t> different(members[g].begin(), members[g].end());
      if (different.size() != members[g].size() || different.contains(kNobody)) {
        return InvalidInput(
            "'{}': a communicator of {} ranks was made by {} of them: give all logs",
            Printable(name_), members[g].size(), different.size());
      }
      std::vector<RankId> ids;
      for (const std::uint32_t m : members[g]) ids.emplace_back(m);
      out_.graph.groups.Add(graph::GroupSlot::kDp, ids);
    }
    return {};
  }

  Status AddCalls() {
    for (const NcclCalls::Call& call : in_.calls) {
      const NcclCalls::Communicator& c = in_.communicators[call.communicator];
      const auto named = std::find_if(std::begin(kNames), std::end(kNames),
                                      [&](const Named& n) { return n.name == call.name; });
      if (named == std::end(kNames)) {
        std::vector<std::string_view> valid;
        for (const Named& n : kNames) valid.push_back(n.name);
        return InvalidInput("{}:{}: {}", Printable(name_), call.line,
                            UnknownName("call of NCCL", Printable(call.name, 40), valid));
      }
      graph::Comm comm;
      comm.collective = named->collective;
      comm.bytes.value = call.bytes;
      if (named->of_each && __builtin_mul_overflow(call.bytes, c.ranks, &comm.bytes.value)) {
        return InvalidInput("{}:{}: {} bytes from each of {}", Printable(name_), call.line,
                            call.bytes, c.ranks);
      }
      if (call.type >= 0) comm.dtype = kTypes[call.type];
      if (call.took_ns >= 0) {
        comm.measured.value = std::min(call.took_ns, kMaxDuration / kNanosecond) * kNanosecond;
      }
      if (graph::IsPointToPoint(comm.collective)) {
        if (call.root >= c.ranks) {
          return InvalidInput("{}:{}: rank {} of a communicator of {}", Printable(name_), call.line,
                              call.root, c.ranks);
        }
        comm.peer = {graph::PeerKind::kMember, static_cast<std::int32_t>(call.root)};
      }
      Add(rank_of_.at(c.process), group_[call.communicator], call, comm);
    }
    return {};
  }
  void Add(std::uint32_t rank, std::uint32_t group, const NcclCalls::Call& call, graph::Comm comm) {
    RankBlock& own = blocks_[rank];
    const auto slot = own.slots.try_emplace(group, static_cast<std::uint32_t>(own.slots.size()));
    comm.group = static_cast<graph::GroupSlot>(graph::kGroupSlots + slot.first->second);
    // Without a stream's name each communicator has its own.
    const std::string stream = call.stream.empty() ? fmt::format("group {}", group) : call.stream;
    comm.stream =
        own.streams.try_emplace(stream, static_cast<std::uint32_t>(own.streams.size() + 1))
            .first->second;
    comm.after = graph::kNoStream;
    comm.blocking = false;
    if (graph::IsPointToPoint(comm.collective)) {
      // Messages of one group call come one after the other, with one number.
      if (own.last_message != std::make_pair(group, call.group)) ++own.batch;
      own.last_message = {group, call.group};
      comm.batch = own.batch;
    } else {
      own.last_message = {~0u, 0};
      own.collectives[group].push_back(static_cast<std::uint32_t>(own.block.comms.size()));
    }
    own.block.ops.push_back({.kind = graph::OpKind::kComm,
                             .index = static_cast<std::uint32_t>(own.block.comms.size()),
                             .name = out_.graph.Intern(call.name)});
    own.block.comms.push_back(comm);
  }

  // Who came last has waited least.
  void ShareTimes() {
    for (std::size_t g = 0; g < out_.graph.groups.size(); ++g) {
      const auto members = out_.graph.groups.members(GroupId(g));
      for (std::size_t k = 0;; ++k) {
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        std::vector<graph::Comm*> meeting;
        for (const RankId m : members) {
          RankBlock& own = blocks_[m.index()];
          const auto list = own.collectives.find(static_cast<std::uint32_t>(g));
          if (list == own.collectives.end() || k >= list->second.size()) continue;
          meeting.push_back(&own.block.comms[list->second[k]]);
          least = std::min(least, meeting.back()->measured.value);
        }
        if (meeting.empty()) break;
        for (graph::Comm* comm : meeting) comm->measured.value = least;
      }
    }
  }

  void Bind() {
    graph::Graph& graph = out_.graph;
    graph.jobs.push_back(
        {.name = name_, .ranks = static_cast<std::uint32_t>(blocks_.size()), .once = true});
    for (std::uint32_t r = 0; r < blocks_.size(); ++r) {
      RankBlock& own = blocks_[r];
      own.block.issue = graph::Issue::kFree;
      own.block.Seal();
      graph::Program program;
      program.name = fmt::format("rank {}", r);
      program.calls.push_back({.block = BlockId(graph.blocks.size())});
      graph::Binding b;
      b.program = ProgramId(std::size_t{r});
      b.job = JobId(std::size_t{0});
      b.logical_rank = r;
      b.more_groups = static_cast<std::uint32_t>(graph.more_groups.size());
      std::vector<GroupId> groups(own.slots.size());
      for (const auto& [group, slot] : own.slots) groups[slot] = GroupId(std::size_t{group});
      graph.more_groups.insert(graph.more_groups.end(), groups.begin(), groups.end());
      graph.blocks.push_back(std::move(own.block));
      graph.programs.push_back(std::move(program));
      graph.bindings.push_back(b);
    }
  }

  const NcclCalls& in_;
  const std::string& name_;
  NcclImport out_;
  std::map<std::string, std::uint32_t> rank_of_;
  std::vector<std::uint32_t> group_;  // by communicator
  std::vector<RankBlock> blocks_;
};

}  // namespace

Result<NcclImport> ImportNccl(const NcclCalls& calls, const std::string& name) {
  return Importer(calls, name).Import();
}

}  // namespace orrery::workload
