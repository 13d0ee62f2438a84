#include "orrery/workload/importers/simai/simai.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/workload/importers/astra_text/layers.h"
#include "orrery/workload/importers/rank_programs.h"
#include "orrery/workload/importers/simai/lines.h"

namespace orrery::workload {
namespace {

using graph::Collective;
using graph::GroupSlot;

constexpr std::int64_t kMostGpus = 1 << 20;
constexpr std::int64_t kMostMessageBytes = std::int64_t{1} << 50;  // as a layer's columns
constexpr std::uint32_t kWeightStreams = 16;  // of weight gradients' communications

// The first line: a policy, then keys with their numbers; a colon behind a key is optional.
struct Header {
  std::map<std::string, std::int64_t> numbers;
  std::int64_t Number(const std::string& key, std::int64_t otherwise) const {
    const auto at = numbers.find(key);
    return at == numbers.end() ? otherwise : at->second;
  }
};
Header ReadHeader(const std::vector<std::string>& words) {
  Header header;
  std::string key;
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::int64_t value = 0;
    const char* end = words[i].data() + words[i].size();
    const auto [at, error] = std::from_chars(words[i].data(), end, value);
    if (error == std::errc() && at == end) {
      header.numbers.emplace(key, value);  // the first: lists of checkpoints count first
    } else {
      key = words[i];
      while (key.ends_with(':')) key.pop_back();
    }
  }
  return header;
}

struct Layout {
  std::int64_t tp = 1, dp = 1, pp = 1, ep = 1, micro_batches = 1, pp_bytes = 0;
  std::int64_t chunks = 1;  // of a stage: vpp
  std::int64_t ranks() const { return tp * dp * pp; }
};

// Numbers of the first line that products are made of.
Status CheckHeader(const Header& header) {
  const std::pair<const char*, std::int64_t> most[] = {
      {"model_parallel_NPU_group", kMostGpus}, {"pp", kMostGpus}, {"pp_comm", kMostMessageBytes}};
  for (const auto& [key, limit] : most) {
    const std::int64_t number = header.Number(key, 1);
    if (number <= limit) continue;
    return InvalidInput("{} is {}, and at most {} is expected", key, number, limit);
  }
  return {};
}

Result<Layout> ReadLayout(const Header& header, const SimaiOptions& options) {
  ORRERY_RETURN_IF_ERROR(CheckHeader(header));
  Layout l;
  const auto read = [&header](const char* key, std::int64_t otherwise) {
    return std::max<std::int64_t>(1, header.Number(key, otherwise));
  };
  l.tp = options.tp > 0 ? options.tp : read("model_parallel_NPU_group", 1);
  l.pp = options.pp > 0 ? options.pp : read("pp", 1);
  l.ep = read("ep", 1);
  l.micro_batches = read("ga", 1);
  l.pp_bytes = std::max<std::int64_t>(0, header.Number("pp_comm", 0));
  l.chunks = options.vpp > 0 ? options.vpp : read("vpp", 1);
  const std::int64_t gpus = options.gpus > 0 ? options.gpus : header.Number("all_gpus", 0);
  if (gpus < 1 || gpus > kMostGpus) {
    return InvalidInput("all_gpus is {}, and 1 to {} are expected", gpus, kMostGpus);
  }
  if (l.tp > gpus || l.pp > gpus || gpus % (l.tp * l.pp) != 0) {
    return InvalidInput("{} GPUs (all_gpus) are no multiple of TP {} · PP {}", gpus, l.tp, l.pp);
  }
  l.dp = gpus / (l.tp * l.pp);
  if (l.dp % l.ep != 0) return InvalidInput("DP {} is no multiple of ep {}", l.dp, l.ep);
  return l;
}

struct Parsed {
  Collective collective = Collective::kAllReduce;
  GroupSlot group = GroupSlot::kTp;
  bool none = false;
};
Result<Parsed> ParseComm(const std::string& word, bool weight, std::set<std::string>* ignored) {
  Parsed out;
  std::string_view kind = word;
  out.group = weight ? GroupSlot::kDp : GroupSlot::kTp;
  if (kind.ends_with("_DP_EP")) {
    out.group = GroupSlot::kExpertDp;
    kind.remove_suffix(6);
  } else if (kind.ends_with("_EP")) {
    out.group = GroupSlot::kEp;
    kind.remove_suffix(3);
  }
  constexpr std::string_view kKinds[] = {"NONE",          "ALLREDUCE", "ALLGATHER",
                                         "REDUCESCATTER", "ALLTOALL",  "BROADCAST"};
  constexpr Collective kCollectives[] = {Collective::kBarrier,   Collective::kAllReduce,
                                         Collective::kAllGather, Collective::kReduceScatter,
                                         Collective::kAllToAll,  Collective::kBarrier};
  const auto at = std::ranges::find(kKinds, kind);
  if (at == std::end(kKinds)) {
    return InvalidInput("{}", UnknownName("communication", Printable(word, 40), kKinds));
  }
  out.none = *at == "NONE" || *at == "BROADCAST";
  if (*at == "BROADCAST") ignored->insert("BROADCAST");
  out.collective = kCollectives[at - kKinds];
  return out;
}

// A pass of a stage: a chunk of a micro-batch.
struct Pass {
  std::int64_t batch = 0, chunk = 0;
};
// In which order a stage's forwards run, in groups of as many micro-batches as there are stages,
// chunk by chunk; backwards run in the same order of micro-batches, the last chunk first.
std::vector<Pass> ForwardOrder(const Layout& l) {
  std::vector<Pass> order;
  const std::int64_t group = l.chunks == 1 ? l.micro_batches : l.pp;
  for (std::int64_t from = 0; from < l.micro_batches; from += group) {
    for (std::int64_t chunk = 0; chunk < l.chunks; ++chunk) {
      for (std::int64_t i = 0; i < group; ++i) order.push_back({from + i, chunk});
    }
  }
  return order;
}

// One stage's operations, the same for all of its ranks.
class StageWriter {
 public:
  StageWriter(graph::Graph* graph, const std::vector<TextLayer>& layers, const Layout& layout,
              const SimaiBody& body, const std::vector<std::size_t>& chunks,
              const SimaiOptions& options, std::set<std::string>* ignored)
      : graph_(*graph),
        layers_(layers),
        layout_(layout),
        body_(body),
        chunks_(chunks),
        order_(ForwardOrder(layout)),
        options_(options),
        ignored_(*ignored) {}

  Result<RankOps> Write(std::int64_t stage) {
    stage_ = stage;
    out_ = {};
    out_.block.issue = graph::Issue::kFree;
    out_.block.name = graph_.Intern("iteration");
    out_.block.dep_begin.push_back(0);
    last_.clear();
    const std::size_t end =
        body_.begin + body_.length * static_cast<std::size_t>(layout_.micro_batches);
    ORRERY_RETURN_IF_ERROR(Forward(0, body_.begin));
    const std::size_t all = order_.size();
    const std::int64_t behind = layout_.pp - 1 - stage;
    const auto warm = static_cast<std::size_t>(
        layout_.chunks == 1 ? behind : 2 * behind + (layout_.chunks - 1) * layout_.pp);
    std::size_t forward = 0;
    bool loss_back = false;
    const auto run_forward = [&]() -> Status {
      ORRERY_RETURN_IF_ERROR(ForwardPass(order_[forward++]));
      return forward == all ? Forward(end, layers_.size()) : Status();
    };
    while (forward < std::min(warm, all)) ORRERY_RETURN_IF_ERROR(run_forward());
    for (const Pass& next : order_) {
      if (forward < all) ORRERY_RETURN_IF_ERROR(run_forward());
      if (forward == all && !loss_back) {
        ORRERY_RETURN_IF_ERROR(Backward(end, layers_.size()));
        loss_back = true;
      }
      ORRERY_RETURN_IF_ERROR(BackwardPass({next.batch, layout_.chunks - 1 - next.chunk}));
    }
    ORRERY_RETURN_IF_ERROR(Backward(0, body_.begin));
    return std::move(out_);
  }

 private:
  std::uint32_t Add(graph::Op op, std::int64_t amount, std::int64_t peer = RankOps::kNone) {
    for (const std::uint32_t d : last_) {
      graph::Dep dep;
      dep.op = d & 0x7FFFFFFFu;
      out_.block.deps.push_back(dep);
    }
    out_.block.dep_begin.push_back(static_cast<std::uint32_t>(out_.block.deps.size()));
    out_.block.ops.push_back(op);
    out_.amounts.push_back(amount);
    out_.peers.push_back(peer);
    return static_cast<std::uint32_t>(out_.block.ops.size() - 1);
  }
  void Work(const TextLayer& layer, std::int64_t ns) {
    if (ns == 0) return;
    graph::Op op;
    op.kind = graph::OpKind::kTimed;
    op.index = static_cast<std::uint32_t>(out_.block.times.size());
    op.name = graph_.Intern(Printable(layer.name, 80));
    out_.block.times.emplace_back();
    last_ = {Add(op, ns * kNanosecond)};
  }
  graph::Op CommOp(graph::Comm comm, std::string_view name) {
    graph::Op op;
    op.kind = graph::OpKind::kComm;
    op.index = static_cast<std::uint32_t>(out_.block.comms.size());
    op.name = graph_.Intern(name);
    comm.blocking = false;
    comm.after = graph::kNoStream;
    out_.block.comms.push_back(comm);
    return op;
  }
  // What follows waits for it, unless it is of weight gradients.
  Status Communicate(const TextLayer& layer, const TextPhase& phase, bool weight) {
    Result<Parsed> parsed = ParseComm(phase.comm, weight, &ignored_);
    if (!parsed.ok()) {
      return std::move(parsed).TakeStatus().In(
          fmt::format("layer '{}'", Printable(layer.name, 60)));
    }
    if (parsed->none || SizeOf(parsed->group) == 1 || phase.bytes == 0) return {};
    graph::Comm comm;
    comm.collective = parsed->collective;
    comm.group = parsed->group;
    comm.stream = 1 + static_cast<std::uint32_t>(parsed->group) + (weight ? kWeightStreams : 0);
    ORRERY_RETURN_IF_ERROR(Time(phase.bytes, &comm));
    const std::uint32_t op = Add(CommOp(comm, layer.name), phase.bytes);
    if (!weight || OverlapOf(comm.group)) last_ = {op};
    return {};
  }
  const std::optional<double>& OverlapOf(GroupSlot group) const {
    switch (group) {
      case GroupSlot::kTp:
        return options_.overlap.tp;
      case GroupSlot::kPp:
        return options_.overlap.pp;
      case GroupSlot::kDp:
        return options_.overlap.dp;
      default:
        return options_.overlap.ep;
    }
  }
  // What SimAI's table says, less what is hidden.
  Status Time(std::int64_t bytes, graph::Comm* comm) const {
    if (options_.bandwidths == nullptr) return {};
    const Collective collective =
        comm->collective == Collective::kRecv ? Collective::kSend : comm->collective;
    ORRERY_ASSIGN_OR_RETURN(
        const SimTime time,
        options_.bandwidths->Time(comm->group, collective, bytes, SizeOf(comm->group)));
    const double hidden = OverlapOf(comm->group).value_or(0);
    comm->measured.value = RoundToPs(static_cast<double>(time) * (1 - hidden));
    return {};
  }
  std::int64_t SizeOf(GroupSlot group) const {
    switch (group) {
      case GroupSlot::kTp:
        return layout_.tp;
      case GroupSlot::kEp:
        return layout_.ep;
      case GroupSlot::kExpertDp:
        return layout_.dp / layout_.ep;
      default:
        return layout_.dp;
    }
  }
  // To or from a neighbour of the pipeline; what follows a receive waits for it. The last stage's
  // chunk goes on with the first stage's next. The tag names the receiver's chunk.
  Status Message(bool send, bool forward, const Pass& pass) {
    if (layout_.pp == 1) return {};
    const bool up = send == forward;  // the next stage
    const bool wraps = up ? stage_ == layout_.pp - 1 : stage_ == 0;
    if (wraps && pass.chunk == (up ? layout_.chunks - 1 : 0)) return {};
    const std::int64_t chunk = pass.chunk + (send && wraps ? (up ? 1 : -1) : 0);
    graph::Comm comm;
    comm.collective = send ? Collective::kSend : Collective::kRecv;
    comm.group = GroupSlot::kPp;
    comm.stream = graph::kNoStream;
    comm.tag =
        static_cast<std::int32_t>(2 * (pass.batch * layout_.chunks + chunk) + (forward ? 0 : 1));
    comm.peer = up ? graph::PeerSlot::kNext : graph::PeerSlot::kPrevious;
    const std::int64_t bytes = std::max<std::int64_t>(1, layout_.pp_bytes);
    ORRERY_RETURN_IF_ERROR(Time(bytes, &comm));
    if (send) {
      Add(CommOp(comm, "send"), bytes);
      return {};
    }
    // A table's time is counted from the send on, whatever the receiver is at.
    std::vector<std::uint32_t> before;
    if (options_.bandwidths != nullptr) before.swap(last_);
    before.push_back(Add(CommOp(comm, "receive"), bytes));
    last_ = before;
    return {};
  }

  Status Forward(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      Work(layers_[i], layers_[i].forward.time);
      ORRERY_RETURN_IF_ERROR(Communicate(layers_[i], layers_[i].forward, false));
    }
    return {};
  }
  Status Backward(std::size_t begin, std::size_t end) {
    for (std::size_t i = end; i-- > begin;) {
      const TextLayer& layer = layers_[i];
      Work(layer, layer.input_gradient.time);
      ORRERY_RETURN_IF_ERROR(Communicate(layer, layer.input_gradient, false));
      Work(layer, layer.weight_gradient.time);
      ORRERY_RETURN_IF_ERROR(Communicate(layer, layer.weight_gradient, true));
    }
    return {};
  }
  std::size_t LineOf(const Pass& pass, std::int64_t chunk) const {
    return body_.begin + body_.length * static_cast<std::size_t>(pass.batch) +
           chunks_[static_cast<std::size_t>(chunk)];
  }
  Status ForwardPass(const Pass& pass) {
    ORRERY_RETURN_IF_ERROR(Message(false, true, pass));
    ORRERY_RETURN_IF_ERROR(Forward(LineOf(pass, pass.chunk), LineOf(pass, pass.chunk + 1)));
    return Message(true, true, pass);
  }
  Status BackwardPass(const Pass& pass) {
    ORRERY_RETURN_IF_ERROR(Message(false, false, pass));
    ORRERY_RETURN_IF_ERROR(Backward(LineOf(pass, pass.chunk), LineOf(pass, pass.chunk + 1)));
    return Message(true, false, pass);
  }

  graph::Graph& graph_;
  const std::vector<TextLayer>& layers_;
  const Layout& layout_;
  const SimaiBody& body_;
  const std::vector<std::size_t>& chunks_;
  const std::vector<Pass> order_;
  const SimaiOptions& options_;
  std::set<std::string>& ignored_;
  std::int64_t stage_ = 0;
  RankOps out_;
  std::vector<std::uint32_t> last_;  // what the next operation waits for
};

// Members of a rank's groups, by the layout. O(ranks): a group is made with its first rank.
void Bind(const Layout& l, graph::Graph* graph) {
  const std::int64_t n = l.ranks();
  graph->bindings.resize(static_cast<std::size_t>(n));
  const auto rank = [&l](std::int64_t t, std::int64_t d, std::int64_t p) {
    return RankId(static_cast<std::size_t>((p * l.dp + d) * l.tp + t));
  };
  std::map<std::pair<GroupSlot, std::uint32_t>, GroupId> known;  // by first member
  std::vector<RankId> members;
  const auto bind = [&](RankId own, GroupSlot slot, std::int64_t count, const auto& member) {
    const auto [at, fresh] =
        known.emplace(std::pair{slot, member(std::int64_t{0}).value}, GroupId());
    if (fresh) {
      members.clear();
      for (std::int64_t i = 0; i < count; ++i) members.push_back(member(i));
      at->second = graph->groups.Add(slot, members);
    }
    graph->bindings[own.index()].groups[static_cast<std::size_t>(slot)] = at->second;
  };
  for (std::int64_t p = 0; p < l.pp; ++p) {
    for (std::int64_t d = 0; d < l.dp; ++d) {
      for (std::int64_t t = 0; t < l.tp; ++t) {
        const RankId own = rank(t, d, p);
        graph::Binding& b = graph->bindings[own.index()];
        b.job = JobId(std::size_t{0});
        b.logical_rank = own.value;
        if (l.pp > 1) {
          bind(own, GroupSlot::kPp, l.pp, [&](std::int64_t i) { return rank(t, d, i); });
        }
        bind(own, GroupSlot::kTp, l.tp, [&](std::int64_t i) { return rank(i, d, p); });
        bind(own, GroupSlot::kDp, l.dp, [&](std::int64_t i) { return rank(t, i, p); });
        bind(own, GroupSlot::kEp, l.ep,
             [&](std::int64_t i) { return rank(t, d / l.ep * l.ep + i, p); });
        bind(own, GroupSlot::kExpertDp, l.dp / l.ep,
             [&](std::int64_t i) { return rank(t, d % l.ep + i * l.ep, p); });
        const bool ring = l.pp > 1 && l.chunks > 1;  // chunks go round
        if (p > 0 || ring) {
          b.peers[static_cast<std::size_t>(graph::PeerSlot::kPrevious)] =
              rank(t, d, (p + l.pp - 1) % l.pp);
        }
        if (p + 1 < l.pp || ring) {
          b.peers[static_cast<std::size_t>(graph::PeerSlot::kNext)] = rank(t, d, (p + 1) % l.pp);
        }
      }
    }
  }
}

// Stages that hold several chunks, where the lines and the micro-batches allow it.
std::vector<std::size_t> ChunksOf(const std::vector<TextLayer>& layers, const SimaiBody& body,
                                  Layout* layout, std::vector<std::string>* warnings) {
  if (layout->pp == 1) layout->chunks = 1;
  const std::int64_t wanted = layout->chunks;
  if (wanted > 1 && layout->micro_batches % layout->pp != 0) {
    warnings->push_back(fmt::format(
        "vpp is {}, and {} micro-batches are no multiple of {} stages: stages run 1F1B without "
        "interleaving",
        wanted, layout->micro_batches, layout->pp));
    layout->chunks = 1;
  }
  std::vector<std::size_t> chunks =
      FindChunks(layers, body, static_cast<std::size_t>(layout->chunks));
  if (!chunks.empty()) return chunks;
  warnings->push_back(fmt::format(
      "vpp is {}, and a micro-batch's {} lines are no {} equal chunks: stages run 1F1B without "
      "interleaving",
      wanted, body.length, wanted));
  layout->chunks = 1;
  return FindChunks(layers, body, 1);
}

// To the sizes that were asked for.
Status Move(const Header& header, const Layout& l, std::vector<TextLayer>* layers,
            std::vector<std::string>* assumed) {
  const auto of_file = [&header](const char* key) {
    return std::max<std::int64_t>(1, header.Number(key, 1));
  };
  const auto batches = static_cast<std::size_t>(l.micro_batches);
  ORRERY_RETURN_IF_ERROR(
      MoveShards(of_file("model_parallel_NPU_group"), l.tp, batches, layers, assumed)
          .In("trace.tp"));
  return MoveStages(of_file("pp"), l.pp, batches, layers, assumed).In("trace.pp");
}

void NoteTable(const SimaiOptions& options, std::vector<std::string>* assumed) {
  if (options.bandwidths == nullptr) return;
  assumed->push_back(
      "communication takes bytes over the table's bus bandwidth, in GB/s of 2^30 bytes, whatever "
      "the size; what weight gradients' hides the schedule says");
  const std::pair<std::string_view, const std::optional<double>*> shares[] = {
      {"TP", &options.overlap.tp},
      {"DP", &options.overlap.dp},
      {"EP", &options.overlap.ep},
      {"PP", &options.overlap.pp}};
  for (const auto& [group, share] : shares) {
    if (!*share) continue;
    assumed->push_back(fmt::format("{} % of {} communication is hidden, the rest is waited for",
                                   100 * **share, group));
  }
}

}  // namespace

Result<SimaiImport> ImportSimai(std::string_view text, const std::string& name,
                                const SimaiOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(LayerText parsed, ParseLayerText(text, name));
  const Header header = ReadHeader(parsed.header);
  Result<Layout> layout = ReadLayout(header, options);
  if (!layout.ok()) return std::move(layout).TakeStatus().In(Printable(name) + ":1");
  SimaiImport out;
  ORRERY_RETURN_IF_ERROR(Move(header, *layout, &parsed.layers, &out.assumed).In(Printable(name)));
  const auto repeats = static_cast<std::size_t>(layout->micro_batches);
  SimaiBody body = FindBody(parsed.layers, repeats);
  if (body.length == 0) {
    if (layout->pp > 1) {
      return InvalidInput(
          "{}: ga is {}, and no lines repeat as often: micro-batches of the pipeline "
          "cannot be told",
          Printable(name), repeats);
    }
    out.warnings.push_back(fmt::format(
        "ga is {}, and no lines repeat as often: all of them run as one micro-batch", repeats));
    layout->micro_batches = 1;
    body = {0, parsed.layers.size()};
  }
  const std::vector<std::size_t> chunks = ChunksOf(parsed.layers, body, &*layout, &out.warnings);
  out.assumed.push_back(fmt::format(
      "TP {}, DP {} (EP {}), PP {}; {} micro-batches of {} lines, 1F1B{}", layout->tp, layout->dp,
      layout->ep, layout->pp, layout->micro_batches, body.length,
      layout->chunks > 1 ? fmt::format(" interleaved, {} chunks a stage (vpp)", layout->chunks)
                         : ""));
  if (options.gpus > 0 && options.gpus != header.Number("all_gpus", 0)) {
    out.assumed.push_back(fmt::format(
        "{} GPUs in place of the file's {}: DP grows or shrinks, each replica's lines stay, and so "
        "do the bytes of its collectives",
        options.gpus, header.Number("all_gpus", 0)));
  }
  NoteTable(options, &out.assumed);
  out.graph.jobs.push_back(
      {.name = name, .ranks = static_cast<std::uint32_t>(layout->ranks()), .once = true});
  Bind(*layout, &out.graph);
  RankPrograms programs(&out.graph, static_cast<std::size_t>(layout->ranks()));
  std::set<std::string> ignored;
  StageWriter writer(&out.graph, parsed.layers, *layout, body, chunks, options, &ignored);
  std::uint32_t rank = 0;
  for (std::int64_t stage = 0; stage < layout->pp; ++stage) {
    Result<RankOps> ops = writer.Write(stage);
    if (!ops.ok()) return std::move(ops).TakeStatus().In(Printable(name));
    for (std::int64_t i = 0; i < layout->tp * layout->dp; ++i) {
      programs.Add(rank++, RankOps(*ops));
    }
  }
  programs.Finish();
  if (!ignored.empty()) out.warnings.push_back("BROADCAST lines are left out, as SimAI does");
  return out;
}

}  // namespace orrery::workload
