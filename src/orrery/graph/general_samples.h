// Graphs for tests, drawn at random, that use all that graph.h knows: several programs, jobs and
// streams, host-issued and free blocks, events, dependencies of both kinds, holds, columns, every
// kind of peer, any-source receives, group calls, generic and timed operations. Not part of the
// library.
//
// They always end. All programs go through the same phases; a phase meets other ranks in one
// collective or one exchange, and what an operation waits for belongs to an earlier phase or is
// earlier in its own. Who meets whom does not hang on time, but for any-source receives of one
// phase, which are all alike.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

struct GeneralShape {
  int jobs = 1;
  int programs = 2;               // of a job; the first has one rank
  int program_ranks = 3;          // of each other program
  int segments = 3;               // blocks of a program
  int phases = 6;                 // of a block
  bool host = true, free = true;  // who may issue blocks
};

class GeneralSampleBuilder {
 public:
  GeneralSampleBuilder(std::uint64_t seed, const GeneralShape& shape) : rng_(seed), shape_(shape) {}

  Graph Build() {
    for (int s = 0; s < 14; ++s) {
      graph_.streams.push_back(
          {graph_.Intern("stream " + std::to_string(s)),
           s < kUnordered ? StreamOrder::kInOrder : static_cast<StreamOrder>(1 + rng_.Below(3))});
    }
    graph_.routings.push_back({.layer = graph_.Intern("experts"),
                               .tokens = 4096,
                               .experts = 8,
                               .top_k = 2,
                               .token_bytes = 8192});
    for (int j = 0; j < shape_.jobs; ++j) AddJob();
    for (Block& block : graph_.blocks) block.Seal();
    return std::move(graph_);
  }

 private:
  // Streams 0 to 3 are for kernels, 4 to 9 for communications, the others serve in other orders.
  static constexpr int kUnordered = 10;
  static constexpr std::int32_t kEvents = 8;
  enum class Phase { kLocal, kCollective, kOffsets, kColumns, kToFirst };

  std::uint64_t Below(int n) { return rng_.Below(static_cast<std::uint64_t>(n)); }
  bool Chance(int one_in) { return Below(one_in) == 0; }
  std::int64_t Size() { return static_cast<std::int64_t>(rng_.Below(1u << rng_.Below(20))); }
  std::int64_t Time() { return 1 + static_cast<std::int64_t>(rng_.Below(1u << 30)); }

  void AddJob() {
    const std::size_t first = graph_.bindings.size();
    first_program_ = graph_.programs.size();
    const auto programs = static_cast<std::size_t>(shape_.programs);
    ranks_.assign(programs, {});
    std::vector<RankId> all;
    for (std::size_t p = 0; p < programs; ++p) {
      const int n = p == 0 ? 1 : shape_.program_ranks;
      for (int i = 0; i < n; ++i) {
        all.push_back(RankId(first + all.size()));
        ranks_[p].push_back(all.back());
      }
      Program& program = graph_.programs.emplace_back();
      program.name = "program " + std::to_string(graph_.programs.size() - 1);
      program.stage = static_cast<std::int32_t>(p);
      program.events = kEvents + 1;
    }
    Bind(all);
    for (int s = 0; s < shape_.segments; ++s) AddSegment(all.size());
    graph_.jobs.push_back({"job " + std::to_string(graph_.jobs.size()),
                           static_cast<std::uint32_t>(all.size()), 1 << 20, 1e15, Chance(2)});
  }

  // Everybody is in the model's group; slot 0 behind the roles is the group of the program's ranks,
  // slot 1 that of all ranks backwards.
  void Bind(const std::vector<RankId>& all) {
    const GroupId model = graph_.groups.Add(GroupSlot::kModel, all);
    const std::vector<RankId> back(all.rbegin(), all.rend());
    const GroupId backwards = graph_.groups.Add(GroupSlot::kDp, back);
    for (std::size_t p = 0; p < ranks_.size(); ++p) {
      const GroupId own = graph_.groups.Add(GroupSlot::kTp, ranks_[p]);
      const auto more = static_cast<std::uint32_t>(graph_.more_groups.size());
      graph_.more_groups.insert(graph_.more_groups.end(), {own, backwards});
      for (std::size_t i = 0; i < ranks_[p].size(); ++i) {
        Binding& b = graph_.bindings.emplace_back();
        b.program = ProgramId(first_program_ + p);
        b.job = JobId(graph_.jobs.size());
        b.logical_rank = ranks_[p][i].value - all[0].value;
        b.groups[static_cast<std::size_t>(GroupSlot::kModel)] = model;
        const std::size_t n = all.size(), r = b.logical_rank;
        b.peers[static_cast<std::size_t>(PeerSlot::kNext)] = all[(r + 1) % n];
        b.peers[static_cast<std::size_t>(PeerSlot::kPrevious)] = all[(r + n - 1) % n];
        b.more_groups = more;
        b.row = static_cast<std::uint32_t>(i);
      }
    }
  }

  // One block a program, called equally often.
  void AddSegment(std::size_t ranks) {
    std::vector<std::size_t> blocks;
    const auto repeat = static_cast<std::uint16_t>(1 + Below(2));
    for (std::size_t p = 0; p < ranks_.size(); ++p) {
      blocks.push_back(graph_.blocks.size());
      Block& b = graph_.blocks.emplace_back();
      b.name = graph_.Intern("segment " + std::to_string(blocks.back()));
      b.pass = static_cast<Pass>(Below(static_cast<int>(kLastPass) + 1));
      b.issue = !shape_.free || (shape_.host && Chance(2)) ? Issue::kHost : Issue::kFree;
      b.holds = {{0, Hold::kNone}, {Hold::kNone, 0}, {1, 1}};
      b.dep_begin = {0};
      if (Chance(3)) b.assumed.push_back({Assumption::kWholeBlock, graph_.Intern("drawn")});
      Call call;
      call.block = BlockId(blocks.back());
      call.event = kEvents;
      call.microbatch = static_cast<std::int32_t>(Below(4)) - 1;
      call.repeat = repeat;
      call.first_layer = 8;
      graph_.programs[first_program_ + p].calls.push_back(call);
    }
    recorded_.assign(ranks_.size(), {});
    for (int i = 0; i < shape_.phases; ++i) AddPhase(ranks, blocks);
    for (std::size_t p = 0; p < blocks.size(); ++p) {
      Block& b = graph_.blocks[blocks[p]];
      if (b.issue == Issue::kFree) MoveOperations(&b);
      if (b.deps.empty()) b.dep_begin.clear();
      if (b.ops.empty()) continue;
      if (Chance(3)) b.routed.push_back({0, 0});
      if (Chance(3)) b.assumed.push_back({0, graph_.Intern("guessed")});
    }
  }

  void AddPhase(std::size_t ranks, const std::vector<std::size_t>& blocks) {
    const auto phase = static_cast<Phase>(Below(5));
    const std::int64_t bytes = Size();
    const bool everybody = Chance(2), any = Chance(2), tripled = Chance(2);
    const auto step = static_cast<std::int32_t>(1 + Below(static_cast<int>(ranks)));
    const auto collective = static_cast<Collective>(
        std::array{Collective::kAllReduce, Collective::kAllGather, Collective::kReduce,
                   Collective::kBarrier, Collective::kAllToAll}[Below(5)]);
    const std::vector<std::int64_t> next = Cycle(ranks);
    ++phase_;
    for (std::size_t p = 0; p < blocks.size(); ++p) {
      Block& b = graph_.blocks[blocks[p]];
      const std::size_t members = everybody ? ranks : ranks_[p].size();
      for (std::uint64_t i = Below(4); i > 0; --i) AddLocal(p, &b);
      switch (phase) {
        case Phase::kLocal:
          break;
        case Phase::kCollective:
          AddComm(p, &b,
                  {.collective = collective,
                   .group = everybody ? GroupSlot::kModel : Behind(1),
                   .stream = everybody ? 7u : 8u,
                   .dtype = DType::kFp32,
                   .bytes = {bytes, tripled ? Equal(p, 3) : -1},
                   .reduce = ReduceOp::kMax});
          break;
        case Phase::kOffsets:
          if (static_cast<std::size_t>(step) % members == 0) break;  // nobody sends to themselves
          Exchange(p, &b, {PeerKind::kOffset, step}, {PeerKind::kOffset, -step}, bytes,
                   everybody ? GroupSlot::kModel : Behind(0));
          break;
        case Phase::kColumns:
          Exchange(p, &b, {PeerKind::kColumn, Peers(p, next, false)},
                   {PeerKind::kColumn, Peers(p, next, true)}, bytes, GroupSlot::kPp);
          break;
        case Phase::kToFirst:
          ToFirst(p, &b, ranks, any, bytes);
          break;
      }
    }
  }

  // Each rank's next one on a way through all of them.
  std::vector<std::int64_t> Cycle(std::size_t ranks) {
    std::vector<std::size_t> order(ranks);
    for (std::size_t r = 0; r < ranks; ++r) order[r] = r;
    for (std::size_t r = ranks; r > 1; --r) std::swap(order[r - 1], order[rng_.Below(r)]);
    std::vector<std::int64_t> next(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      next[order[r]] = static_cast<std::int64_t>(order[(r + 1) % ranks]);
    }
    return next;
  }

  static GroupSlot Behind(std::uint32_t i) {
    return static_cast<GroupSlot>(static_cast<std::uint32_t>(kGroupSlots) + i);
  }

  // A column of one number, the same in all rows of all programs.
  std::int32_t Equal(std::size_t p, std::int64_t number) {
    return Column(p, std::vector<std::int64_t>(ranks_[p].size(), number));
  }
  // To whom, or from whom, each rank of the program sends.
  std::int32_t Peers(std::size_t p, const std::vector<std::int64_t>& next, bool from) {
    std::vector<std::int64_t> column;
    for (const RankId r : ranks_[p]) {
      const std::uint32_t self = graph_.bindings[r.index()].logical_rank;
      const auto sender = std::find(next.begin(), next.end(), std::int64_t{self}) - next.begin();
      column.push_back(from ? sender : next[self]);
    }
    return Column(p, column);
  }
  std::int32_t Column(std::size_t p, const std::vector<std::int64_t>& numbers) {
    return static_cast<std::int32_t>(graph_.programs[first_program_ + p].columns.Add(numbers));
  }

  // A send and a receive in one group call, or apart where nobody issues.
  void Exchange(std::size_t p, Block* b, Peer to, Peer from, std::int64_t bytes, GroupSlot group) {
    const bool together = b->issue == Issue::kHost || Chance(2);
    AddMessage(p, b, Collective::kSend, to, bytes, group, together);
    AddMessage(p, b, Collective::kRecv, from, bytes, group, together);
  }
  // All others send to the first rank, which takes them as they come or one by one.
  void ToFirst(std::size_t p, Block* b, std::size_t ranks, bool any, std::int64_t bytes) {
    if (p > 0) {
      AddMessage(p, b, Collective::kSend, {PeerKind::kMember, 0}, bytes, GroupSlot::kModel, false);
      return;
    }
    for (std::size_t r = 1; r < ranks; ++r) {
      const Peer from(any ? PeerKind::kAny : PeerKind::kMember,
                      any ? 0 : static_cast<std::int32_t>(r));
      AddMessage(p, b, Collective::kRecv, from, bytes, GroupSlot::kModel, true);
    }
  }
  void AddMessage(std::size_t p, Block* b, Collective collective, Peer peer, std::int64_t bytes,
                  GroupSlot group, bool together) {
    const bool streamless = b->issue == Issue::kFree && !together;
    AddComm(p, b,
            {.collective = collective,
             .group = group,
             .peer = peer,
             .stream = streamless ? kNoStream : 4 + phase_ % 3,
             .tag = static_cast<std::int32_t>(phase_),
             .batch = together ? phase_ : 0,
             .bytes = {bytes, -1}});
  }

  void AddComm(std::size_t p, Block* b, Comm comm) {
    comm.after = static_cast<std::uint32_t>(Below(4));
    comm.blocking = b->issue == Issue::kHost && comm.batch == 0 && Chance(2);
    if (!comm.blocking && Chance(2)) {
      comm.event = Chance(4) ? kCallEvent : static_cast<std::int32_t>(Below(kEvents));
    }
    b->comms.push_back(comm);
    Op op = New(OpKind::kComm, b->comms.size() - 1, "communication");
    const bool message = IsPointToPoint(comm.collective);
    if (message && Chance(3)) op.hold = static_cast<std::uint16_t>(1 + Below(3));
    Push(op, b, comm.batch == 0);
    if (comm.event != kNoEvent) recorded_[p].push_back(comm.event);
  }

  Op New(OpKind kind, std::size_t index, const std::string& name) {
    Op op;
    op.kind = kind;
    op.index = static_cast<std::uint32_t>(index);
    op.name = graph_.Intern(name);
    if (Chance(3)) op.module = graph_.Intern("module." + std::to_string(Below(3)));
    return op;
  }
  static bool Lasts(const Op& op) {
    return op.kind == OpKind::kKernel || op.kind == OpKind::kTimed || op.kind == OpKind::kComm;
  }
  // A message of this phase may not end before its partner's has begun.
  bool MayLead(const Block& b, const Op& op) const {
    if (op.kind != OpKind::kComm) return Lasts(op);
    const Comm& comm = b.comms[op.index];
    return !IsPointToPoint(comm.collective) || comm.tag != static_cast<std::int32_t>(phase_);
  }
  void Push(const Op& op, Block* b, bool may_depend) {
    const auto n = static_cast<int>(b->ops.size());
    b->ops.push_back(op);
    for (std::uint64_t i = may_depend && n > 0 && Lasts(op) ? Below(4) : 0; i > 0; --i) {
      Dep dep;
      dep.op = static_cast<std::uint32_t>(Below(n)) & 0x7fffffff;
      dep.on_start = Chance(3) ? 1 : 0;
      if (MayLead(*b, b->ops[dep.op])) b->deps.push_back(dep);
    }
    b->dep_begin.push_back(static_cast<std::uint32_t>(b->deps.size()));
  }

  Kernel AnyKernel() {
    if (Chance(3)) return Gemm{.m = 64 + Size(), .n = 128, .k = 256};
    if (Chance(3)) return MemoryBound{.rows = 16, .cols = 64, .bytes_read = Size()};
    return Generic{Size(), Size(), Size(), DType::kFp16, Pass::kBackward};
  }

  // Something that meets nobody.
  void AddLocal(std::size_t p, Block* b) {
    const bool host = b->issue == Issue::kHost;
    const std::vector<std::int32_t>& recorded = recorded_[p];
    Op op;
    switch (Below(7)) {
      case 0:
        b->kernels.push_back(AnyKernel());
        op = New(OpKind::kKernel, Below(static_cast<int>(b->kernels.size())), "kernel");
        op.stream = static_cast<std::uint32_t>(Below(4));
        break;
      case 1:
      case 2: {
        Quantity time{Time()};
        if (Chance(2)) {
          std::vector<std::int64_t> column(ranks_[p].size());
          for (std::int64_t& ps : column) ps = Time();
          time = {1 + static_cast<std::int64_t>(Below(3)), Column(p, column)};
        }
        b->times.push_back(time);
        op = New(OpKind::kTimed, b->times.size() - 1, "traced");
        op.stream = static_cast<std::uint32_t>(Chance(2) ? Below(4) : 10 + Below(4));
        if (!host && Chance(2)) op.stream = kNoStream;
        op.priority = static_cast<std::int32_t>(Below(5)) - 2;
        if (Chance(2)) op.hold = static_cast<std::uint16_t>(1 + Below(3));
        break;
      }
      case 3:
        op = New(OpKind::kRecord, 0, "record");
        op.event = Chance(4) ? kCallEvent : static_cast<std::int32_t>(Below(kEvents));
        op.stream = static_cast<std::uint32_t>(Below(4));
        recorded_[p].push_back(op.event);
        break;
      case 4:
        if (recorded.empty()) return;
        op = New(OpKind::kWait, 0, "wait");
        op.event = recorded[Below(static_cast<int>(recorded.size()))];
        op.stream = host && Chance(3) ? kHostStream : static_cast<std::uint32_t>(Below(4));
        break;
      case 5:
        if (!host) return;
        if (Chance(2)) {
          op = New(OpKind::kHostSync, 0, "synchronise");
          op.stream = static_cast<std::uint32_t>(Below(4));
        } else {
          b->host_ps.push_back(Time());
          op = New(OpKind::kHost, b->host_ps.size() - 1, "host");
        }
        break;
      default: {
        const auto id = static_cast<std::uint32_t>(b->buffers.size());
        b->buffers.push_back({.id = id,
                              .lifetime = Lifetime::kCall,
                              .bytes = Size(),
                              .name = graph_.Intern("buffer"),
                              .stream = static_cast<std::uint32_t>(Below(4))});
        Push(New(OpKind::kAlloc, id, ""), b, false);
        op = New(OpKind::kFree, id, "");
        if (!recorded.empty()) op.event = recorded.back();
        Push(op, b, false);
        return;
      }
    }
    Push(op, b, true);
  }

  // Operations on no stream stand anywhere among the others: dependencies point both ways.
  void MoveOperations(Block* b) {
    const std::size_t n = b->ops.size();
    std::vector<std::size_t> order(n), place(n);  // old numbers in their new order; the inverse
    for (std::size_t i = 0; i < n; ++i) order[i] = i;
    for (std::size_t i = 0; i < n; ++i) {
      if (b->ops[i].kind != OpKind::kTimed || b->ops[i].stream != kNoStream) continue;
      const auto at = std::find(order.begin(), order.end(), i);
      order.erase(at);
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(rng_.Below(n)), i);
    }
    for (std::size_t i = 0; i < n; ++i) place[order[i]] = i;
    Block moved = *b;
    moved.ops.clear();
    moved.deps.clear();
    moved.dep_begin = {0};
    for (const std::size_t old : order) {
      moved.ops.push_back(b->ops[old]);
      for (Dep dep : b->deps_of(old)) {
        dep.op = static_cast<std::uint32_t>(place[dep.op]) & 0x7fffffff;
        moved.deps.push_back(dep);
      }
      moved.dep_begin.push_back(static_cast<std::uint32_t>(moved.deps.size()));
    }
    *b = std::move(moved);
  }

  CounterRng rng_;
  GeneralShape shape_;
  Graph graph_;
  std::size_t first_program_ = 0;
  std::vector<std::vector<RankId>> ranks_;           // by program of the job
  std::vector<std::vector<std::int32_t>> recorded_;  // events of the segment so far, by program
  std::uint32_t phase_ = 0;
};

inline Graph GeneralGraph(std::uint64_t seed, const GeneralShape& shape = {}) {
  return GeneralSampleBuilder(seed, shape).Build();
}

// A shape drawn from the seed: 2 to 18 ranks.
inline GeneralShape AnyGeneralShape(std::uint64_t seed) {
  CounterRng rng(seed ^ 0xa5a5);
  GeneralShape shape;
  shape.jobs = static_cast<int>(1 + rng.Below(2));
  shape.programs = static_cast<int>(2 + rng.Below(2));
  shape.program_ranks = static_cast<int>(1 + rng.Below(4));
  shape.segments = static_cast<int>(1 + rng.Below(3));
  shape.phases = static_cast<int>(1 + rng.Below(8));
  const std::uint64_t issue = rng.Below(4);
  shape.host = issue != 0;
  shape.free = issue != 1;
  return shape;
}

}  // namespace orrery::graph
