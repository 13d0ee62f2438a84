#include "orrery/graph/verify/verify_facts.h"

#include <algorithm>
#include <bit>

#include "orrery/base/hash.h"

namespace orrery::graph::verify {
namespace {

Sequence ElementOf(const Comm& comm) {
  Hasher hash;
  if (!IsPointToPoint(comm.collective)) {
    hash.Add(comm.collective).Add(comm.dtype).Add(comm.stream);
  }
  hash.Add(comm.bytes.value);
  if (comm.shares.valid()) hash.Add(comm.shares.value).Add(comm.returned);
  return Sequence::Of(hash.value());
}

// What the same block has waited for or recorded before tells nothing new.
void AddEvent(std::size_t op, std::int32_t event, bool wait, BlockFacts* facts) {
  for (const EventUse& use : facts->events) {
    if (use.event == event && (wait || !use.wait)) return;
  }
  facts->events.push_back({static_cast<std::uint32_t>(op), event, wait});
}

void Repeat(BlockFacts* facts, std::uint16_t repeat) {
  facts->repeat = repeat;
  facts->repeated = {};
  for (std::uint16_t i = 0; i < repeat; ++i) {
    for (std::size_t s = 0; s < kGroupSlots; ++s) {
      facts->repeated[s].Append(facts->collectives[s]);
    }
  }
}

void Add(const Call& call, BlockFacts* block, ProgramFacts* program) {
  if (call.repeat != block->repeat) Repeat(block, call.repeat);
  program->groups |= block->groups;
  program->peers |= block->peers;
  for (std::uint32_t left = block->groups; left != 0; left &= left - 1) {
    const auto s = static_cast<std::size_t>(std::countr_zero(left));
    program->collectives[s].Append(block->repeated[s]);
  }
  for (const Messages& m : block->messages) {
    Sequence& sequence = program->messages[m.index];
    for (std::uint16_t i = 0; i < call.repeat; ++i) sequence.Append(m.sequence);
  }
}

// A message counts in every set of slots that holds its own.
void AddMessage(const Comm& comm, const Sequence& element, BlockFacts* facts) {
  const bool send = comm.collective == Collective::kSend;
  for (std::size_t set = 1; set < kPeerSets; ++set) {
    if ((set >> static_cast<unsigned>(comm.peer.value) & 1) == 0) continue;
    const std::size_t index = MessageIndex(send, static_cast<std::size_t>(comm.tag), set);
    const auto at = std::find_if(facts->messages.begin(), facts->messages.end(),
                                 [index](const Messages& m) { return m.index == index; });
    if (at == facts->messages.end()) {
      facts->messages.push_back({index, element});
    } else {
      at->sequence.Append(element);
    }
  }
}

}  // namespace

BlockFacts FactsOf(const Block& block) {
  BlockFacts facts;
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    if (op.kind == OpKind::kWait) AddEvent(o, op.event, true, &facts);
    if (op.kind != OpKind::kComm) continue;
    const Comm& comm = block.comms[op.index];
    if (comm.event != kNoEvent) AddEvent(o, comm.event, false, &facts);
    if (IsCopy(comm.collective)) continue;
    const Sequence element = ElementOf(comm);
    if (IsPointToPoint(comm.collective)) {
      facts.peers |= 1u << static_cast<unsigned>(comm.peer.value);
      AddMessage(comm, element, &facts);
    } else {
      facts.groups |= 1u << static_cast<unsigned>(comm.group);
      facts.collectives[static_cast<std::size_t>(comm.group)].Append(element);
    }
  }
  facts.repeated = facts.collectives;
  return facts;
}

ProgramFacts FactsOf(const Program& program, std::span<BlockFacts> blocks, std::size_t tags) {
  ProgramFacts facts;
  facts.messages.resize(MessageIndex(false, tags, 0));
  for (const Call& call : program.prologue) Add(call, &blocks[call.block.index()], &facts);
  for (const Call& call : program.calls) Add(call, &blocks[call.block.index()], &facts);
  return facts;
}

Status CheckCall(const Program& program, const Call& call, std::span<const EventUse> uses,
                 RecordedEvents* recorded) {
  if (!IsShaped(call)) {
    return InvalidInput("repeat {}, micro-batch {}, chunk {}, layer {}", call.repeat,
                        call.microbatch, call.chunk, call.first_layer);
  }
  for (const EventUse& use : uses) {
    const std::int32_t event = use.event == kCallEvent ? call.event : use.event;
    if (event < 0) {
      return InvalidInput("op {}: the event of the call, and the call has none", use.op);
    }
    if (event >= program.events) {
      return InvalidInput("op {}: event {} of {}", use.op, event, program.events);
    }
    if (!use.wait) {
      recorded->insert(event);
    } else if (!recorded->contains(event)) {
      return InvalidInput("op {}: waits for event {}, which nothing has recorded", use.op, event);
    }
  }
  return {};
}

std::string NameOf(const Graph& graph, NameId name) {
  return name.valid() && name.index() < graph.names().size() ? graph.name(name) : "";
}

std::string Where(const Graph& graph, BlockId block) {
  return fmt::format("block {} '{}'", block.value, NameOf(graph, graph.blocks[block.index()].name));
}

std::string Where(const Graph& graph, ProgramId program) {
  return fmt::format("program {} '{}'", program.value, graph.programs[program.index()].name);
}

std::string Where(const Graph& graph, ProgramId program, const Call& call, std::size_t number,
                  bool prologue) {
  return fmt::format("{}, {} {} ({})", Where(graph, program), prologue ? "prologue call" : "call",
                     number, Where(graph, call.block));
}

}  // namespace orrery::graph::verify
