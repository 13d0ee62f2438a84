#include "orrery/engine/general/flat_program.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "orrery/base/check.h"

namespace orrery::engine::general {

using graph::Block;
using graph::Comm;
using graph::kCallEvent;
using graph::kNoEvent;
using graph::kNoStream;
using graph::Op;
using graph::OpKind;

// What a stream, the host or an event has come to: the nodes that must end before the next begins.
using Frontier = std::vector<std::uint32_t>;

// Frontiers by number. A program may name any number below 2^31: those of large ones take memory
// only where they are used.
class Frontiers {
 public:
  // References hold until the next call.
  Frontier& operator[](std::uint32_t number) {
    if (number >= kDense) return sparse_[number];
    if (number >= dense_.size()) dense_.resize(std::size_t{number} + 1);
    return dense_[number];
  }
  // All that were ever asked for.
  void SetAll(const Frontier& to) {
    for (Frontier& f : dense_) f = to;
    for (auto& [number, f] : sparse_) f = to;
  }

 private:
  static constexpr std::uint32_t kDense = 1 << 16;
  std::vector<Frontier> dense_;
  std::unordered_map<std::uint32_t, Frontier> sparse_;
};

class Flattener {
 public:
  Flattener(const graph::Graph& graph, const graph::Program& program, int iterations,
            const FlatProgram::Trivial& trivial, FlatProgram* out)
      : graph_(graph), program_(program), iterations_(iterations), trivial_(trivial), out_(*out) {}

  void Run() {
    for (int k = 0; k < iterations_; ++k) {
      if (k > 0) CloseIteration();
      for (const graph::Call& call : program_.calls) {
        const Block& block = graph_.blocks[call.block.index()];
        const int step = graph::IsBackward(block.pass) ? -1 : 1;
        for (int i = 0; i < call.repeat; ++i) {
          const auto number = static_cast<std::uint32_t>(&call - program_.calls.data());
          out_.instances_.push_back({&call, number, call.first_layer + step * i, k});
          if (block.issue == graph::Issue::kHost) {
            AddIssued(call, block);
          } else {
            AddFree(call, block);
          }
        }
      }
    }
    Link();
  }

 private:
  struct Edge {
    std::uint32_t from = 0, to = 0;  // `from` with the start bit
  };

  std::uint32_t NewNode(NodeKind kind, const graph::Call& call, std::uint32_t op) {
    Node n;
    n.kind = kind;
    n.block = call.block.value;
    n.op = op;
    n.call = static_cast<std::uint32_t>(out_.instances_.size() - 1);
    out_.nodes_.push_back(n);
    return static_cast<std::uint32_t>(out_.nodes_.size() - 1);
  }
  Node& at(std::uint32_t node) { return out_.nodes_[node]; }
  void Lead(const Frontier& from, std::uint32_t to) {
    for (const std::uint32_t f : from) edges_.push_back({f, to});
  }
  // Adds `more` to a frontier. A long one is joined in a node, so that edges stay linear.
  void Merge(const Frontier& more, Frontier* into, const graph::Call& call) {
    for (const std::uint32_t m : more) {
      if (std::find(into->begin(), into->end(), m) == into->end()) into->push_back(m);
    }
    constexpr std::size_t kLongest = 8;
    if (into->size() <= kLongest) return;
    const std::uint32_t join = NewNode(NodeKind::kJoin, call, Node::kNoOp);
    Lead(*into, join);
    *into = {join};
  }
  Frontier& stream(std::uint32_t number) { return streams_[number]; }
  Frontier& event(std::int32_t number, const graph::Call& call) {
    return events_[static_cast<std::uint32_t>(number == kCallEvent ? call.event : number)];
  }

  // What every node takes from its operation.
  std::uint32_t AddOp(const graph::Call& call, const Block& block, std::uint32_t number) {
    const Op& op = block.ops[number];
    NodeKind kind = NodeKind::kWork;
    if (op.kind == OpKind::kComm) {
      const graph::Collective c = block.comms[op.index].collective;
      kind = graph::IsCopy(c)                ? NodeKind::kCopy
             : c == graph::Collective::kSend ? NodeKind::kSend
             : c == graph::Collective::kRecv ? NodeKind::kReceive
                                             : NodeKind::kCollective;
    }
    const std::uint32_t node = NewNode(kind, call, number);
    Node& n = at(node);
    if (op.kind == OpKind::kComm) n.amount = block.comms[op.index].bytes;
    if (op.kind == OpKind::kTimed) {
      n.amount = block.times[op.index];
      n.timed = true;
      if (n.amount.slot < 0) out_.timed_ps_ += n.amount.value;
    }
    if (op.hold != 0) {
      n.cpu = block.holds[op.hold - 1u].cpu;
      n.nic = block.holds[op.hold - 1u].nic;
      n.raw = kind == NodeKind::kSend || kind == NodeKind::kReceive;
    }
    return node;
  }
  // In its stream's order, which is a chain of edges only where it is that of issue.
  void Chain(std::uint32_t number, std::uint32_t node) {
    if (number == kNoStream) return;
    if (graph_.order_of(number) != graph::StreamOrder::kInOrder) {
      at(node).stream = number;
      return;
    }
    Lead(stream(number), node);
    stream(number) = {node};
  }

  // A block that nobody issues.
  void AddFree(const graph::Call& call, const Block& block) {
    node_of_.assign(block.ops.size(), Node::kNoOp);
    std::uint32_t batch = 0;
    for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
      const Op& op = block.ops[i];
      switch (op.kind) {
        case OpKind::kAlloc:
        case OpKind::kFree:
        case OpKind::kHostPace:
          break;
        case OpKind::kRecord:
          event(op.event, call) = stream(op.stream);
          break;
        case OpKind::kWait:
          Merge(event(op.event, call),
                op.stream == graph::kHostStream ? &host_ : &stream(op.stream), call);
          break;
        case OpKind::kHostSync:
          Merge(stream(op.stream), &host_, call);
          break;
        case OpKind::kComm:
          AddFreeComm(call, block, i, &batch);
          break;
        case OpKind::kHost: {
          const std::uint32_t node = NewNode(NodeKind::kHost, call, Node::kNoOp);
          at(node).amount = {block.host_ps[op.index], -1};
          at(node).timed = true;
          node_of_[i] = node;
          if (op.stream == kNoStream) break;
          Frontier& thread = op.stream == graph::kComputeStream ? host_ : stream(op.stream);
          Lead(thread, node);
          thread = {node};
          break;
        }
        case OpKind::kKernel:
        case OpKind::kTimed:
          node_of_[i] = AddOp(call, block, i);
          Chain(op.stream, node_of_[i]);
          break;
      }
    }
    LeadDependencies(block);
  }
  void LeadDependencies(const Block& block) {
    if (block.deps.empty()) return;
    for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
      for (const graph::Dep d : block.deps_of(i)) {
        edges_.push_back({node_of_[d.op] | (d.on_start ? Node::kStartEdge : 0), node_of_[i]});
      }
    }
  }
  void AddFreeComm(const graph::Call& call, const Block& block, std::uint32_t i,
                   std::uint32_t* batch) {
    const Comm& comm = block.comms[block.ops[i].index];
    const std::uint32_t node = AddOp(call, block, i);
    node_of_[i] = node;
    if (comm.stream == kNoStream || graph_.order_of(comm.stream) != graph::StreamOrder::kInOrder) {
      Chain(comm.stream, node);
      batch_first_ = node;
    } else {
      InBatch(comm, node, batch);
    }
    Record(comm, call, node);
  }
  // A group call's parts begin together, behind what the stream had before, and end as one.
  void InBatch(const Comm& comm, std::uint32_t node, std::uint32_t* batch) {
    Frontier& tail = stream(comm.stream);
    const bool joins = comm.batch != 0 && comm.batch == *batch;
    *batch = comm.batch;
    if (!joins) {
      before_batch_ = tail;
      tail.clear();
      batch_first_ = node;
    }
    Lead(before_batch_, node);
    tail.push_back(node);
  }
  // A group call records an event when all of its parts that name it are over.
  void Record(const Comm& comm, const graph::Call& call, std::uint32_t node) {
    if (comm.event == kNoEvent) return;
    Frontier& e = event(comm.event, call);
    std::erase_if(e, [this](std::uint32_t n) { return n < batch_first_; });
    e.push_back(node);
  }

  // The host's part of an operation: what it did before, and the launch.
  void Issue(const graph::Call& call, std::uint32_t op) {
    const std::uint32_t node = NewNode(NodeKind::kHost, call, op);
    at(node).amount = {pending_, -1};
    pending_ = 0;
    Lead(host_, node);
    host_ = {node};
  }

  // A block that one host issues in order.
  void AddIssued(const graph::Call& call, const Block& block) {
    node_of_.assign(block.ops.size(), Node::kNoOp);
    std::uint32_t batch = 0;
    for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
      const Op& op = block.ops[i];
      if (op.kind != OpKind::kComm) batch = 0;
      switch (op.kind) {
        case OpKind::kAlloc:
        case OpKind::kFree:
          break;
        case OpKind::kHost:
          pending_ += block.host_ps[op.index];
          break;
        case OpKind::kRecord:
          event(op.event, call) = stream(op.stream);
          break;
        case OpKind::kWait: {
          const bool host = op.stream == graph::kHostStream;
          if (host && pending_ > 0) Issue(call, Node::kNoOp);
          Merge(event(op.event, call), host ? &host_ : &stream(op.stream), call);
          break;
        }
        case OpKind::kHostSync:
          Merge(stream(op.stream), &host_, call);
          if (pending_ > 0) Issue(call, Node::kNoOp);
          break;
        case OpKind::kHostPace:
          if (pending_ > 0) Issue(call, Node::kNoOp);
          Merge(pace_, &host_, call);
          pace_ = stream(graph::kComputeStream);
          break;
        case OpKind::kKernel:
        case OpKind::kTimed: {
          Issue(call, i);
          const std::uint32_t node = node_of_[i] = AddOp(call, block, i);
          at(node).lagged = true;
          Lead(host_, node);
          Chain(op.stream, node);
          break;
        }
        case OpKind::kComm:
          AddIssuedComm(call, block, i, &batch);
          break;
      }
    }
    if (pending_ > 0) Issue(call, Node::kNoOp);
    LeadDependencies(block);
  }
  void AddIssuedComm(const graph::Call& call, const Block& block, std::uint32_t i,
                     std::uint32_t* batch) {
    const Comm& comm = block.comms[block.ops[i].index];
    const bool opens = comm.batch == 0 || comm.batch != *batch;
    if (opens) Issue(call, i);
    const bool local = graph::IsCopy(comm.collective) || graph::IsPointToPoint(comm.collective);
    // Nobody to meet: only its issue takes time.
    if (!local && block.deps.empty() && trivial_(comm.group)) return;
    if (opens) {
      batch_after_ = comm.after == kNoStream ? Frontier() : stream(comm.after);
      if (comm.blocking && comm.after != kNoStream) stream(comm.after).clear();
    }
    const std::uint32_t node = node_of_[i] = AddOp(call, block, i);
    Lead(host_, node);
    Lead(batch_after_, node);
    InBatch(comm, node, batch);
    Record(comm, call, node);
    if (comm.blocking && comm.after != kNoStream) stream(comm.after).push_back(node);
  }

  // What nobody issues in the next iteration begins after all of this one.
  void CloseIteration() {
    const bool any_free =
        std::any_of(program_.calls.begin(), program_.calls.end(), [this](const graph::Call& c) {
          return graph_.blocks[c.block.index()].issue == graph::Issue::kFree;
        });
    if (!any_free) return;
    const graph::Call& call = program_.calls.back();
    const std::uint32_t join = NewNode(NodeKind::kJoin, call, Node::kNoOp);
    std::vector<bool> leads(join, false);
    for (const Edge& e : edges_) leads[e.from & ~Node::kStartEdge] = true;
    for (std::uint32_t n = first_; n < join; ++n) {
      if (!leads[n]) edges_.push_back({n, join});
    }
    first_ = join;
    streams_.SetAll({join});
    events_.SetAll({join});
    host_ = {join};
    gates_.push_back(join);
  }

  // Edges by node, in the order in which they were made; roots behind a gate wait for it.
  void Link() {
    const std::size_t n = out_.nodes_.size();
    ORRERY_CHECK(n < Node::kStartEdge, "a program of more than 2^31 operations");
    std::vector<bool> led(n, false);
    for (const Edge& e : edges_) led[e.to] = true;
    for (std::size_t g = 0; g < gates_.size(); ++g) {
      const std::size_t end = g + 1 < gates_.size() ? gates_[g + 1] : n;
      for (std::size_t i = gates_[g] + 1; i < end; ++i) {
        if (!led[i]) edges_.push_back({gates_[g], static_cast<std::uint32_t>(i)});
      }
    }
    out_.nodes_.emplace_back();
    std::vector<std::uint32_t> count(n + 1, 0);
    for (const Edge& e : edges_) {
      ++count[e.from & ~Node::kStartEdge];
      ++out_.nodes_[e.to].open;
    }
    std::uint32_t first = 0;
    for (std::size_t i = 0; i <= n; ++i) {
      out_.nodes_[i].first_edge = first;
      first += count[i];
      count[i] = out_.nodes_[i].first_edge;
    }
    out_.edges_.resize(edges_.size());
    for (const Edge& e : edges_) {
      out_.edges_[count[e.from & ~Node::kStartEdge]++] = e.to | (e.from & Node::kStartEdge);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (out_.nodes_[i].open == 0) out_.roots_.push_back(static_cast<std::uint32_t>(i));
    }
    out_.nodes_.shrink_to_fit();
  }

  const graph::Graph& graph_;
  const graph::Program& program_;
  const int iterations_;
  const FlatProgram::Trivial& trivial_;
  FlatProgram& out_;
  std::vector<Edge> edges_;
  Frontiers streams_, events_;
  Frontier host_, pace_, before_batch_, batch_after_;
  std::vector<std::uint32_t> node_of_, gates_;
  std::uint32_t first_ = 0, batch_first_ = 0;
  std::int64_t pending_ = 0;
};

FlatProgram::FlatProgram(const graph::Graph& graph, const graph::Program& program, int iterations,
                         const Trivial& trivial) {
  Flattener(graph, program, iterations, trivial, this).Run();
}

}  // namespace orrery::engine::general
