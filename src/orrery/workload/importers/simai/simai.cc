#include "orrery/workload/importers/simai/simai.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/workload/importers/astra_text/layers.h"
#include "orrery/workload/importers/rank_programs.h"

namespace orrery::workload {
namespace {

using graph::Collective;
using graph::GroupSlot;

constexpr std::int64_t kMostGpus = 1 << 20;
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
  std::int64_t ranks() const { return tp * dp * pp; }
};

Result<Layout> ReadLayout(const Header& header) {
  Layout l;
  const auto read = [&header](const char* key, std::int64_t otherwise) {
    return std::max<std::int64_t>(1, header.Number(key, otherwise));
  };
  l.tp = read("model_parallel_NPU_group", 1);
  l.pp = read("pp", 1);
  l.ep = read("ep", 1);
  l.micro_batches = read("ga", 1);
  l.pp_bytes = std::max<std::int64_t>(0, header.Number("pp_comm", 0));
  const std::int64_t gpus = header.Number("all_gpus", 0);
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

// Where the lines of the first micro-batch stand: `ga` equal runs of lines follow each other.
struct Body {
  std::size_t begin = 0, length = 0;
};
Body FindBody(const std::vector<TextLayer>& layers, std::size_t repeats) {
  const auto alike = [&layers](std::size_t a, std::size_t b) {
    const TextLayer &x = layers[a], &y = layers[b];
    const auto same = [](const TextPhase& p, const TextPhase& q) {
      return p.comm == q.comm && p.bytes == q.bytes;
    };
    return x.name == y.name && same(x.forward, y.forward) &&
           same(x.input_gradient, y.input_gradient) && same(x.weight_gradient, y.weight_gradient);
  };
  Body best;
  const std::size_t n = layers.size();
  for (std::size_t begin = 0; begin < n; ++begin) {
    if (best.length * repeats >= n - begin) break;
    for (std::size_t length = (n - begin) / repeats; length > best.length; --length) {
      bool all = true;
      for (std::size_t i = begin + length; all && i < begin + length * repeats; ++i) {
        all = alike(i, i - length);
      }
      if (!all) continue;
      best = {begin, length};
      break;
    }
  }
  return best;
}

// One stage's operations, the same for all of its ranks.
class StageWriter {
 public:
  StageWriter(graph::Graph* graph, const std::vector<TextLayer>& layers, const Layout& layout,
              std::set<std::string>* ignored)
      : graph_(*graph), layers_(layers), layout_(layout), ignored_(*ignored) {}

  Result<RankOps> Write(std::int64_t stage, const Body& body) {
    stage_ = stage;
    out_ = {};
    out_.block.issue = graph::Issue::kFree;
    out_.block.name = graph_.Intern("iteration");
    out_.block.dep_begin.push_back(0);
    last_.clear();
    const std::size_t end =
        body.begin + body.length * static_cast<std::size_t>(layout_.micro_batches);
    ORRERY_RETURN_IF_ERROR(Forward(0, body.begin));
    const std::int64_t m = layout_.micro_batches;
    const std::int64_t warm = std::min(m, layout_.pp - 1 - stage);
    std::int64_t forward = 0;
    const auto run_forward = [&]() -> Status {
      ORRERY_RETURN_IF_ERROR(ForwardBatch(body, forward++));
      return forward == m ? Forward(end, layers_.size()) : Status();
    };
    for (std::int64_t i = 0; i < warm; ++i) ORRERY_RETURN_IF_ERROR(run_forward());
    for (std::int64_t b = 0; b < m; ++b) {
      if (forward < m) ORRERY_RETURN_IF_ERROR(run_forward());
      if (forward == m && !loss_back_) {
        ORRERY_RETURN_IF_ERROR(Backward(end, layers_.size()));
        loss_back_ = true;
      }
      ORRERY_RETURN_IF_ERROR(BackwardBatch(body, b));
    }
    loss_back_ = false;
    ORRERY_RETURN_IF_ERROR(Backward(0, body.begin));
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
    const std::uint32_t op = Add(CommOp(comm, layer.name), phase.bytes);
    if (!weight) last_ = {op};
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
  // To or from a neighbour of the pipeline; what follows a receive waits for it.
  void Message(bool send, bool forward, std::int64_t batch) {
    const bool up = send == forward;  // the next stage
    if (up ? stage_ == layout_.pp - 1 : stage_ == 0) return;
    graph::Comm comm;
    comm.collective = send ? Collective::kSend : Collective::kRecv;
    comm.group = GroupSlot::kPp;
    comm.stream = graph::kNoStream;
    comm.tag = static_cast<std::int32_t>(2 * batch + (forward ? 0 : 1));
    comm.peer = up ? graph::PeerSlot::kNext : graph::PeerSlot::kPrevious;
    const std::uint32_t op =
        Add(CommOp(comm, send ? "send" : "receive"), std::max<std::int64_t>(1, layout_.pp_bytes));
    if (!send) last_ = {op};
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
  Status ForwardBatch(const Body& body, std::int64_t batch) {
    const std::size_t begin = body.begin + body.length * static_cast<std::size_t>(batch);
    Message(false, true, batch);
    ORRERY_RETURN_IF_ERROR(Forward(begin, begin + body.length));
    Message(true, true, batch);
    return {};
  }
  Status BackwardBatch(const Body& body, std::int64_t batch) {
    const std::size_t begin = body.begin + body.length * static_cast<std::size_t>(batch);
    Message(false, false, batch);
    ORRERY_RETURN_IF_ERROR(Backward(begin, begin + body.length));
    Message(true, false, batch);
    return {};
  }

  graph::Graph& graph_;
  const std::vector<TextLayer>& layers_;
  const Layout& layout_;
  std::set<std::string>& ignored_;
  std::int64_t stage_ = 0;
  bool loss_back_ = false;
  RankOps out_;
  std::vector<std::uint32_t> last_;  // what the next operation waits for
};

// Members of a rank's groups, by the layout.
void Bind(const Layout& l, graph::Graph* graph) {
  const std::int64_t n = l.ranks();
  graph->bindings.resize(static_cast<std::size_t>(n));
  const auto rank = [&l](std::int64_t t, std::int64_t d, std::int64_t p) {
    return RankId(static_cast<std::size_t>((p * l.dp + d) * l.tp + t));
  };
  std::map<std::pair<GroupSlot, std::uint32_t>, GroupId> known;  // by first member
  const auto bind = [&](RankId own, GroupSlot slot, const std::vector<RankId>& members) {
    const auto [at, fresh] = known.emplace(std::pair{slot, members[0].value}, GroupId());
    if (fresh) at->second = graph->groups.Add(slot, members);
    graph->bindings[own.index()].groups[static_cast<std::size_t>(slot)] = at->second;
  };
  for (std::int64_t p = 0; p < l.pp; ++p) {
    for (std::int64_t d = 0; d < l.dp; ++d) {
      for (std::int64_t t = 0; t < l.tp; ++t) {
        const RankId own = rank(t, d, p);
        graph::Binding& b = graph->bindings[own.index()];
        b.job = JobId(std::size_t{0});
        b.logical_rank = own.value;
        std::vector<RankId> tp, dp, ep, expert_dp;
        for (std::int64_t i = 0; i < l.tp; ++i) tp.push_back(rank(i, d, p));
        for (std::int64_t i = 0; i < l.dp; ++i) dp.push_back(rank(t, i, p));
        for (std::int64_t i = 0; i < l.ep; ++i) ep.push_back(rank(t, d / l.ep * l.ep + i, p));
        for (std::int64_t i = d % l.ep; i < l.dp; i += l.ep) expert_dp.push_back(rank(t, i, p));
        bind(own, GroupSlot::kTp, tp);
        bind(own, GroupSlot::kDp, dp);
        bind(own, GroupSlot::kEp, ep);
        bind(own, GroupSlot::kExpertDp, expert_dp);
        if (p > 0)
          b.peers[static_cast<std::size_t>(graph::PeerSlot::kPrevious)] = rank(t, d, p - 1);
        if (p + 1 < l.pp)
          b.peers[static_cast<std::size_t>(graph::PeerSlot::kNext)] = rank(t, d, p + 1);
      }
    }
  }
}

}  // namespace

Result<SimaiImport> ImportSimai(std::string_view text, const std::string& name) {
  ORRERY_ASSIGN_OR_RETURN(const LayerText parsed, ParseLayerText(text, name));
  const Header header = ReadHeader(parsed.header);
  Result<Layout> layout = ReadLayout(header);
  if (!layout.ok()) return std::move(layout).TakeStatus().In(Printable(name) + ":1");
  SimaiImport out;
  const auto repeats = static_cast<std::size_t>(layout->micro_batches);
  Body body = FindBody(parsed.layers, repeats);
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
  if (header.Number("vpp", 1) > 1 && layout->pp > 1) {
    out.warnings.push_back(
        fmt::format("vpp is {}: stages run 1F1B, without interleaving", header.Number("vpp", 1)));
  }
  out.assumed.push_back(
      fmt::format("TP {}, DP {} (EP {}), PP {}; {} micro-batches of {} lines, 1F1B", layout->tp,
                  layout->dp, layout->ep, layout->pp, layout->micro_batches, body.length));
  out.graph.jobs.push_back(
      {.name = name, .ranks = static_cast<std::uint32_t>(layout->ranks()), .once = true});
  Bind(*layout, &out.graph);
  RankPrograms programs(&out.graph, static_cast<std::size_t>(layout->ranks()));
  std::set<std::string> ignored;
  StageWriter writer(&out.graph, parsed.layers, *layout, &ignored);
  std::uint32_t rank = 0;
  for (std::int64_t stage = 0; stage < layout->pp; ++stage) {
    Result<RankOps> ops = writer.Write(stage, body);
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
