// One host's operations, written one after the other: a block that nobody issues, whose messages
// and work hold processors.
//
// Cost: O(1) an operation.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "orrery/base/time.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

class HostProgram {
 public:
  using Op = std::uint32_t;
  static constexpr Op kNone = 0xFFFFFFFFu;

  // `rank` of `ranks`.
  HostProgram(std::uint32_t rank, std::uint32_t ranks) : rank_(rank), ranks_(ranks) {
    block_.dep_begin.push_back(0);
  }

  // A host's block before it has operations.
  static graph::Block Empty(NameId name) {
    graph::Block block;
    block.name = name;
    block.issue = graph::Issue::kFree;
    block.holds = {{.cpu = kService}, {.cpu = kStack, .nic = 0}};
    return block;
  }

  // Each begins after `after` (kNone among them: nothing).
  Op Send(std::uint32_t to, std::int64_t bytes, std::int32_t tag, std::span<const Op> after) {
    return Message(graph::Collective::kSend, to, bytes, tag, after);
  }
  Op Receive(std::uint32_t from, std::int64_t bytes, std::int32_t tag, std::span<const Op> after) {
    return Message(graph::Collective::kRecv, from, bytes, tag, after);
  }
  // The host's service works; one piece of work at a time.
  Op Work(SimTime time, std::span<const Op> after) {
    const auto index = static_cast<std::uint32_t>(block_.times.size());
    block_.times.push_back({time, -1});
    return Add(graph::OpKind::kTimed, index, 1, after);
  }
  // Time passes.
  Op Delay(SimTime time, std::initializer_list<Op> after) {
    const auto index = static_cast<std::uint32_t>(block_.host_ps.size());
    block_.host_ps.push_back(time);
    return Add(graph::OpKind::kHost, index, 0, {after.begin(), after.size()});
  }
  // Over when all of `after` are.
  Op Done(std::span<const Op> after) {
    const auto index = static_cast<std::uint32_t>(block_.times.size());
    block_.times.push_back({0, -1});
    return Add(graph::OpKind::kTimed, index, 0, after);
  }

  // Gives the operations to the block that Empty made for the rank.
  void Finish(std::uint32_t rank, graph::Graph* graph) && {
    const auto& program = graph->programs[graph->bindings[rank].program.index()];
    graph::Block& block = graph->blocks[program.calls.front().block.index()];
    const NameId names[] = {graph->Intern("send"), graph->Intern("receive"), graph->Intern("serve"),
                            graph->Intern("answered"), graph->Intern("wait")};
    for (graph::Op& op : block_.ops) op.name = names[NameOf(op)];
    if (block_.deps.empty()) block_.dep_begin.clear();
    block_.name = block.name;
    block_.issue = block.issue;
    block_.holds = std::move(block.holds);
    block = std::move(block_);
    block.Seal();
  }

 private:
  static constexpr std::uint16_t kService = 0, kStack = 1;  // processors

  std::size_t NameOf(const graph::Op& op) const {
    if (op.kind == graph::OpKind::kHost) return 4;
    if (op.kind == graph::OpKind::kTimed) return op.hold == 0 ? 3 : 2;
    return block_.comms[op.index].collective == graph::Collective::kSend ? 0 : 1;
  }
  Op Message(graph::Collective way, std::uint32_t peer, std::int64_t bytes, std::int32_t tag,
             std::span<const Op> after) {
    const auto index = static_cast<std::uint32_t>(block_.comms.size());
    graph::Comm& comm = block_.comms.emplace_back();
    comm.collective = way;
    comm.group = graph::GroupSlot::kPp;
    comm.peer = {graph::PeerKind::kOffset,
                 static_cast<std::int32_t>((peer + ranks_ - rank_) % ranks_)};
    comm.stream = comm.after = graph::kNoStream;
    comm.tag = tag;
    comm.blocking = false;
    comm.bytes = {bytes, -1};
    return Add(graph::OpKind::kComm, index, 2, after);
  }
  // `hold`: one above its entry in holds; 0: none.
  Op Add(graph::OpKind kind, std::uint32_t index, std::uint16_t hold, std::span<const Op> after) {
    const auto number = static_cast<Op>(block_.ops.size());
    graph::Op& op = block_.ops.emplace_back();
    op.kind = kind;
    op.index = index;
    if (kind != graph::OpKind::kComm) op.stream = graph::kNoStream;
    op.hold = hold;
    for (const Op other : after) {
      if (other == kNone) continue;
      graph::Dep dep;
      dep.op = other;
      block_.deps.push_back(dep);
    }
    block_.dep_begin.push_back(static_cast<std::uint32_t>(block_.deps.size()));
    return number;
  }

  std::uint32_t rank_, ranks_;
  graph::Block block_;
};

}  // namespace orrery::workload
