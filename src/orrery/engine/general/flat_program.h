// A program as the general machine reads it: the operations of all its iterations, one after the
// other, with every order made a dependency.
//
// graph.h orders operations in several ways: by streams, events, dependencies, the host, blocking
// communications. Here all of these are edges between nodes: an edge leads from a node to one that
// begins after its end, or after its start. What is left for the machine is one rule: a node is
// ready when nothing that leads to it is outstanding. Ranks of one program share its nodes.
//
// Cost: 56 bytes a node, 4 an edge; O(operations) to make.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::engine::general {

enum class NodeKind : std::uint8_t {
  // In the order in which nodes that become ready at one instant are taken (GOAL's order).
  kSend,
  kReceive,
  kWork,        // a kernel, or an operation of known time
  kCollective,  // a whole group meets
  kCopy,        // between device and host
  kHost,        // the host issues an operation, or works
  kJoin,        // takes no time
};

struct Node {
  static constexpr std::uint16_t kNone = graph::Hold::kNone;
  static constexpr std::uint32_t kNoOp = 0xFFFFFFFFu;
  static constexpr std::uint32_t kStartEdge = 0x80000000u;  // in edges

  // Bytes of a communication; ps of an operation of known time, of a kHost what the host does
  // besides issuing.
  graph::Quantity amount;
  std::uint32_t first_edge = 0;             // up to the next node's
  std::uint32_t open = 0;                   // edges that lead here
  std::uint32_t block = 0, op = kNoOp;      // kHost: the operation it issues, if any
  std::uint32_t call = 0;                   // counts a call's repeats one by one
  std::uint32_t stream = graph::kNoStream;  // only where its order is not that of issue
  std::uint16_t cpu = kNone, nic = kNone;
  NodeKind kind = NodeKind::kJoin;
  bool raw = false;     // a message of the network's own: it holds a processor or an interface
  bool timed = false;   // its time is `amount`, whatever runs beside it and on whatever host
  bool lagged = false;  // kWork: the host's launches reach it after the launch latency
};

class FlatProgram {
 public:
  struct Instance {  // of a call
    const graph::Call* call = nullptr;
    std::uint32_t number = 0;  // of the call in its program
    std::int32_t layer = 0;
    int iteration = 0;
  };
  // Whether a slot's group has one member, or none, on every rank of the program: what is issued
  // to it meets nobody.
  using Trivial = std::function<bool(graph::GroupSlot)>;

  // REQUIRES: the graph is verified; iterations >= 1.
  FlatProgram(const graph::Graph& graph, const graph::Program& program, int iterations,
              const Trivial& trivial);

  std::size_t size() const { return nodes_.size() - 1; }
  const Node& node(std::size_t i) const { return nodes_[i]; }
  std::span<const std::uint32_t> edges(std::size_t i) const {
    return {edges_.data() + nodes_[i].first_edge, nodes_[i + 1].first_edge - nodes_[i].first_edge};
  }
  const Instance& instance(const Node& n) const { return instances_[n.call]; }
  std::span<const std::uint32_t> roots() const { return roots_; }
  // Of operations of known time, where it is one number for all ranks.
  std::int64_t timed_ps() const { return timed_ps_; }

 private:
  friend class Flattener;
  std::vector<Node> nodes_;  // and one more, for first_edge
  std::vector<std::uint32_t> edges_;
  std::vector<std::uint32_t> roots_;  // nodes that nothing leads to
  std::vector<Instance> instances_;
  std::int64_t timed_ps_ = 0;
};

}  // namespace orrery::engine::general
