#include "orrery/job/chakra_writer.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orrery/base/text.h"
#include "orrery/formats/chakra.h"
#include "orrery/job/flat_programs.h"

namespace orrery::job {
namespace {

using engine::general::FlatProgram;
using Operation = engine::general::Node;
using engine::general::NodeKind;
using engine::general::Peers;
using formats::ChakraCollective;
using formats::ChakraNode;
using formats::ChakraNodeType;
using graph::Collective;

ChakraCollective CollectiveOf(Collective c) {
  switch (c) {
    case Collective::kAllGather:
      return ChakraCollective::kAllGather;
    case Collective::kReduceScatter:
      return ChakraCollective::kReduceScatter;
    case Collective::kBroadcast:
      return ChakraCollective::kBroadcast;
    case Collective::kAllToAll:
      return ChakraCollective::kAllToAll;
    case Collective::kGather:
      return ChakraCollective::kGather;
    case Collective::kScatter:
      return ChakraCollective::kScatter;
    case Collective::kReduce:
      return ChakraCollective::kReduce;
    case Collective::kBarrier:
      return ChakraCollective::kBarrier;
    default:
      return ChakraCollective::kAllReduce;
  }
}

class ChakraWriter {
 public:
  ChakraWriter(const graph::Graph& graph, FlatPrograms&& programs)
      : graph_(graph), programs_(std::move(programs)), peers_(graph_) {}

  Result<ChakraExport> Write() {
    FindOrders();
    ChakraExport out;
    for (std::uint32_t rank = 0; rank < graph_.bindings.size(); ++rank) {
      ORRERY_ASSIGN_OR_RETURN(std::string bytes, RankBytes(rank));
      out.ranks.push_back(std::move(bytes));
    }
    if (!groups_.empty()) out.groups = GroupsJson();
    out.lost = Lost();
    return out;
  }

 private:
  // What each node of a program waits for.
  void FindOrders() {
    deps_.resize(graph_.programs.size());
    for (std::uint32_t rank = 0; rank < graph_.bindings.size(); ++rank) {
      auto& deps = deps_[programs_.program(rank)];
      const FlatProgram& flat = programs_.of(rank);
      if (!deps.empty() || flat.size() == 0) continue;
      deps.resize(flat.size());
      for (std::size_t i = 0; i < flat.size(); ++i) {
        for (const std::uint32_t edge : flat.edges(i)) {
          starts_ += (edge & Operation::kStartEdge) != 0 ? 1 : 0;
          deps[edge & ~Operation::kStartEdge].push_back(i);
        }
      }
    }
  }

  Result<std::string> RankBytes(std::uint32_t rank) {
    const FlatProgram& flat = programs_.of(rank);
    const auto& deps = deps_[programs_.program(rank)];
    formats::ChakraWriter out;
    for (std::size_t i = 0; i < flat.size(); ++i) {
      const Operation& n = flat.node(i);
      ChakraNode node;
      node.id = i;
      std::string group;
      ORRERY_RETURN_IF_ERROR(Fill(rank, n, &node, &group).In(fmt::format("rank {}", rank)));
      out.Add(node, NameOf(n), group, deps[i]);
    }
    return out.Release();
  }
  std::string_view NameOf(const Operation& n) const {
    if (n.op == Operation::kNoOp) return n.kind == NodeKind::kJoin ? "join" : "host";
    const graph::Op& op = graph_.blocks[n.block].ops[n.op];
    if (op.name.valid()) return graph_.name(op.name);
    return n.kind == NodeKind::kHost ? "launch" : "operation";
  }

  static void Timed(SimTime ps, ChakraNode* node) {
    node->type = ChakraNodeType::kCompute;
    Lasts(ps, node);
  }
  static void Lasts(SimTime ps, ChakraNode* node) {
    node->duration_us = static_cast<std::uint64_t>((ps + kMicrosecond / 2) / kMicrosecond);
    node->duration_ps = static_cast<std::uint64_t>(ps);
    node->has |= ChakraNode::kDurationPs;
  }

  Status Fill(std::uint32_t rank, const Operation& n, ChakraNode* node, std::string* group) {
    const std::int64_t amount = programs_.amount(rank, n);
    held_ = held_ || n.cpu != Operation::kNone || n.nic != Operation::kNone;
    switch (n.kind) {
      case NodeKind::kJoin:
        return {};
      case NodeKind::kHost:
        Timed(programs_.Duration(rank, n), node);
        node->cpu = true;
        node->has |= ChakraNode::kCpuOp;
        return {};
      case NodeKind::kWork: {
        kernels_ = kernels_ || !n.timed;
        const SimTime time = programs_.Duration(rank, n);
        if (time == 0) return {};  // takes no unit either
        compute_streams_.insert(graph_.blocks[n.block].ops[n.op].stream);
        Timed(time, node);
        node->has |= ChakraNode::kCpuOp;
        return {};
      }
      case NodeKind::kCopy:
        node->type = programs_.comm(n).collective == Collective::kCopyToDevice
                         ? ChakraNodeType::kMemLoad
                         : ChakraNodeType::kMemStore;
        node->tensor_size = static_cast<std::uint64_t>(amount);
        node->has |= ChakraNode::kTensorSize;
        return {};
      case NodeKind::kSend:
      case NodeKind::kReceive:
        return Message(rank, n, amount, node);
      case NodeKind::kCollective:
        return OfCollective(rank, n, amount, node, group);
    }
    return {};
  }

  // What a trace measured.
  void Measured(std::uint32_t rank, const graph::Comm& comm, ChakraNode* node) {
    if (comm.measured.value < 0) return;
    Lasts(graph_.number(graph_.bindings[rank], comm.measured), node);
    measured_ = true;
  }

  Status Message(std::uint32_t rank, const Operation& n, std::int64_t bytes, ChakraNode* node) {
    const graph::Comm& comm = programs_.comm(n);
    Measured(rank, comm, node);
    const bool send = n.kind == NodeKind::kSend;
    const GroupId id = graph_.group(graph_.bindings[rank], comm.group);
    within_ = within_ || (id.valid() && graph_.groups.members(id).size() != graph_.bindings.size());
    const std::uint32_t peer = peers_.Of(rank, comm);
    if (peer == Peers::kAny || comm.tag < 0) {
      return InvalidInput("a receive from any source, or of any tag: Chakra names both");
    }
    if (peer == Peers::kNobody) return InvalidInput("the peer of a message is no rank of its job");
    node->type = send ? ChakraNodeType::kSend : ChakraNodeType::kReceive;
    node->source = send ? rank : peer;
    node->destination = send ? peer : rank;
    node->tag = static_cast<std::uint32_t>(comm.tag);
    node->comm_size = static_cast<std::uint64_t>(bytes);
    node->has |=
        ChakraNode::kSource | ChakraNode::kDestination | ChakraNode::kTag | ChakraNode::kCommSize;
    return {};
  }

  Status OfCollective(std::uint32_t rank, const Operation& n, std::int64_t bytes, ChakraNode* node,
                      std::string* group) {
    const graph::Comm& comm = programs_.comm(n);
    const GroupId id = graph_.group(graph_.bindings[rank], comm.group);
    if (!id.valid() || graph_.groups.members(id).size() < 2) return {};
    const auto members = graph_.groups.members(id);
    node->type = ChakraNodeType::kCollective;
    Measured(rank, comm, node);
    node->collective = CollectiveOf(comm.collective);
    node->has |= ChakraNode::kCommType | ChakraNode::kCommSize;
    if (comm.collective == Collective::kAllGather) {
      const auto n_members = static_cast<std::int64_t>(members.size());
      rounded_ += bytes % n_members != 0 ? 1 : 0;
      bytes = (bytes + n_members - 1) / n_members;
    }
    uneven_ = uneven_ || comm.shares.valid();
    node->comm_size = static_cast<std::uint64_t>(bytes);
    bool world = members.size() == graph_.bindings.size();
    for (std::size_t i = 0; world && i < members.size(); ++i) world = members[i].value == i;
    if (world) return {};
    const auto [at, fresh] = groups_.try_emplace(id.value, groups_.size() + 1);
    *group = std::to_string(at->second);
    return {};
  }

  std::string GroupsJson() const {
    std::map<std::size_t, std::uint32_t> by_number;
    for (const auto& [id, number] : groups_) by_number[number] = id;
    nlohmann::ordered_json json;
    for (const auto& [number, id] : by_number) {
      nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
      for (const RankId r : graph_.groups.members(GroupId(std::size_t{id}))) {
        ranks.push_back(r.value);
      }
      json[std::to_string(number)] = std::move(ranks);
    }
    return json.dump() + "\n";
  }

  std::vector<std::string> Lost() const {
    std::vector<std::string> lost;
    lost.emplace_back(
        "times below a microsecond, for other readers: duration_micros is rounded, duration_ps is "
        "Orrery's own");
    if (compute_streams_.size() > 1) {
      lost.push_back(
          fmt::format("that {} streams compute side by side: a rank's nodes run one at a "
                      "time",
                      compute_streams_.size()));
    }
    if (starts_ > 0) {
      lost.push_back(fmt::format("{} orders behind a start: they wait for the end", starts_));
    }
    if (rounded_ > 0)
      lost.push_back(fmt::format("{} all-gathers have shares rounded up", rounded_));
    if (uneven_) lost.emplace_back("who sends how much in uneven all-to-alls");
    if (within_) {
      lost.emplace_back(
          "the communicators of messages, by whose size NCCL opens channels: all of them are sent "
          "in one of all ranks");
    }
    if (held_) lost.emplace_back("which processors and interfaces operations hold");
    if (kernels_) lost.emplace_back("what kernels compute, and how communication slows them");
    if (measured_) {
      lost.emplace_back(
          "for other readers: that a communication's duration counts from its last member's "
          "arrival");
    }
    const std::vector<std::string> more = programs_.Lost(false);
    lost.insert(lost.end(), more.begin(), more.end());
    lost.emplace_back("element types and reductions of communications, layers and micro-batches");
    return lost;
  }

  const graph::Graph& graph_;
  const FlatPrograms programs_;
  const Peers peers_;
  std::vector<std::vector<std::vector<std::uint64_t>>> deps_;  // by program and node
  std::map<std::uint32_t, std::size_t> groups_;                // number by communicator
  std::set<std::uint32_t> compute_streams_;
  std::size_t starts_ = 0, rounded_ = 0;
  bool kernels_ = false, uneven_ = false, held_ = false, within_ = false, measured_ = false;
};

}  // namespace

Result<ChakraExport> ExportChakra(const engine::Inputs& inputs, int iterations) {
  ORRERY_ASSIGN_OR_RETURN(FlatPrograms programs, FlatPrograms::Make(inputs, iterations));
  return ChakraWriter(*inputs.graph, std::move(programs)).Write();
}

}  // namespace orrery::job
