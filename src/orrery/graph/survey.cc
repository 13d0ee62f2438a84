#include "orrery/graph/survey.h"

#include <algorithm>
#include <unordered_map>

#include "orrery/graph/fields.h"
#include "orrery/graph/straight.h"
#include "orrery/graph/verify_facts.h"

namespace orrery::graph {
namespace {

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

// How far a chain has come: by operations, and by known time.
struct Reach {
  std::int64_t operations = 0, ps = 0;
  void After(const Reach& other) {
    operations = std::max(operations, other.operations);
    ps = std::max(ps, other.ps);
  }
};

class ChainFinder {
 public:
  ChainFinder(const Graph& graph, const Program& program) : graph_(graph), program_(program) {
    for (std::size_t c = 0; c < program.columns.size(); ++c) {
      std::int64_t most = 0;
      for (std::size_t r = 0; r < program.columns.rows(); ++r) {
        most = std::max(most, program.columns.at(c, r));
      }
      most_.push_back(most);
    }
  }

  // Goes on until `steps` is used up; false then.
  bool Run(std::int64_t* steps, Reach* longest) {
    for (const Call& call : program_.calls) {
      const Block& block = graph_.blocks[call.block.index()];
      for (int i = 0; i < call.repeat; ++i) {
        *steps -= static_cast<std::int64_t>(block.ops.size());
        if (*steps < 0) return false;
        RunCall(call, block);
      }
    }
    *longest = longest_;
    return true;
  }

 private:
  void RunCall(const Call& call, const Block& block) {
    starts_.assign(block.deps.empty() ? 0 : block.ops.size(), {});
    ends_ = starts_;
    std::vector<std::uint32_t>& order = orders_[call.block];
    if (!block.deps.empty() && order.empty()) order = verify::RunnableOrder(graph_, block);
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      Step(call, block, block.deps.empty() ? i : order[i]);
    }
  }

  Reach* StreamOf(std::uint32_t stream) {
    if (stream == kNoStream || graph_.order_of(stream) != StreamOrder::kInOrder) return nullptr;
    return stream == kHostStream ? &host_ : &streams_[stream];
  }
  Reach* EventOf(const Call& call, std::int32_t event) {
    const std::int32_t e = event == kCallEvent ? call.event : event;
    return e < 0 ? nullptr : &events_[e];
  }

  void Step(const Call& call, const Block& block, std::size_t o) {
    const Op& op = block.ops[o];
    const bool issued = block.issue == Issue::kHost;
    Reach* stream = op.kind == OpKind::kHost ? &host_ : StreamOf(block.stream_of(op));
    Reach at;
    if (issued) at.After(host_);
    if (stream != nullptr) at.After(*stream);
    for (const Dep& dep : block.deps_of(o))
      at.After(dep.on_start ? starts_[dep.op] : ends_[dep.op]);
    if (!starts_.empty()) starts_[o] = at;
    switch (op.kind) {
      case OpKind::kKernel:
      case OpKind::kHost:
      case OpKind::kTimed:
        ++at.operations;
        at.ps += TimeOf(block, op);
        break;
      case OpKind::kComm:
        RunComm(call, block.comms[op.index], issued, &at);
        break;
      case OpKind::kWait:
        if (const Reach* event = EventOf(call, op.event)) at.After(*event);
        break;
      case OpKind::kRecord:
        if (Reach* event = EventOf(call, op.event)) *event = at;
        break;
      case OpKind::kHostSync:
        host_.After(at);
        break;
      case OpKind::kHostPace:
        host_.After(paced_);
        paced_ = streams_[kComputeStream];
        break;
      case OpKind::kAlloc:
      case OpKind::kFree:
        stream = nullptr;
        break;
    }
    if (stream != nullptr) *stream = at;
    if (!ends_.empty()) ends_[o] = at;
    longest_.After(at);
  }

  void RunComm(const Call& call, const Comm& comm, bool issued, Reach* at) {
    Reach* after = issued ? StreamOf(comm.after) : nullptr;
    if (after != nullptr) at->After(*after);
    ++at->operations;
    if (after != nullptr && comm.blocking) after->After(*at);
    if (Reach* event = EventOf(call, comm.event)) *event = *at;
  }

  std::int64_t TimeOf(const Block& block, const Op& op) const {
    if (op.kind == OpKind::kHost) return block.host_ps[op.index];
    if (op.kind == OpKind::kTimed) {
      const Quantity& q = block.times[op.index];
      return q.slot < 0 ? q.value : q.value * most_[static_cast<std::size_t>(q.slot)];
    }
    const auto* timed = std::get_if<Timed>(&block.kernels[op.index]);
    return timed == nullptr ? 0 : timed->duration_ps;
  }

  const Graph& graph_;
  const Program& program_;
  std::vector<std::int64_t> most_;  // by column
  std::unordered_map<BlockId, std::vector<std::uint32_t>> orders_;
  std::unordered_map<std::uint32_t, Reach> streams_;
  std::unordered_map<std::int32_t, Reach> events_;
  std::vector<Reach> starts_, ends_;  // of the call, where operations depend on each other
  Reach host_, paced_, longest_;
};

void FindChain(const Graph& graph, Survey::Chain* chain) {
  std::int64_t steps = Survey::kMostSteps;
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    Reach reach;
    if (!ChainFinder(graph, graph.programs[p]).Run(&steps, &reach)) {
      *chain = {.complete = false};
      return;
    }
    if (reach.operations > chain->operations) {
      chain->operations = reach.operations;
      chain->longest = ProgramId(p);
    }
    if (reach.ps > chain->known_ps) {
      chain->known_ps = reach.ps;
      chain->slowest = ProgramId(p);
    }
  }
}

}  // namespace

Survey SurveyOf(const Graph& graph) {
  Survey survey;
  Counter(graph, &survey).Count();
  FindChain(graph, &survey.chain);
  for (const Block& block : graph.blocks) survey.assumptions += block.assumed.size();
  for (const Program& program : graph.programs) {
    survey.column_numbers += std::uint64_t{program.columns.size()} * program.columns.rows();
    survey.column_bytes += program.columns.codes().size();
  }
  survey.why_not_straight = WhyNotStraight(graph);
  return survey;
}

}  // namespace orrery::graph
