#include "orrery/graph/survey.h"

#include <algorithm>
#include <unordered_map>

#include "orrery/graph/forms/fields.h"
#include "orrery/graph/verify/straight.h"

namespace orrery::graph {

std::string KindOf(const Block& block, const Op& op) {
  switch (op.kind) {
    case OpKind::kKernel:
      return std::string(fields::kKernelNames[block.kernels[op.index].index()]);
    case OpKind::kComm:
      return std::string(Name(block.comms[op.index].collective));
    case OpKind::kWait:
      return op.stream == kHostStream ? "wait of the host" : "wait";
    case OpKind::kHost:
      return "host work";
    case OpKind::kHostSync:
      return "host-sync";
    case OpKind::kAlloc:
      return "alloc";
    case OpKind::kFree:
      return "free";
    case OpKind::kHostPace:
      return "host-pace";
    case OpKind::kTimed:
      return "known time";
    case OpKind::kRecord:
      return "record";
  }
  return "?";
}

namespace {

bool Lasts(OpKind kind) {
  return kind == OpKind::kKernel || kind == OpKind::kComm || kind == OpKind::kHost ||
         kind == OpKind::kTimed;
}

// Counts what the ranks of each program do.
class Counter {
 public:
  Counter(const Graph& graph, Survey* survey)
      : graph_(graph),
        survey_(*survey),
        ranks_(graph.programs.size()),
        by_number_(graph.jobs.size()) {
    for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
      const Binding& b = graph.bindings[r];
      ranks_[b.program.index()].push_back(RankId(r));
      std::vector<RankId>& job = by_number_[b.job.index()];
      if (job.size() <= b.logical_rank) job.resize(b.logical_rank + std::size_t{1});
      job[b.logical_rank] = RankId(r);
    }
    for (std::size_t g = 0; g < graph.groups.size(); ++g) {
      const auto members = graph.groups.members(GroupId(g));
      for (std::size_t i = 0; i < members.size(); ++i) {
        position_[Key(GroupId(g), members[i])] = i;
      }
    }
  }

  void Count() {
    for (std::size_t p = 0; p < graph_.programs.size(); ++p) {
      std::map<BlockId, std::int64_t> times;
      for (const Call& call : graph_.programs[p].calls) times[call.block] += call.repeat;
      for (const auto& [block, n] : times) CountBlock(p, graph_.blocks[block.index()], n);
    }
  }

 private:
  static std::uint64_t Key(GroupId group, RankId rank) {
    return std::uint64_t{group.value} << 32 | rank.value;
  }

  void CountBlock(std::size_t program, const Block& block, std::int64_t times) {
    const auto ranks = static_cast<std::int64_t>(ranks_[program].size());
    for (const Op& op : block.ops) {
      survey_.kinds[KindOf(block, op)] += times * ranks;
      if (Lasts(op.kind)) survey_.operations += times * ranks;
      if (op.kind == OpKind::kComm) CountComm(program, block.comms[op.index], times);
    }
  }

  void CountComm(std::size_t program, const Comm& comm, std::int64_t times) {
    const bool send = comm.collective == Collective::kSend;
    const auto slot = static_cast<std::size_t>(comm.group);
    const std::vector<RankId>& ranks = ranks_[program];
    if (!send && comm.bytes.slot < 0 && slot < kGroupSlots) {  // alike for all ranks
      const auto n = static_cast<std::int64_t>(ranks.size());
      Survey::Traffic& traffic = survey_.traffic[{comm.group, comm.collective}];
      traffic.count += times * n;
      traffic.bytes += times * n * comm.bytes.value;
      return;
    }
    for (const RankId rank : ranks) {
      const Binding& b = graph_.bindings[rank.index()];
      const GroupSlot role =
          slot < kGroupSlots ? comm.group : graph_.groups.slot(graph_.group(b, comm.group));
      const std::int64_t bytes = times * graph_.number(b, comm.bytes);
      Survey::Traffic& traffic = survey_.traffic[{role, comm.collective}];
      traffic.count += times;
      traffic.bytes += bytes;
      if (send) survey_.messages[{rank.value, PeerOf(rank, comm).value}] += bytes;
    }
  }

  RankId PeerOf(RankId rank, const Comm& comm) const {
    const Binding& b = graph_.bindings[rank.index()];
    switch (comm.peer.kind) {
      case PeerKind::kSlot:
        return b.peers[static_cast<std::size_t>(comm.peer.value)];
      case PeerKind::kColumn: {
        const auto number = static_cast<std::size_t>(graph_.number(b, {1, comm.peer.value}));
        const std::vector<RankId>& job = by_number_[b.job.index()];
        return number < job.size() ? job[number] : RankId();
      }
      case PeerKind::kMember:
      case PeerKind::kOffset:
      case PeerKind::kAny:
        break;
    }
    const GroupId group = graph_.group(b, comm.group);
    const auto members = graph_.groups.members(group);
    auto at = std::int64_t{comm.peer.value};
    if (comm.peer.kind == PeerKind::kOffset) {
      const auto n = static_cast<std::int64_t>(members.size());
      at = (static_cast<std::int64_t>(position_.at(Key(group, rank))) + at % n + n) % n;
    }
    return members[static_cast<std::size_t>(at)];
  }

  const Graph& graph_;
  Survey& survey_;
  std::vector<std::vector<RankId>> ranks_;      // by program
  std::vector<std::vector<RankId>> by_number_;  // by job and number in it
  std::unordered_map<std::uint64_t, std::size_t> position_;
};

}  // namespace

Survey SurveyOf(const Graph& graph) {
  Survey survey;
  Counter(graph, &survey).Count();
  for (const Block& block : graph.blocks) survey.assumptions += block.assumed.size();
  for (const Program& program : graph.programs) {
    survey.column_numbers += std::uint64_t{program.columns.size()} * program.columns.rows();
    survey.column_bytes += program.columns.codes().size();
  }
  survey.why_not_straight = WhyNotStraight(graph);
  return survey;
}

}  // namespace orrery::graph
