#include "orrery/workload/importers/trace/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/importers/trace/operators.h"

namespace orrery::workload {
namespace {

using formats::TraceComm;
using formats::TraceEvent;
using formats::TraceProgram;
using graph::Block;
using graph::Collective;
using graph::GroupSlot;
using graph::OpKind;
using graph::Pass;
using Kind = TraceEvent::Kind;

constexpr std::size_t kMostOps = 60000;  // of a block; the fast machine takes 65,535

struct NamedCollective {
  std::string_view name;
  Collective collective;
};
constexpr NamedCollective kCollectives[] = {{"all_reduce", Collective::kAllReduce},
                                            {"all_gather", Collective::kAllGather},
                                            {"reduce_scatter", Collective::kReduceScatter},
                                            {"all_to_all", Collective::kAllToAll},
                                            {"broadcast", Collective::kBroadcast},
                                            {"reduce", Collective::kReduce},
                                            {"gather", Collective::kGather},
                                            {"scatter", Collective::kScatter},
                                            {"send", Collective::kSend},
                                            {"recv", Collective::kRecv},
                                            {"barrier", Collective::kBarrier}};

graph::ReduceOp ReductionOf(std::string_view name) {
  if (name == "sum" || name.empty()) return graph::ReduceOp::kSum;
  if (name == "avg") return graph::ReduceOp::kAverage;
  if (name == "max") return graph::ReduceOp::kMax;
  if (name == "min") return graph::ReduceOp::kMin;
  return name == "product" ? graph::ReduceOp::kProduct : graph::ReduceOp::kOther;
}

Pass PassOf(TraceEvent::Pass pass, Pass before) {
  switch (pass) {
    case TraceEvent::Pass::kForward:
      return Pass::kForward;
    case TraceEvent::Pass::kBackward:
    case TraceEvent::Pass::kRecompute:
      return Pass::kBackward;
    case TraceEvent::Pass::kBackwardInput:
      return Pass::kBackwardInput;
    case TraceEvent::Pass::kBackwardWeight:
      return Pass::kBackwardWeight;
    case TraceEvent::Pass::kOptimizer:
      return Pass::kOptimizer;
    case TraceEvent::Pass::kNone:
      break;
  }
  return before;  // between passes: with what came before
}

// nccl-tests' size column of a call (graph::Comm::bytes).
std::int64_t BytesOf(const TraceComm& c) {
  if (c.kind == "send" || c.kind == "all_to_all" || c.kind == "reduce_scatter" ||
      c.kind == "reduce") {
    return c.send;
  }
  return std::max(c.send, c.recv);
}

class Lowering {
 public:
  Lowering(const TraceProgram& source, std::size_t p, const Communicators& communicators,
           graph::Graph* graph, LoweringNotes* notes)
      : source_(source), p_(p), communicators_(communicators), graph_(*graph), notes_(*notes) {
    for (const GroupSlot slot : communicators.Slots()) StreamOfSlot(slot);
  }

  Result<double> Run() {
    FindUses();
    const std::vector<TraceEvent>& step = source_.trace.step;
    for (std::size_t i = 0; i < step.size(); ++i) {
      Status status = Add(step[i], i);
      if (!status.ok()) {
        return std::move(status).In(
            fmt::format("{}:{}", Printable(source_.trace.file), step[i].line));
      }
    }
    if (!block_.ops.empty()) PlaceHost();
    CloseBlock();
    program_.name = fmt::format("like rank {}", source_.rank);
    if (program_.calls.empty()) {
      return InvalidInput("{}: the step has no operations", Printable(source_.trace.file));
    }
    graph_.programs.push_back(std::move(program_));
    return flops_;
  }

 private:
  // Which communications are awaited, and which records of events by another stream.
  void FindUses() {
    std::unordered_map<std::int64_t, std::size_t> last_record;
    const std::vector<TraceEvent>& step = source_.trace.step;
    for (std::size_t i = 0; i < step.size(); ++i) {
      const TraceEvent& e = step[i];
      if (e.kind == Kind::kWait) awaited_.insert(e.number);
      if (e.kind == Kind::kRecord) last_record[e.number] = i;
      if (e.kind != Kind::kAwait) continue;
      const auto record = last_record.find(e.number);
      if (record != last_record.end() && step[record->second].stream != e.stream) {
        used_records_.insert(record->second);
      }
    }
  }

  Status Add(const TraceEvent& e, std::size_t index) {
    switch (e.kind) {
      case Kind::kOp:
        AddOperator(e);
        return {};
      case Kind::kComm:
        if (call_open_) {
          call_.push_back(e);
          return {};
        }
        return AddComms({&e, 1}, -1);
      case Kind::kCallBegin:
        if (call_open_) return InvalidInput("a group call within a group call");
        call_open_ = true;
        return {};
      case Kind::kCallEnd: {
        if (!call_open_) return InvalidInput("the end of a group call that did not begin");
        call_open_ = false;
        const std::vector<TraceEvent> call = std::exchange(call_, {});
        return AddComms(call, e.number);
      }
      case Kind::kWait:
        // A message may be awaited within its call's lines only where PyTorch does not batch it.
        AddWait(e);
        return {};
      case Kind::kRecord:
        if (used_records_.contains(index)) {
          const auto event = event_of_record_.try_emplace(e.number, program_.events);
          if (event.second) ++program_.events;
          Place(e, {.kind = OpKind::kRecord,
                    .event = event.first->second,
                    .name = graph_.Intern("record"),
                    .stream = StreamOf(e.stream)});
          recorded_.insert(e.number);
        } else {
          recorded_.erase(e.number);  // what follows waits for this one, on its own stream
        }
        seen_records_.insert(e.number);
        return {};
      case Kind::kAwait:
        AddAwait(e);
        return {};
      case Kind::kSync:
        AddSync(e);
        return {};
      case Kind::kResident:
      case Kind::kAlloc:
      case Kind::kResize:
      case Kind::kFree:
      case Kind::kUse:
      case Kind::kRouting:
      case Kind::kMark:
        return {};
    }
    return {};
  }

  // --- operators -------------------------------------------------------------------------------

  void AddOperator(const TraceEvent& e) {
    const formats::TraceSignature& s = source_.trace.signatures[static_cast<std::size_t>(e.number)];
    const bool recomputed = e.pass == TraceEvent::Pass::kRecompute;
    const Pass pass = recomputed ? Pass::kForward : PassOf(e.pass, pass_);
    const auto key = std::pair(e.number, pass);
    auto found = work_.find(key);
    if (found == work_.end()) found = work_.emplace(key, WorkOf(s, pass)).first;
    const OperatorWork& work = found->second;
    if (!recomputed && pass != Pass::kOptimizer) flops_ += static_cast<double>(s.flops);
    if (e.module >= 0 && e.module != module_) {
      host_ns_ += graph::IsBackward(pass) ? host_.module_backward : host_.module_forward;
    }
    module_ = e.module;
    switch (work.place) {
      case OperatorPlace::kNothing:
        host_ns_ += host_.view;
        return;
      case OperatorPlace::kHost:
        ++notes_.host_operators;
        host_ns_ += host_.view;
        return;
      case OperatorPlace::kKernel: {
        if (work.unknown) ++notes_.unknown_operators[s.name];
        notes_.side_kernels += e.stream == 0 ? 0 : 1;
        Open(e);
        PlaceHost();
        ++notes_.kernels;
        notes_.kernels_measured += e.nanoseconds >= 0 ? 1 : 0;
        const auto [slot, fresh] =
            kernel_slot_.try_emplace(std::tuple(e.number, pass, e.nanoseconds),
                                     static_cast<std::uint32_t>(block_.kernels.size()));
        if (fresh) {
          if (e.nanoseconds >= 0) {
            notes_.measured.push_back(
                {graph_.blocks.size(), block_.kernels.size(), e.nanoseconds * 1000});
          }
          block_.kernels.push_back(work.kernel);
        }
        Place(e, {.kind = OpKind::kKernel,
                  .index = slot->second,
                  .name = graph_.Intern(s.name),
                  .stream = StreamOf(e.stream)});
        return;
      }
      case OperatorPlace::kCopyToDevice:
      case OperatorPlace::kCopyToHost: {
        const bool in = work.place == OperatorPlace::kCopyToDevice;
        graph::Comm copy;
        copy.collective = in ? Collective::kCopyToDevice : Collective::kCopyToHost;
        copy.group = GroupSlot::kOffload;
        copy.stream = Numbered(in ? "copy in" : "copy out");
        copy.after = StreamOf(e.stream);
        copy.bytes = {work.bytes, -1};
        PlaceComm(e, copy, s.name);
        return;
      }
    }
  }

  // --- communication ---------------------------------------------------------------------------

  Status AddComms(std::span<const TraceEvent> call, std::int64_t work) {
    if (call.empty()) return {};
    host_ns_ += host_.communication;
    const auto of_one = [&](const TraceEvent& e) {
      return source_.trace.groups[CommOf(e).group].ranks.size() == 1;
    };
    if (std::ranges::all_of(call, of_one)) {  // has nothing to say, and none waits for it
      if (work >= 0) event_of_comm_[work] = graph::kNoEvent;
      for (const TraceEvent& e : call) event_of_comm_[e.number] = graph::kNoEvent;
      return {};
    }
    std::int32_t event = graph::kNoEvent;
    bool awaited = work >= 0 && awaited_.contains(work);
    bool blocking = false;
    for (const TraceEvent& e : call) {
      awaited |= awaited_.contains(e.number);
      blocking |= CommOf(e).blocking;
    }
    // What holds up a side stream runs beside the compute stream's kernels, and slows them: it is
    // a communication that its stream waits for.
    const bool aside = blocking && call[0].stream != 0;
    if (aside) blocking = false;
    if ((awaited && !blocking) || aside) event = program_.events++;
    if (work >= 0) event_of_comm_[work] = event;
    for (const TraceEvent& e : call) event_of_comm_[e.number] = event;
    ORRERY_RETURN_IF_ERROR(AddCall(call, blocking, event));
    if (aside) AddWait(call[0]);
    return {};
  }
  Status AddCall(std::span<const TraceEvent> call, bool blocking, std::int32_t event) {
    if (call.size() == 1) return AddComm(call[0], 0, CommOf(call[0]), blocking, event);
    const bool messages = std::ranges::all_of(call, [&](const TraceEvent& e) {
      return CommOf(e).kind == "send" || CommOf(e).kind == "recv";
    });
    if (messages) {
      batch_ = batch_ % 255 + 1;
      for (const TraceEvent& e : call) {
        ORRERY_RETURN_IF_ERROR(AddComm(e, batch_, CommOf(e), blocking, event));
      }
      return {};
    }
    return AddFused(call, blocking, event);
  }
  // Collectives of one group call: those alike in a row are one of all their bytes.
  Status AddFused(std::span<const TraceEvent> call, bool blocking, std::int32_t event) {
    for (std::size_t i = 0; i < call.size();) {
      TraceComm all = CommOf(call[i]);
      std::size_t next = i + 1;
      for (; next < call.size(); ++next) {
        const TraceComm& c = CommOf(call[next]);
        if (c.kind != all.kind || c.group != all.group || c.dtype != all.dtype ||
            c.peer != all.peer) {
          break;
        }
        all.send += c.send, all.recv += c.recv;
      }
      ORRERY_RETURN_IF_ERROR(AddComm(call[i], 0, all, blocking, event));
      i = next;
    }
    return {};
  }
  Status AddComm(const TraceEvent& e, std::uint32_t batch, const TraceComm& c, bool blocking,
                 std::int32_t event) {
    const auto* row = std::ranges::find(kCollectives, c.kind, &NamedCollective::name);
    if (row == std::end(kCollectives)) {
      std::vector<std::string_view> valid;
      for (const NamedCollective& n : kCollectives) valid.push_back(n.name);
      return InvalidInput("{}: {}", Printable(c.op),
                          UnknownName("communication", Printable(c.kind), valid));
    }
    const formats::TraceGroup& group = source_.trace.groups[c.group];
    graph::Comm comm;
    comm.collective = row->collective;
    comm.group = communicators_.SlotOf(p_, c);
    if (graph::IsPointToPoint(comm.collective)) {
      if (std::ranges::find(group.ranks, static_cast<std::uint32_t>(c.peer)) == group.ranks.end()) {
        return InvalidInput("{}: peer {} is no member of group '{}'", Printable(c.op), c.peer,
                            Printable(group.name));
      }
      comm.peer = communicators_.PeerOf(p_, c);
      comm.tag = static_cast<std::int32_t>(c.tag);
    }
    // PyTorch gives a message that it does not batch a communicator of two ranks.
    const bool pair = graph::IsPointToPoint(comm.collective) && batch == 0;
    comm.stream = pair ? Numbered(fmt::format("{} {}", c.group, c.peer)) : StreamOfSlot(comm.group);
    comm.after = StreamOf(e.stream);
    comm.batch = batch;
    comm.blocking = blocking;
    comm.event = event;
    comm.dtype = TypeOf(c.dtype);
    comm.reduce = ReductionOf(c.reduce);
    comm.bytes = {BytesOf(c), -1};
    if (c.kind == "all_to_all") {
      ORRERY_RETURN_IF_ERROR(AddShares(c, group.ranks.size(), &comm));
    }
    PlaceComm(e, comm, c.op);
    return {};
  }
  // Of an uneven all-to-all. Experts' are uneven on one side: every member sends to each what that
  // one gets, or gets back from each what it was sent. What is uneven on both sides would need the
  // other members' calls, and counts as even.
  Status AddShares(const TraceComm& c, std::size_t ranks, graph::Comm* comm) {
    const auto even = [](const std::vector<std::int64_t>& each) {
      return std::ranges::adjacent_find(each, std::ranges::not_equal_to()) == each.end();
    };
    const bool out = !even(c.send_each), in = !even(c.recv_each);
    if (!out && !in) return {};
    const std::vector<std::int64_t>& each = out ? c.send_each : c.recv_each;
    const std::int64_t whole = out ? c.send : c.recv;
    if (out && in) {
      ++notes_.uneven;
      return {};
    }
    std::int64_t sum = 0;
    for (const std::int64_t bytes : each) {
      if (bytes < 0 || bytes > whole - sum) break;
      sum += bytes;
    }
    if (sum != whole || each.size() != ranks) {
      return InvalidInput("{}: '{}' has no {} sizes that sum up to the call's {} bytes",
                          Printable(c.op), out ? "send_each" : "recv_each", ranks, whole);
    }
    graph::Shares shares{.ranks = static_cast<std::uint32_t>(ranks)};
    const double part = static_cast<double>(graph::Shares::kEven) * static_cast<double>(ranks) /
                        static_cast<double>(whole);
    for (const std::int64_t bytes : each) {
      shares.parts.push_back(static_cast<std::int64_t>(static_cast<double>(bytes) * part + 0.5));
    }
    shares.Seal();
    const auto at = std::ranges::find(graph_.shares, shares);
    comm->shares = SharesId(static_cast<std::size_t>(at - graph_.shares.begin()));
    if (at == graph_.shares.end()) graph_.shares.push_back(std::move(shares));
    comm->returned = in;
    comm->bytes = {whole, -1};
    return {};
  }
  void PlaceComm(const TraceEvent& e, const graph::Comm& comm, const std::string& name) {
    Open(e);
    PlaceHost();
    block_.comms.push_back(comm);
    Place(e, {.kind = OpKind::kComm,
              .index = static_cast<std::uint32_t>(block_.comms.size() - 1),
              .name = graph_.Intern(name)});
    const bool copy = graph::IsCopy(comm.collective);
    if (!comm.blocking && !copy) outstanding_[comm.event].insert(comm.stream);
  }

  // On the stream of the event, for the communication of its number.
  void AddWait(const TraceEvent& e) {
    const auto found = event_of_comm_.find(e.number);
    if (found == event_of_comm_.end()) {
      ++notes_.waits_before_step;
      return;
    }
    const std::int32_t event = found->second;
    if (event == graph::kNoEvent) return;  // its call has waited
    outstanding_.erase(event);
    Place(e, {.kind = OpKind::kWait,
              .event = event,
              .name = graph_.Intern("wait"),
              .stream = StreamOf(e.stream)});
  }
  void AddAwait(const TraceEvent& e) {
    if (!seen_records_.contains(e.number)) {
      ++notes_.waits_before_step;
      return;
    }
    if (!recorded_.contains(e.number)) return;  // of its own stream: nothing to wait for
    Place(e, {.kind = OpKind::kWait,
              .event = event_of_record_[e.number],
              .name = graph_.Intern("wait"),
              .stream = StreamOf(e.stream)});
  }
  void AddSync(const TraceEvent& e) {
    const auto sync = [&](std::uint32_t stream) {
      Place(e, {.kind = OpKind::kHostSync, .name = graph_.Intern("synchronise"), .stream = stream});
    };
    if (e.stream != TraceEvent::kDevice) {
      sync(StreamOf(e.stream));
      return;
    }
    sync(graph::kComputeStream);
    for (const std::uint32_t side : side_streams_) sync(side);
    std::set<std::uint32_t> busy;
    for (const auto& [event, streams] : outstanding_) busy.insert(streams.begin(), streams.end());
    for (const std::uint32_t stream : busy) sync(stream);
    outstanding_.clear();
  }

  // --- streams and blocks ----------------------------------------------------------------------

  const TraceComm& CommOf(const TraceEvent& e) const {
    return source_.trace.comms[static_cast<std::size_t>(e.comm)];
  }
  // Communicators have one stream in all programs, since members of a collective meet there. Behind
  // them pairs, copies and the program's own count in order of first use.
  std::uint32_t StreamOfSlot(GroupSlot slot) {
    return Numbered(fmt::format("slot {}", static_cast<int>(slot)));
  }
  std::uint32_t Numbered(const std::string& key) {
    return streams_.try_emplace(key, static_cast<std::uint32_t>(streams_.size() + 1)).first->second;
  }
  std::uint32_t StreamOf(std::int32_t traced) {
    if (traced == TraceEvent::kHost) return graph::kHostStream;
    if (traced == 0) return graph::kComputeStream;
    const std::uint32_t number = Numbered(fmt::format("stream {}", traced));
    side_streams_.insert(number);
    return number;
  }
  // The block that the event belongs to is open.
  void Open(const TraceEvent& e) {
    const Pass pass = PassOf(e.pass, pass_);
    const std::int32_t mb =
        e.micro_batch >= 0 || e.pass != TraceEvent::Pass::kNone ? e.micro_batch : micro_batch_;
    const bool begun = !block_.ops.empty();
    if (begun && (pass != pass_ || mb != micro_batch_ || block_.ops.size() >= kMostOps)) {
      CloseBlock();
    }
    pass_ = pass;
    micro_batch_ = mb;
  }
  void Place(const TraceEvent& e, graph::Op op) {
    if (op.kind == OpKind::kKernel || op.kind == OpKind::kComm) {
      if (e.module >= 0) {
        op.module = graph_.Intern(source_.trace.modules[static_cast<std::size_t>(e.module)]);
      }
    }
    block_.ops.push_back(op);
  }
  // What the host did since the last kernel or communication, beside issuing it.
  void PlaceHost() {
    if (host_ns_ == 0) return;
    block_.ops.push_back({.kind = OpKind::kHost,
                          .index = static_cast<std::uint32_t>(block_.host_ps.size()),
                          .name = graph_.Intern("host")});
    block_.host_ps.push_back(std::exchange(host_ns_, 0) * 1000);
  }
  void CloseBlock() {
    if (block_.ops.empty()) return;
    block_.pass = pass_;
    block_.name = graph_.Intern(std::string(graph::Name(pass_)));
    block_.Seal();
    program_.calls.push_back({.block = BlockId(graph_.blocks.size()), .microbatch = micro_batch_});
    graph_.blocks.push_back(std::exchange(block_, {}));
    kernel_slot_.clear();
  }

  const TraceProgram& source_;
  const std::size_t p_;
  const Communicators& communicators_;
  graph::Graph& graph_;
  LoweringNotes& notes_;
  graph::Program program_;
  Block block_;
  Pass pass_ = Pass::kForward;
  std::int32_t micro_batch_ = -1;
  double flops_ = 0;
  const HostWork host_ = HostOf(HostEra::kFsdp, Plan(), constants::Set());
  std::int64_t host_ns_ = 0;
  std::int32_t module_ = -1;                                    // that the last operator was of
  std::map<std::pair<std::int64_t, Pass>, OperatorWork> work_;  // by signature
  // In block_, by signature, pass and measured time.
  std::map<std::tuple<std::int64_t, Pass, std::int64_t>, std::uint32_t> kernel_slot_;
  std::map<std::string, std::uint32_t> streams_;
  std::set<std::uint32_t> side_streams_;
  std::uint32_t batch_ = 0;
  bool call_open_ = false;
  std::vector<TraceEvent> call_;
  std::set<std::int64_t> awaited_;       // numbers of works that something waits for
  std::set<std::size_t> used_records_;   // lines of the step
  std::set<std::int64_t> recorded_;      // traced events whose last record is in the graph
  std::set<std::int64_t> seen_records_;  // traced events recorded in this step
  std::unordered_map<std::int64_t, std::int32_t> event_of_comm_, event_of_record_;
  // Streams of communications that nothing has waited for, by event.
  std::map<std::int32_t, std::set<std::uint32_t>> outstanding_;
};

}  // namespace

Result<double> LowerProgram(const formats::TraceDirectory& directory, std::size_t p,
                            const Communicators& communicators, graph::Graph* graph,
                            LoweringNotes* notes) {
  return Lowering(directory.programs[p], p, communicators, graph, notes).Run();
}

}  // namespace orrery::workload
