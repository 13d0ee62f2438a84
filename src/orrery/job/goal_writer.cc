#include "orrery/job/goal_writer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "orrery/base/text.h"
#include "orrery/collective/lowering/lowering.h"
#include "orrery/engine/prices.h"
#include "orrery/job/flat_programs.h"

namespace orrery::job {
namespace {

using engine::general::FlatProgram;
using Operation = engine::general::Node;
using engine::general::NodeKind;
using engine::general::Peers;
using formats::GoalSchedule;
using Kind = GoalSchedule::Kind;

constexpr int kMostProcessors = 256;

class GoalWriter {
 public:
  GoalWriter(const engine::Inputs& inputs, FlatPrograms&& programs)
      : in_(inputs),
        graph_(*inputs.graph),
        programs_(std::move(programs)),
        peers_(graph_),
        prices_(*inputs.compute, *inputs.planner) {}

  Result<GoalExport> Write() {
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
  // What of the schedule stands for a node: operations before and behind.
  struct Place {
    std::uint32_t first = 0, last = 0;
  };
  struct Group {
    std::unique_ptr<collective::Schedule> schedule;
    std::vector<std::uint32_t> tag;                // by connection
    std::vector<std::vector<std::int64_t>> bytes;  // by connection: of its messages
  };

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
  std::uint8_t CpuOf(const Operation& n) const {
    if (n.cpu != Operation::kNone) return static_cast<std::uint8_t>(n.cpu);
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
    const FlatProgram& flat = programs_.of(rank);
    builder_.BeginRank();
    std::vector<Place> places(flat.size());
    for (std::size_t i = 0; i < flat.size(); ++i) {
      ORRERY_ASSIGN_OR_RETURN(places[i], AddNode(rank, flat.node(i)));
      if (written_ > kMostGoalOperations) {
        return InvalidInput(
            "the schedule has more than {} operations by rank {} of {}: GOAL says every message of "
            "a collective; convert a smaller job, or fewer iterations",
            HumanCount(kMostGoalOperations), rank, graph_.bindings.size());
      }
    }
    for (std::size_t i = 0; i < flat.size(); ++i) {
      for (const std::uint32_t edge : flat.edges(i)) {
        const bool start = (edge & Operation::kStartEdge) != 0;
        const Place& to = places[edge & ~Operation::kStartEdge];
        builder_.Require(to.first, start ? places[i].first : places[i].last, start);
      }
    }
    return {};
  }

  Result<Place> AddNode(std::uint32_t rank, const Operation& n) {
    const std::int64_t amount = programs_.amount(rank, n);
    std::uint32_t at = 0;
    switch (n.kind) {
      case NodeKind::kJoin:
        at = Calc(0, CpuOf(n));
        break;
      case NodeKind::kHost:
      case NodeKind::kWork:
        kernels_ = kernels_ || (n.kind == NodeKind::kWork && !n.timed);
        at = Calc(programs_.Duration(rank, n), CpuOf(n));
        break;
      case NodeKind::kCopy: {
        engine::CommPrice price;
        ORRERY_RETURN_IF_ERROR(prices_.PriceComm(programs_.comm(n), amount, 0, 0, nullptr, &price));
        at = Calc(price.cost.total(), CpuOf(n));
        break;
      }
      case NodeKind::kSend:
      case NodeKind::kReceive: {
        const graph::Comm& comm = programs_.comm(n);
        const std::uint32_t peer = peers_.Of(rank, comm);
        if (peer == Peers::kNobody) {
          return InvalidInput("rank {}: the peer of a message is no rank of its job", rank);
        }
        messages_ = messages_ || !n.raw;
        const auto nic = static_cast<std::uint8_t>(n.nic == Operation::kNone ? 0 : n.nic);
        at = Add(n.kind == NodeKind::kSend ? Kind::kSend : Kind::kRecv, amount, peer,
                 static_cast<std::uint32_t>(comm.tag), CpuOf(n), nic);
        break;
      }
      case NodeKind::kCollective:
        return AddCollective(rank, n, amount);
    }
    return Place{at, at};
  }

  Result<Place> AddCollective(std::uint32_t rank, const Operation& n, std::int64_t bytes) {
    const graph::Comm& comm = programs_.comm(n);
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
    const std::vector<std::string> more = programs_.Lost(true);
    lost.insert(lost.end(), more.begin(), more.end());
    lost.emplace_back("names of operations, modules, layers and micro-batches");
    return lost;
  }

  const engine::Inputs& in_;
  const graph::Graph& graph_;
  const FlatPrograms programs_;
  const Peers peers_;
  engine::PriceCache prices_;
  std::map<std::uint32_t, int> of_stream_;
  int host_ = 0, join_ = 0, first_lane_ = 0;
  std::map<std::pair<std::uint32_t, int>, Group> groups_;  // by communicator and plan
  std::map<std::tuple<std::uint32_t, std::uint16_t, std::uint32_t, std::uint32_t, std::uint64_t>,
           std::uint32_t>
      tags_;
  std::int64_t next_tag_ = 0;
  formats::GoalBuilder builder_;
  std::size_t written_ = 0, rounded_ = 0;
  bool collectives_ = false, messages_ = false, kernels_ = false;
};

}  // namespace

Result<GoalExport> ExportGoal(const engine::Inputs& inputs, int iterations) {
  ORRERY_ASSIGN_OR_RETURN(FlatPrograms programs, FlatPrograms::Make(inputs, iterations));
  return GoalWriter(inputs, std::move(programs)).Write();
}

}  // namespace orrery::job
