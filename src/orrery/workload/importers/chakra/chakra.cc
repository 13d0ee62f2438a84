#include "orrery/workload/importers/chakra/chakra.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/workload/importers/rank_programs.h"

namespace orrery::workload {
namespace {

using formats::ChakraCollective;
using formats::ChakraNode;
using formats::ChakraNodeType;
using formats::ChakraTrace;
using graph::Collective;
using graph::OpKind;

constexpr std::uint32_t kGpu = graph::kComputeStream, kCpu = 1, kMemory = 2, kCommunicators = 3;
constexpr std::uint64_t kMostMicroseconds = kMaxDuration / kMicrosecond;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;
constexpr std::size_t kMostNames = 20'000;  // that operations are shown by
constexpr std::int64_t kWorld = 0;
constexpr std::uint32_t kNoPlace = std::numeric_limits<std::uint32_t>::max();

Collective CollectiveOf(ChakraCollective c) {
  switch (c) {
    case ChakraCollective::kAllReduce:
      return Collective::kAllReduce;
    case ChakraCollective::kReduce:
      return Collective::kReduce;
    case ChakraCollective::kAllGather:
      return Collective::kAllGather;
    case ChakraCollective::kGather:
      return Collective::kGather;
    case ChakraCollective::kScatter:
      return Collective::kScatter;
    case ChakraCollective::kBroadcast:
      return Collective::kBroadcast;
    case ChakraCollective::kAllToAll:
      return Collective::kAllToAll;
    case ChakraCollective::kReduceScatter:
    case ChakraCollective::kReduceScatterBlock:
      return Collective::kReduceScatter;
    case ChakraCollective::kBarrier:
    case ChakraCollective::kNone:
      break;
  }
  return Collective::kBarrier;
}

class Importer {
 public:
  Importer(std::size_t ranks, const ChakraGroups& groups,
           const std::set<std::int64_t>& data_parallel)
      : ranks_(ranks), groups_(groups), data_parallel_(data_parallel), programs_(&graph_, ranks) {}

  Result<ChakraImport> Import(const std::function<Result<ChakraTrace>(std::size_t)>& read,
                              const std::string& name) {
    graph_.jobs.push_back(
        {.name = name, .ranks = static_cast<std::uint32_t>(ranks_), .once = true});
    graph_.bindings.resize(ranks_);
    std::vector<std::uint32_t> all;
    for (std::uint32_t r = 0; r < ranks_; ++r) all.push_back(r);
    world_ = GroupOf(all, graph::GroupSlot::kPp);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      ORRERY_ASSIGN_OR_RETURN(const ChakraTrace trace, read(rank));
      ORRERY_RETURN_IF_ERROR(AddRank(rank, trace).In(fmt::format("rank {}", rank)));
    }
    programs_.Finish();
    NameStreams();
    return ChakraImport{std::move(graph_), Warnings()};
  }

 private:
  // What the rank at hand has.
  struct Rank {
    std::uint32_t number = 0;
    const ChakraTrace* trace = nullptr;
    ChakraGroups groups;
    std::vector<std::int64_t> slots;   // groups by slot, in order of first use
    std::vector<std::uint32_t> by_id;  // nodes
    bool topological = true;           // no node waits for a later id
    RankOps ops;
  };

  GroupId GroupOf(const std::vector<std::uint32_t>& members, graph::GroupSlot role) {
    const auto [at, fresh] = known_groups_.emplace(std::pair{role, members}, GroupId());
    if (fresh) {
      std::vector<RankId> ids;
      for (const std::uint32_t m : members) ids.emplace_back(std::size_t{m});
      at->second = graph_.groups.Add(role, ids);
    }
    return at->second;
  }

  Status AddRank(std::uint32_t number, const ChakraTrace& trace) {
    Rank rank;
    rank.number = number;
    rank.trace = &trace;
    rank.groups = groups_;
    ORRERY_RETURN_IF_ERROR(AddProcessGroups(trace, ranks_, &rank.groups));
    if (trace.size() >= std::size_t{1} << 31) return InvalidInput("more than 2^31 nodes");
    ORRERY_RETURN_IF_ERROR(Order(&rank));
    graph::Block& block = rank.ops.block;
    block.issue = graph::Issue::kFree;
    block.name = graph_.Intern("trace");
    ORRERY_RETURN_IF_ERROR(AddDeps(&rank));
    for (std::uint32_t i = 0; i < rank.by_id.size(); ++i) {
      const ChakraNode& node = trace.nodes[rank.by_id[i]];
      Status added = AddNode(node, i, &rank);
      if (added.ok()) continue;
      return std::move(added).In(fmt::format("node {} ({}, offset {})", node.id,
                                             Printable(trace.text(node.name), 60), node.offset));
    }
    Bind(rank);
    for (const auto& [attribute, count] : trace.ignored) ignored_[attribute] += count;
    programs_.Add(number, std::move(rank.ops));
    return {};
  }

  // Nodes by id.
  static Status Order(Rank* rank) {
    const auto& nodes = rank->trace->nodes;
    rank->by_id.resize(rank->trace->size());
    for (std::uint32_t i = 0; i < rank->by_id.size(); ++i) rank->by_id[i] = i;
    const auto less = [&nodes](std::uint32_t a, std::uint32_t b) {
      return nodes[a].id < nodes[b].id;
    };
    if (!std::is_sorted(rank->by_id.begin(), rank->by_id.end(), less)) {
      std::sort(rank->by_id.begin(), rank->by_id.end(), less);
    }
    for (std::size_t i = 1; i < rank->by_id.size(); ++i) {
      const ChakraNode& node = nodes[rank->by_id[i]];
      if (nodes[rank->by_id[i - 1]].id != node.id) continue;
      return InvalidInput("offset {}: a second node {}", node.offset, node.id);
    }
    return {};
  }

  // A node's place by its id; ids mostly rise by one.
  static std::uint32_t PlaceOf(const Rank& rank, std::uint64_t id) {
    const auto& nodes = rank.trace->nodes;
    if (rank.by_id.empty()) return kNoPlace;
    const std::uint64_t guess = id - nodes[rank.by_id.front()].id;
    if (guess < rank.by_id.size() && nodes[rank.by_id[guess]].id == id) {
      return static_cast<std::uint32_t>(guess);
    }
    const auto at = std::lower_bound(
        rank.by_id.begin(), rank.by_id.end(), id,
        [&nodes](std::uint32_t n, std::uint64_t value) { return nodes[n].id < value; });
    if (at == rank.by_id.end() || nodes[*at].id != id) return kNoPlace;
    return static_cast<std::uint32_t>(at - rank.by_id.begin());
  }

  static Status AddDeps(Rank* rank) {
    const ChakraTrace& trace = *rank->trace;
    graph::Block& block = rank->ops.block;
    block.dep_begin.push_back(0);
    for (std::uint32_t i = 0; i < rank->by_id.size(); ++i) {
      const std::uint32_t number = rank->by_id[i];
      const std::size_t first = block.deps.size();
      for (const std::uint64_t id : trace.deps_of(number)) {
        const std::uint32_t place = PlaceOf(*rank, id);
        if (place == kNoPlace) {
          return InvalidInput("offset {}: node {} depends on node {}, which the file does not have",
                              trace.nodes[number].offset, trace.nodes[number].id, id);
        }
        if (place == i) {
          return InvalidInput("offset {}: node {} depends on itself", trace.nodes[number].offset,
                              id);
        }
        graph::Dep dep;
        dep.op = place & 0x7FFFFFFFu;
        if (dep.op >= i) rank->topological = false;
        // Data and control dependencies may name the same node.
        if (std::find(block.deps.begin() + static_cast<std::ptrdiff_t>(first), block.deps.end(),
                      dep) == block.deps.end()) {
          block.deps.push_back(dep);
        }
      }
      block.dep_begin.push_back(static_cast<std::uint32_t>(block.deps.size()));
    }
    if (block.deps.empty()) block.dep_begin.clear();
    return {};
  }

  Status AddNode(const ChakraNode& node, std::uint32_t place, Rank* rank) {
    graph::Block& block = rank->ops.block;
    graph::Op op;
    op.name = NameOf(node, *rank->trace);
    op.priority = -static_cast<std::int32_t>(place);
    std::int64_t amount = RankOps::kNone, peer = RankOps::kNone;
    switch (node.type) {
      case ChakraNodeType::kInvalid:
      case ChakraNodeType::kMetadata:
        amount = 0;
        op.stream = graph::kNoStream;
        break;
      case ChakraNodeType::kCompute:
        op.stream = node.cpu ? kCpu : kGpu;
        if (node.duration_us > kMostMicroseconds) {
          return InvalidInput("duration_micros {} is beyond 106 days", node.duration_us);
        }
        if (node.duration_us > 0 || node.cpu || node.num_ops + node.tensor_size == 0) {
          amount = static_cast<std::int64_t>(node.duration_us) * kMicrosecond;
        }
        if (node.Has(ChakraNode::kDurationPs)) {
          if (node.duration_ps > static_cast<std::uint64_t>(kMaxDuration)) {
            return InvalidInput("duration_ps {} is beyond 106 days", node.duration_ps);
          }
          amount = static_cast<std::int64_t>(node.duration_ps);
        }
        break;
      case ChakraNodeType::kMemLoad:
      case ChakraNodeType::kMemStore:
      case ChakraNodeType::kSend:
      case ChakraNodeType::kReceive:
      case ChakraNodeType::kCollective: {
        std::size_t slot = 0;
        if (node.type == ChakraNodeType::kCollective) {
          ORRERY_ASSIGN_OR_RETURN(slot, SlotOf(node, rank));
          if (MembersOf(*rank, slot) == 1) {  // nobody to meet
            op.stream = graph::kNoStream;
            amount = 0;
            break;
          }
        }
        graph::Comm comm;
        ORRERY_RETURN_IF_ERROR(CommOf(node, *rank, slot, &comm, &amount, &peer));
        op.kind = OpKind::kComm;
        op.index = static_cast<std::uint32_t>(block.comms.size());
        block.comms.push_back(comm);
        break;
      }
    }
    if (op.kind != OpKind::kComm && amount != RankOps::kNone) {
      op.kind = OpKind::kTimed;
      op.index = static_cast<std::uint32_t>(block.times.size());
      block.times.emplace_back();
    } else if (op.kind != OpKind::kComm) {
      if (std::max(node.num_ops, node.tensor_size) > kMostBytes) {
        return InvalidInput("num_ops or tensor_size is beyond 2^60");
      }
      op.kind = OpKind::kKernel;
      op.index = static_cast<std::uint32_t>(block.kernels.size());
      block.kernels.emplace_back(
          graph::Generic{.bytes_read = static_cast<std::int64_t>(node.tensor_size),
                         .flops = static_cast<std::int64_t>(node.num_ops)});
    }
    block.ops.push_back(op);
    rank->ops.amounts.push_back(amount);
    rank->ops.peers.push_back(peer);
    return {};
  }

  // `slot`: a collective's group.
  Status CommOf(const ChakraNode& node, const Rank& rank, std::size_t slot, graph::Comm* comm,
                std::int64_t* bytes, std::int64_t* peer) {
    comm->blocking = false;
    comm->after = graph::kNoStream;
    // Orrery's own attribute; the duration of other writers has each member's wait for others in
    // it.
    if (node.Has(ChakraNode::kDurationPs)) {
      if (node.duration_ps > static_cast<std::uint64_t>(kMaxDuration)) {
        return InvalidInput("duration_ps {} is beyond 106 days", node.duration_ps);
      }
      comm->measured.value = static_cast<std::int64_t>(node.duration_ps);
    }
    std::uint64_t size = node.comm_size;
    if (node.type == ChakraNodeType::kCollective) {
      ORRERY_RETURN_IF_ERROR(AddCollective(node, rank, slot, comm, &size));
    } else if (node.type == ChakraNodeType::kMemLoad || node.type == ChakraNodeType::kMemStore) {
      comm->collective = node.type == ChakraNodeType::kMemLoad ? Collective::kCopyToDevice
                                                               : Collective::kCopyToHost;
      comm->group = graph::GroupSlot::kOffload;
      comm->stream = kMemory;
      size = node.tensor_size;
    } else {
      const bool send = node.type == ChakraNodeType::kSend;
      comm->collective = send ? Collective::kSend : Collective::kRecv;
      comm->group = graph::GroupSlot::kPp;
      comm->stream = graph::kNoStream;
      if (!node.Has(send ? ChakraNode::kDestination : ChakraNode::kSource)) {
        return InvalidInput("has no {}", send ? "comm_dst" : "comm_src");
      }
      const std::uint32_t own = send ? node.source : node.destination;
      if (node.Has(send ? ChakraNode::kSource : ChakraNode::kDestination) && own != rank.number) {
        return InvalidInput("{} is {}, and the file is rank {}'s", send ? "comm_src" : "comm_dst",
                            own, rank.number);
      }
      *peer = send ? node.destination : node.source;
      if (static_cast<std::size_t>(*peer) >= ranks_ || *peer == rank.number) {
        return InvalidInput("{} with rank {}, of {} ranks", Name(node.type), *peer, ranks_);
      }
      if (node.tag > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
        return InvalidInput("comm_tag {} is beyond 2^31", node.tag);
      }
      comm->tag = static_cast<std::int32_t>(node.tag);
    }
    if (size > kMostBytes) return InvalidInput("{} bytes are beyond 2^60", size);
    *bytes = static_cast<std::int64_t>(size);
    return {};
  }

  Status AddCollective(const ChakraNode& node, const Rank& rank, std::size_t slot,
                       graph::Comm* comm, std::uint64_t* size) {
    if (!node.Has(ChakraNode::kCommType)) return InvalidInput("has no comm_type");
    const unsigned all = (1u << node.involved_dims) - 1u;
    if (node.Has(ChakraNode::kInvolvedDim) && node.involved != all) {
      return InvalidInput(
          "involved_dim leaves out dimensions, which only ASTRA-sim's networks have: run it with "
          "--format astra-sim");
    }
    const std::size_t members = MembersOf(rank, slot);
    comm->collective = CollectiveOf(node.collective);
    comm->group = static_cast<graph::GroupSlot>(graph::kGroupSlots + slot);
    // In the order of ids where that order can run; else the lowest id of those ready.
    const auto s = static_cast<std::uint32_t>(slot);
    comm->stream = kCommunicators + 2 * s + (rank.topological ? 0 : 1);
    communicators_ = std::max(communicators_, s + 1);
    if (comm->collective == Collective::kAllGather) {
      if (*size > kMostBytes / members) return InvalidInput("comm_size {} is beyond 2^60", *size);
      *size *= members;
    }
    if (comm->collective == Collective::kBarrier) *size = 0;
    return {};
  }

  std::size_t MembersOf(const Rank& rank, std::size_t slot) const {
    const auto listed = rank.groups.find(rank.slots[slot]);
    return listed == rank.groups.end() ? ranks_ : listed->second.size();  // else the world
  }

  Result<std::size_t> SlotOf(const ChakraNode& node, Rank* rank) {
    std::int64_t id = kWorld;
    const std::string_view text = rank->trace->text(node.group);
    if (text.size() > 18) return InvalidInput("pg_name '{}' is no number", Printable(text, 40));
    for (const char c : text) {
      if (c < '0' || c > '9') return InvalidInput("pg_name '{}' is no number", Printable(text));
      id = 10 * id + (c - '0');
    }
    const auto known = rank->groups.find(id);
    if (known == rank->groups.end() && id != kWorld) {
      return InvalidInput(
          "communicator {} (pg_name) is not known: name the file that lists communicators, "
          "--set chakra.comm_groups=FILE.json (PREFIX.groups.json beside the trace is found)",
          id);
    }
    if (known != rank->groups.end() && std::find(known->second.begin(), known->second.end(),
                                                 rank->number) == known->second.end()) {
      return InvalidInput("rank {} is no member of group {}", rank->number, id);
    }
    const auto at = std::find(rank->slots.begin(), rank->slots.end(), id);
    if (at != rank->slots.end()) return static_cast<std::size_t>(at - rank->slots.begin());
    rank->slots.push_back(id);
    return rank->slots.size() - 1;
  }

  void Bind(const Rank& rank) {
    graph::Binding& b = graph_.bindings[rank.number];
    b.job = JobId(std::size_t{0});
    b.logical_rank = rank.number;
    b.groups[static_cast<std::size_t>(graph::GroupSlot::kPp)] = world_;
    b.more_groups = static_cast<std::uint32_t>(graph_.more_groups.size());
    for (const std::int64_t id : rank.slots) {
      const auto listed = rank.groups.find(id);
      std::vector<std::uint32_t> members;
      if (listed != rank.groups.end()) {
        members = listed->second;
      } else {
        for (std::uint32_t r = 0; r < ranks_; ++r) members.push_back(r);
      }
      graph_.more_groups.push_back(GroupOf(
          members, data_parallel_.contains(id) ? graph::GroupSlot::kDp : graph::GroupSlot::kModel));
    }
  }

  NameId NameOf(const ChakraNode& node, const ChakraTrace& trace) {
    const std::string_view name = trace.text(node.name);
    if (name.empty() || graph_.names().size() > kMostNames) {
      return graph_.Intern(Name(node.type));
    }
    return graph_.Intern(Printable(name, 200));
  }

  void NameStreams() {
    const auto add = [this](std::string_view name, graph::StreamOrder order) {
      graph_.streams.push_back({graph_.Intern(name), order});
    };
    add("GPU", graph::StreamOrder::kPriority);
    add("CPU", graph::StreamOrder::kPriority);
    add("memory", graph::StreamOrder::kPriority);
    for (std::uint32_t c = 0; c < communicators_; ++c) {
      add(fmt::format("communicator {}", c), graph::StreamOrder::kInOrder);
      add(fmt::format("communicator {}, by readiness", c), graph::StreamOrder::kPriority);
    }
  }

  std::vector<std::string> Warnings() const {
    std::vector<std::string> warnings;
    if (ignored_.empty()) return warnings;
    std::string names;
    std::size_t listed = 0;
    for (const auto& [name, count] : ignored_) {
      if (listed++ == 12) break;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", Printable(name, 40));
    }
    if (ignored_.size() > 12) names += fmt::format(" and {} more", ignored_.size() - 12);
    warnings.push_back("attributes of the trace that nothing here uses: " + names);
    return warnings;
  }

  std::size_t ranks_;
  const ChakraGroups& groups_;
  const std::set<std::int64_t>& data_parallel_;
  graph::Graph graph_;
  RankPrograms programs_;
  GroupId world_;
  std::map<std::pair<graph::GroupSlot, std::vector<std::uint32_t>>, GroupId> known_groups_;
  std::map<std::string, std::uint64_t> ignored_;
  std::uint32_t communicators_ = 0;
};

}  // namespace

Result<ChakraImport> ImportChakra(std::size_t ranks,
                                  const std::function<Result<ChakraTrace>(std::size_t)>& read,
                                  const ChakraGroups& groups, const std::string& name,
                                  const std::set<std::int64_t>& data_parallel) {
  return Importer(ranks, groups, data_parallel).Import(read, name);
}

}  // namespace orrery::workload
