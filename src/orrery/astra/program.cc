#include "orrery/astra/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "orrery/base/hash.h"
#include "orrery/base/text.h"

namespace orrery::astra {
namespace {

using formats::ChakraCollective;
using formats::ChakraNode;
using formats::ChakraNodeType;
using formats::ChakraTrace;

constexpr std::int64_t kLargest = std::int64_t{16} << 30;  // of a file, inflated
constexpr std::uint64_t kMostMicroseconds = kLatest / 1000;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;

// chakra's microseconds; no duration counts 1 ns.
Result<std::uint64_t> Replayed(const ChakraNode& node) {
  if (node.duration_us > kMostMicroseconds) {
    return InvalidInput("duration_micros {} is beyond 104 days", node.duration_us);
  }
  return node.duration_us == 0 ? 1 : node.duration_us * 1000;
}

class Maker {
 public:
  Maker(std::size_t ranks, const GroupMembers& groups, const SystemConfig& system,
        bool names = false)
      : ranks_(ranks), groups_(groups), system_(system), names_(names) {}

  Result<Program> Make(std::uint32_t rank, const ChakraTrace& trace) {
    Program program;
    std::vector<std::uint32_t> by_id(trace.size());
    for (std::uint32_t i = 0; i < by_id.size(); ++i) by_id[i] = i;
    const auto less = [&trace](std::uint32_t a, std::uint32_t b) {
      return trace.nodes[a].id < trace.nodes[b].id;
    };
    if (!std::is_sorted(by_id.begin(), by_id.end(), less)) {
      std::sort(by_id.begin(), by_id.end(), less);
    }
    for (std::size_t i = 0; i < by_id.size(); ++i) {
      const ChakraNode& node = trace.nodes[by_id[i]];
      if (i > 0 && trace.nodes[by_id[i - 1]].id == node.id) {
        return InvalidInput("offset {}: a second node {}", node.offset, node.id);
      }
      Result<Node> made = MakeNode(rank, node, trace);
      if (!made.ok()) {
        return std::move(made).TakeStatus().In(fmt::format(
            "node {} ({}, offset {})", node.id, Printable(trace.text(node.name), 60), node.offset));
      }
      program.nodes.push_back(*made);
      if (names_) program.names.emplace_back(trace.text(node.name));
    }
    ORRERY_RETURN_IF_ERROR(Link(trace, by_id, &program));
    return program;
  }

 private:
  static Status Link(const ChakraTrace& trace, const std::vector<std::uint32_t>& by_id,
                     Program* program) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;  // from, to
    std::vector<std::uint64_t> deps;
    for (std::uint32_t to = 0; to < by_id.size(); ++to) {
      const auto listed = trace.deps_of(by_id[to]);
      deps.assign(listed.begin(), listed.end());
      std::sort(deps.begin(), deps.end());
      deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
      for (const std::uint64_t id : deps) {
        const auto at =
            std::lower_bound(program->nodes.begin(), program->nodes.end(), id,
                             [](const Node& node, std::uint64_t value) { return node.id < value; });
        if (at == program->nodes.end() || at->id != id) {
          return InvalidInput("offset {}: node {} depends on node {}, which the file does not have",
                              trace.nodes[by_id[to]].offset, trace.nodes[by_id[to]].id, id);
        }
        edges.emplace_back(static_cast<std::uint32_t>(at - program->nodes.begin()), to);
      }
      program->nodes[to].open = static_cast<std::uint32_t>(deps.size());
    }
    program->first_edge.assign(by_id.size() + 1, 0);
    for (const auto& edge : edges) ++program->first_edge[edge.first + 1];
    for (std::size_t i = 0; i < by_id.size(); ++i) {
      program->first_edge[i + 1] += program->first_edge[i];
    }
    program->edges.resize(edges.size());
    std::vector<std::uint32_t> next(program->first_edge.begin(), program->first_edge.end() - 1);
    for (const auto& [from, to] : edges) program->edges[next[from]++] = to;
    return {};
  }

  static Counted CountedAs(ChakraNodeType type) {
    switch (type) {
      case ChakraNodeType::kSend:
      case ChakraNodeType::kReceive:
      case ChakraNodeType::kCollective:
        return Counted::kCommunication;
      case ChakraNodeType::kMemLoad:
      case ChakraNodeType::kMemStore:
        return Counted::kMemory;
      default:
        return Counted::kWork;
    }
  }

  Result<Node> MakeNode(std::uint32_t rank, const ChakraNode& node, const ChakraTrace& trace) {
    Node out;
    out.id = node.id;
    out.priority = static_cast<std::int32_t>(node.priority);
    out.unit = node.cpu                                ? Unit::kCpu
               : node.type == ChakraNodeType::kCompute ? Unit::kGpu
               : node.type == ChakraNodeType::kReceive ? Unit::kNone
                                                       : Unit::kCommunication;
    out.counted = CountedAs(node.type);
    if (system_.replay_only) return Timed(node, out);
    switch (node.type) {
      case ChakraNodeType::kInvalid:
      case ChakraNodeType::kMetadata:
        return out;
      case ChakraNodeType::kCompute:
        if (system_.roofline && !node.cpu) return Roofline(node, out);
        return Timed(node, out);
      case ChakraNodeType::kMemLoad:
      case ChakraNodeType::kMemStore:
        if (!node.Has(ChakraNode::kTensorSize)) return InvalidInput("has no tensor_size");
        out.kind = NodeKind::kMemory;
        out.amount = node.tensor_size;
        return out;
      case ChakraNodeType::kSend:
      case ChakraNodeType::kReceive:
        return Message(rank, node, out);
      case ChakraNodeType::kCollective:
        break;
    }
    return OfCollective(rank, node, trace, out);
  }

  static Result<Node> Timed(const ChakraNode& node, Node out) {
    out.kind = NodeKind::kTimed;
    ORRERY_ASSIGN_OR_RETURN(out.amount, Replayed(node));
    return out;
  }

  // min(peak, intensity · bandwidth); without tensor_size nothing is done.
  Result<Node> Roofline(const ChakraNode& node, Node out) const {
    if (!node.Has(ChakraNode::kNumOps) || !node.Has(ChakraNode::kTensorSize)) {
      return InvalidInput("has no {}, which roofline-enabled needs",
                          node.Has(ChakraNode::kNumOps) ? "tensor_size" : "num_ops");
    }
    if (node.tensor_size == 0) return out;
    if (node.num_ops == 0) {
      return InvalidInput("num_ops is 0 and tensor_size is not: the roofline has no time for it");
    }
    const double intensity =
        static_cast<double>(node.num_ops) / static_cast<double>(node.tensor_size);
    const double flops = std::min(system_.local_mem_bandwidth * intensity, system_.peak_flops);
    const double ns = static_cast<double>(node.num_ops) / flops * 1e9;
    if (!(ns < static_cast<double>(kLatest))) return InvalidInput("the roofline gives {} ns", ns);
    out.kind = NodeKind::kTimed;
    out.amount = static_cast<std::uint64_t>(ns);
    return out;
  }

  Result<Node> Message(std::uint32_t rank, const ChakraNode& node, Node out) const {
    const bool send = node.type == ChakraNodeType::kSend;
    if (!node.Has(send ? ChakraNode::kDestination : ChakraNode::kSource)) {
      return InvalidInput("has no {}", send ? "comm_dst" : "comm_src");
    }
    const bool named = node.Has(send ? ChakraNode::kSource : ChakraNode::kDestination);
    const std::uint32_t own = send ? node.source : node.destination;
    if (named && own != rank) {
      return InvalidInput("{} is {}, and the file is rank {}'s", send ? "comm_src" : "comm_dst",
                          own, rank);
    }
    out.kind = send ? NodeKind::kSend : NodeKind::kReceive;
    out.peer = send ? node.destination : node.source;
    out.tag = node.tag;
    out.amount = node.comm_size;
    if (out.peer >= ranks_ || out.peer == rank) {
      return InvalidInput("{} with rank {}, of {} ranks", Name(node.type), out.peer, ranks_);
    }
    if (out.amount == 0 || out.amount > kMostBytes) {
      return InvalidInput("comm_size {} is not from 1 to 2^50", out.amount);
    }
    return out;
  }

  Result<Node> OfCollective(std::uint32_t rank, const ChakraNode& node, const ChakraTrace& trace,
                            Node out) const {
    if (node.cpu) return InvalidInput("a collective on the CPU");
    if (!node.Has(ChakraNode::kCommType)) return InvalidInput("has no comm_type");
    out.kind = NodeKind::kCollective;
    out.amount = node.comm_size;
    if (out.amount > kMostBytes) return InvalidInput("comm_size {} is beyond 2^50", out.amount);
    if (node.Has(ChakraNode::kInvolvedDim)) out.involved = node.involved;
    switch (node.collective) {
      case ChakraCollective::kAllReduce:
        out.collective = Collective::kAllReduce;
        break;
      case ChakraCollective::kAllGather:
        out.collective = Collective::kAllGather;
        break;
      case ChakraCollective::kReduceScatter:
        out.collective = Collective::kReduceScatter;
        break;
      case ChakraCollective::kAllToAll:
        out.collective = Collective::kAllToAll;
        break;
      case ChakraCollective::kBroadcast: {
        out.kind = NodeKind::kBroadcast;
        ORRERY_ASSIGN_OR_RETURN(out.amount, Replayed(node));
        return out;
      }
      default:
        return InvalidInput(
            "ASTRA-sim has all-reduce, all-gather, reduce-scatter, all-to-all and broadcast, not "
            "collective {}",
            static_cast<int>(node.collective));
    }
    const std::string_view name = trace.text(node.group);
    if (name.size() > 9 || name.find_first_not_of("0123456789") != name.npos) {
      return InvalidInput("pg_name '{}' is no number", Printable(name, 40));
    }
    for (const char c : name) out.group = 10 * out.group + static_cast<std::uint32_t>(c - '0');
    if (out.group == 0) return out;
    const auto known = groups_.find(out.group);
    if (known == groups_.end()) {
      return InvalidInput(
          "group {} (pg_name) is not known: --comm-group-configuration=FILE lists communicators",
          out.group);
    }
    if (std::ranges::find(known->second, rank) == known->second.end()) {
      return InvalidInput("rank {} is no member of group {}", rank, out.group);
    }
    return out;
  }

  std::size_t ranks_;
  const GroupMembers& groups_;
  const SystemConfig& system_;
  const bool names_;
};

// No messages, no communicators: nothing in it depends on whose it is.
bool OfAnyRank(const Program& program) {
  return std::ranges::none_of(program.nodes, [](const Node& n) {
    return n.kind == NodeKind::kSend || n.kind == NodeKind::kReceive || n.group != 0;
  });
}

std::uint64_t HashOf(const Program& program) {
  Hasher hash;
  for (const Node& n : program.nodes) {
    hash.Add(n.id).Add(n.amount).Add(n.group).Add(n.peer).Add(n.tag).Add(n.priority);
    hash.Add(n.kind).Add(n.unit).Add(n.counted).Add(n.collective).Add(n.involved).Add(n.open);
  }
  for (const std::uint32_t e : program.first_edge) hash.Add(e);
  for (const std::uint32_t e : program.edges) hash.Add(e);
  return hash.value();
}

}  // namespace

Result<Workload> MakeWorkload(std::size_t ranks,
                              const std::function<Result<RankFile>(std::size_t)>& read,
                              GroupMembers groups, const SystemConfig& system, bool names) {
  Workload workload;
  workload.groups = std::move(groups);
  Maker maker(ranks, workload.groups, system, names);
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  std::set<std::string> ignored;
  std::string last;  // the bytes of the rank before, where any rank could run them
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    ORRERY_ASSIGN_OR_RETURN(RankFile file, read(rank));
    if (rank > 0 && !last.empty() && file.bytes == last) {
      workload.program_of.push_back(workload.program_of.back());
      workload.operations += workload.of(rank).nodes.size();
      continue;
    }
    ORRERY_ASSIGN_OR_RETURN(const ChakraTrace trace,
                            formats::ParseChakra(file.bytes, file.name, kLargest));
    Result<Program> program = maker.Make(rank, trace);
    if (!program.ok()) return std::move(program).TakeStatus().In(Printable(file.name));
    for (const auto& [name, count] : trace.ignored) ignored.insert(name);
    workload.operations += trace.size();
    last = OfAnyRank(*program) ? std::move(file.bytes) : std::string();
    const auto [at, fresh] =
        known.emplace(HashOf(*program), static_cast<std::uint32_t>(workload.programs.size()));
    if (fresh) workload.programs.push_back(std::make_unique<Program>(*std::move(program)));
    workload.program_of.push_back(at->second);
  }
  if (!ignored.empty()) {
    std::string names;
    std::size_t listed = 0;
    for (const std::string& name : ignored) {
      if (listed++ == 12) break;
      names += (names.empty() ? "" : ", ") + Printable(name, 40);
    }
    if (ignored.size() > 12) names += fmt::format(" and {} more", ignored.size() - 12);
    workload.warnings.push_back("attributes of the trace that nothing here uses: " + names);
  }
  return workload;
}

Result<Program> MakeCustomProgram(const ChakraTrace& trace, std::size_t ranks) {
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const ChakraNode& node = trace.nodes[i];
    if (node.type == ChakraNodeType::kCompute || node.type == ChakraNodeType::kSend ||
        node.type == ChakraNodeType::kReceive) {
      continue;
    }
    return InvalidInput("node {}: a collective's graph has sends, receives and times, not {}",
                        node.id, Name(node.type));
  }
  const SystemConfig system;
  const GroupMembers none;
  // Its ranks are places in the group: the sender's or receiver's own is not checked.
  ChakraTrace own = trace;
  for (ChakraNode& node : own.nodes) {
    const auto both = static_cast<std::uint16_t>(ChakraNode::kSource | ChakraNode::kDestination);
    if (node.type == ChakraNodeType::kSend) {
      node.has = static_cast<std::uint16_t>((node.has & ~both) | ChakraNode::kDestination);
    } else if (node.type == ChakraNodeType::kReceive) {
      node.has = static_cast<std::uint16_t>((node.has & ~both) | ChakraNode::kSource);
    }
  }
  return Maker(ranks + 1, none, system).Make(static_cast<std::uint32_t>(ranks), own);
}

}  // namespace orrery::astra
