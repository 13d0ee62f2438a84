#include "orrery/job/goal_writer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "orrery/base/text.h"
#include "orrery/collective/lowering.h"
#include "orrery/engine/general/flat_program.h"
#include "orrery/engine/general/op_costs.h"
#include "orrery/engine/general/peers.h"
#include "orrery/engine/prices.h"

namespace orrery::job {
namespace {

using engine::general::FlatProgram;
using engine::general::Node;
using engine::general::NodeKind;
using engine::general::Peers;
using formats::GoalSchedule;
using Kind = GoalSchedule::Kind;

constexpr int kMostProcessors = 256;

class Writer {
 public:
  Writer(const engine::Inputs& inputs, int iterations)
      : in_(inputs),
        graph_(*inputs.graph),
        iterations_(iterations),
        peers_(graph_),
        prices_(*inputs.compute, *inputs.planner) {}

  Result<GoalExport> Write() {
    ORRERY_RETURN_IF_ERROR(MakePrograms());
    ORRERY_RETURN_IF_ERROR(NumberProcessors());
    for (std::uint32_t rank = 0; rank < graph_.bindings.size(); ++rank) {
      ORRERY_RETURN_IF_ERROR(AddRank(rank));
    }
    GoalExport out;
    ORRERY_ASSIGN_OR_RETURN(out.schedule, builder_.Take(false));
    out.lost = Lost();
    return out;
  }

 private:
  struct Program {
    std::unique_ptr<FlatProgram> flat;
    std::vector<engine::general::BlockCosts> costs;  // by call
  };
  // What of the schedule stands for a node: operations before and behind.
  struct Place {
    std::uint32_t first = 0, last = 0;
  };
  struct Group {
    std::unique_ptr<collective::Schedule> schedule;
    std::vector<std::uint32_t> tag;                // by connection
    std::vector<std::vector<std::int64_t>> bytes;  // by connection: of its messages
  };

  Status MakePrograms() {
    programs_.resize(graph_.programs.size());
    for (const graph::Binding& b : graph_.bindings) {
      Program& p = programs_[b.program.index()];
      if (p.flat != nullptr) continue;
      const graph::Program& program = graph_.programs[b.program.index()];
      const bool once = graph_.jobs[b.job.index()].once;
      p.flat = std::make_unique<FlatProgram>(graph_, program, once ? 1 : iterations_,
                                             [](graph::GroupSlot) { return false; });
      for (const graph::Call& call : program.calls) {
        ORRERY_ASSIGN_OR_RETURN(
            auto costs, engine::general::CostsOf(graph_.blocks[call.block.index()], *in_.compute,
                                                 in_.cluster->spec(), 1));
        p.costs.push_back(std::move(costs));
      }
    }
    return {};
  }

  // Held processors keep their numbers; then the host, the meeting points and the streams follow;
  // lanes of collectives take what is left.
  Status NumberProcessors() {
    int held = 0;
    std::set<std::uint32_t> streams;
    bool more = false;
    for (const graph::Block& block : graph_.blocks) {
      for (const graph::Hold& h : block.holds) {
        if (h.cpu != graph::Hold::kNone) held = std::max(held, h.cpu + 1);
      }
      for (const graph::Op& op : block.ops) {
        const std::uint32_t stream = block.stream_of(op);
        if (stream < graph::kHostStream) streams.insert(stream);
        if (op.kind == graph::OpKind::kComm) {
          next_tag_ = std::max(next_tag_, block.comms[op.index].tag + std::int64_t{1});
        }
        more = more || op.hold == 0;
      }
    }
    if (!more) return {};  // GOAL's own: every operation holds what it needs
    host_ = held;
    join_ = held + 1;
    int next = held + 2;
    for (const std::uint32_t s : streams) of_stream_[s] = next++;
    first_lane_ = next;
    if (next < kMostProcessors) return {};
    return InvalidInput(
        "{} streams and {} processors: GOAL numbers 256 processors a rank, and each stream needs "
        "one of its own",
        streams.size(), held);
  }
  std::uint8_t CpuOf(const Node& n) const {
    if (n.cpu != Node::kNone) return static_cast<std::uint8_t>(n.cpu);
    if (n.kind == NodeKind::kHost) return static_cast<std::uint8_t>(host_);
    if (n.kind == NodeKind::kJoin) return static_cast<std::uint8_t>(join_);
    const graph::Block& block = graph_.blocks[n.block];
    const auto it = of_stream_.find(block.stream_of(block.ops[n.op]));
    return static_cast<std::uint8_t>(it == of_stream_.end() ? join_ : it->second);
  }

  std::uint32_t Calc(SimTime ps, std::uint8_t cpu) {
    if (ps % kNanosecond != 0) ++rounded_;
    return Add(Kind::kCalc, (ps + kNanosecond / 2) / kNanosecond, 0, 0, cpu);
  }
  std::uint32_t Add(Kind kind, std::int64_t size, std::uint32_t peer, std::uint32_t tag,
                    std::uint8_t cpu, std::uint8_t nic = 0) {
    ++written_;
    return builder_.Add(kind, size, peer, tag, cpu, nic);
  }

  Status AddRank(std::uint32_t rank) {
    const Program& program = programs_[graph_.bindings[rank].program.index()];
    const FlatProgram& flat = *program.flat;
    builder_.BeginRank();
    std::vector<Place> places(flat.size());
    for (std::size_t i = 0; i < flat.size(); ++i) {
      ORRERY_ASSIGN_OR_RETURN(places[i], AddNode(rank, program, flat.node(i)));
      if (written_ > kMostGoalOperations) {
        return InvalidInput(
            "the schedule has more than {} operations by rank {} of {}: GOAL says every message of "
            "a collective; convert a smaller job, or fewer iterations",
            HumanCount(kMostGoalOperations), rank, graph_.bindings.size());
      }
    }
    for (std::size_t i = 0; i < flat.size(); ++i) {
      for (const std::uint32_t edge : flat.edges(i)) {
        const bool start = (edge & Node::kStartEdge) != 0;
        const Place& to = places[edge & ~Node::kStartEdge];
        builder_.Require(to.first, start ? places[i].first : places[i].last, start);
      }
    }
    return {};
  }

  Result<Place> AddNode(std::uint32_t rank, const Program& program, const Node& n) {
    const graph::Binding& b = graph_.bindings[rank];
    const std::int64_t amount = n.amount.slot < 0 ? n.amount.value : graph_.number(b, n.amount);
    const engine::general::BlockCosts& costs = program.costs[program.flat->instance(n).number];
    std::uint32_t at = 0;
    switch (n.kind) {
      case NodeKind::kJoin:
        at = Calc(0, CpuOf(n));
        break;
      case NodeKind::kHost: {
        SimTime time =
            RoundToPs(static_cast<double>(amount) / in_.cluster->spec().cpu_relative_speed);
        if (n.op != Node::kNoOp) time += costs.ops[n.op].host;
        at = Calc(time, CpuOf(n));
        break;
      }
      case NodeKind::kWork:
        lagged_ = lagged_ || n.lagged;
        kernels_ = kernels_ || !n.timed;
        at = Calc(n.timed ? amount : costs.ops[n.op].duration[0], CpuOf(n));
        break;
      case NodeKind::kCopy: {
        engine::CommPrice price;
        ORRERY_RETURN_IF_ERROR(prices_.PriceComm(CommOf(n), amount, 0, 0, nullptr, &price));
        at = Calc(price.cost.total(), CpuOf(n));
        break;
      }
      case NodeKind::kSend:
      case NodeKind::kReceive: {
        const graph::Comm& comm = CommOf(n);
        const std::uint32_t peer = peers_.Of(rank, comm);
        if (peer == Peers::kNobody) {
          return InvalidInput("rank {}: the peer of a message is no rank of its job", rank);
        }
        messages_ = messages_ || !n.raw;
        const auto nic = static_cast<std::uint8_t>(n.nic == Node::kNone ? 0 : n.nic);
        at = Add(n.kind == NodeKind::kSend ? Kind::kSend : Kind::kRecv, amount, peer,
                 static_cast<std::uint32_t>(comm.tag), CpuOf(n), nic);
        break;
      }
      case NodeKind::kCollective:
        return AddCollective(rank, n, amount);
    }
    return Place{at, at};
  }
  const graph::Comm& CommOf(const Node& n) const {
    const graph::Block& block = graph_.blocks[n.block];
    return block.comms[block.ops[n.op].index];
  }

  Result<Place> AddCollective(std::uint32_t rank, const Node& n, std::int64_t bytes) {
    const graph::Comm& comm = CommOf(n);
    const GroupId id = graph_.group(graph_.bindings[rank], comm.group);
    const auto join = static_cast<std::uint8_t>(join_);
    if (!id.valid() || graph_.groups.members(id).size() < 2) {
      const std::uint32_t at = Calc(0, join);
      return Place{at, at};
    }
    ORRERY_ASSIGN_OR_RETURN(const Group* group, GroupOf(id, comm, bytes));
    const collective::Schedule& schedule = *group->schedule;
    const auto members = graph_.groups.members(id);
    const std::uint32_t own = peers_.PlaceOf(id, rank);
    collectives_ = true;
    Place place;
    place.first = Calc(0, join);
    place.last = Calc(0, join);
    builder_.Require(place.last, place.first);
    std::vector<std::size_t> received(schedule.connections().size(), 0);
    for (int lane = 0; lane < schedule.lanes(); ++lane) {
      const auto cpu = static_cast<std::uint8_t>(first_lane_ +
                                                 lane % std::max(1, kMostProcessors - first_lane_));
      std::uint32_t before = place.first;
      bool any = false;
      for (std::uint64_t i = 0; written_ <= kMostGoalOperations; ++i) {
        const collective::Step step = schedule.At(own, lane, i);
        if (step.done) break;
        const SimTime setup = any ? 0 : schedule.setup();
        any = true;
        const std::uint32_t work = Calc(setup + step.work, cpu);
        builder_.Require(work, before);
        if (step.recv_connection >= 0) {
          const auto c = static_cast<std::size_t>(step.recv_connection);
          const std::uint32_t from = schedule.connections()[c].from;
          const std::uint32_t recv = Add(Kind::kRecv, group->bytes[c][received[c]++],
                                         members[from].value, group->tag[c], cpu);
          builder_.Require(recv, before);
          builder_.Require(work, recv);
        }
        if (step.send_connection >= 0) {
          const auto c = static_cast<std::size_t>(step.send_connection);
          const std::uint32_t to = schedule.connections()[c].to;
          std::uint32_t leaves = work;
          if (step.post > 0) {
            leaves = Calc(step.post, cpu);
            builder_.Require(leaves, work);
          }
          const std::uint32_t send =
              Add(Kind::kSend, step.bytes, members[to].value, group->tag[c], cpu);
          builder_.Require(send, leaves);
        }
        before = work;
      }
      if (any) builder_.Require(place.last, before);
    }
    return place;
  }
  Result<const Group*> GroupOf(GroupId id, const graph::Comm& comm, std::int64_t bytes) {
    const auto members = graph_.groups.members(id);
    std::vector<DeviceId> devices;
    for (const RankId r : members) devices.push_back(in_.placement->device[r.index()]);
    const std::uint16_t shape = prices_.ShapeId(collective::ShapeOf(*in_.cluster, devices));
    const graph::Shares* shares =
        comm.shares.valid() ? &graph_.shares[comm.shares.index()] : nullptr;
    engine::CommPrice price;
    ORRERY_RETURN_IF_ERROR(prices_.PriceComm(comm, bytes, shape, shape, shares, &price));
    Group& group = groups_[{id.value, price.plan}];
    if (group.schedule != nullptr) return &group;
    group.schedule =
        std::make_unique<collective::Schedule>(prices_.plan(price.plan), *in_.cluster, devices);
    for (const collective::Connection& c : group.schedule->connections()) {
      // A connection of a communicator keeps its tag from one collective to the next.
      const auto [tag, fresh] = tags_.try_emplace({id.value, c.channel, c.from, c.to, c.salt},
                                                  static_cast<std::uint32_t>(next_tag_));
      if (fresh) ++next_tag_;
      group.tag.push_back(tag->second);
    }
    group.bytes.resize(group.tag.size());
    for (std::uint32_t m = 0; m < members.size(); ++m) {
      for (int lane = 0; lane < group.schedule->lanes(); ++lane) {
        for (std::uint64_t i = 0;; ++i) {
          const collective::Step step = group.schedule->At(m, lane, i);
          if (step.done) break;
          if (step.send_connection < 0) continue;
          group.bytes[static_cast<std::size_t>(step.send_connection)].push_back(step.bytes);
        }
      }
    }
    return &group;
  }

  std::vector<std::string> Lost() const {
    std::vector<std::string> lost;
    if (rounded_ > 0) {
      lost.push_back(fmt::format("{} times are no whole nanoseconds and were rounded to them",
                                 HumanCount(static_cast<std::int64_t>(rounded_))));
    }
    if (collectives_) {
      lost.push_back(
          "collectives became the messages that this cluster's plan has for them; the window of "
          "chunks under way and the routes are not in them");
    }
    if (messages_) {
      lost.push_back("a send of at most S bytes ends when it leaves, not when it is received");
    }
    if (lagged_) lost.push_back("the time between the host's launch and the kernel's start");
    if (kernels_ && collectives_) lost.push_back("how communication slows the kernels beside it");
    const auto unordered = std::ranges::count_if(graph_.streams, [](const graph::Stream& s) {
      return s.order == graph::StreamOrder::kLast || s.order == graph::StreamOrder::kPriority;
    });
    if (unordered > 0) {
      lost.push_back(fmt::format(
          "the order of {} streams (last in first out, or by priority): who is ready first is "
          "served first",
          unordered));
    }
    const bool buffers = std::ranges::any_of(
        graph_.blocks, [](const graph::Block& b) { return !b.buffers.empty(); });
    if (buffers) lost.emplace_back("memory: what is allocated and freed");
    lost.emplace_back("names of operations, modules, layers and micro-batches");
    return lost;
  }

  const engine::Inputs& in_;
  const graph::Graph& graph_;
  const int iterations_;
  const Peers peers_;
  engine::PriceCache prices_;
  std::vector<Program> programs_;
  std::map<std::uint32_t, int> of_stream_;
  int host_ = 0, join_ = 0, first_lane_ = 0;
  std::map<std::pair<std::uint32_t, int>, Group> groups_;  // by communicator and plan
  std::map<std::tuple<std::uint32_t, std::uint16_t, std::uint32_t, std::uint32_t, std::uint64_t>,
           std::uint32_t>
      tags_;
  std::int64_t next_tag_ = 0;
  formats::GoalBuilder builder_;
  std::size_t written_ = 0, rounded_ = 0;
  bool collectives_ = false, messages_ = false, lagged_ = false, kernels_ = false;
};

}  // namespace

Result<GoalExport> ExportGoal(const engine::Inputs& inputs, int iterations) {
  return Writer(inputs, iterations).Write();
}

}  // namespace orrery::job
