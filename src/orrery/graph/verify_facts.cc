#include "orrery/graph/verify_facts.h"

#include <algorithm>
#include <bit>

#include "orrery/base/hash.h"

namespace orrery::graph::verify {
namespace {

Sequence ElementOf(const Comm& comm, const Sizes& sizes) {
  Hasher hash;
  if (!IsPointToPoint(comm.collective)) hash.Add(comm.collective).Add(comm.dtype);
  if (sizes.counted) {
    std::int64_t bytes = comm.bytes.value;
    (void)Resolve(comm.bytes, sizes.numbers, &bytes);
    hash.Add(bytes);
  }
  if (comm.shares.valid()) hash.Add(comm.shares.value).Add(comm.returned);
  return Sequence::Of(hash.value());
}

// What the same block has waited for or recorded before tells nothing new.
void AddEvent(std::size_t op, std::int16_t event, bool wait, BlockFacts* facts) {
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
  program->numbers = std::max(program->numbers, block->numbers);
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
    if ((set >> static_cast<unsigned>(comm.peer) & 1) == 0) continue;
    const std::size_t index = MessageIndex(send, comm.tag, set);
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

bool Resolve(Quantity quantity, std::span<const std::int64_t> numbers, std::int64_t* value) {
  *value = quantity.value;
  if (quantity.slot < 0) return quantity.value >= 0;
  if (static_cast<std::size_t>(quantity.slot) >= numbers.size()) return false;
  const std::int64_t factor = numbers[static_cast<std::size_t>(quantity.slot)];
  return !__builtin_mul_overflow(quantity.value, factor, value) && *value >= 0;
}

BlockFacts FactsOf(const Block& block, const Sizes& sizes) {
  BlockFacts facts;
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    if (op.kind == OpKind::kWait) AddEvent(o, op.event, true, &facts);
    if (op.kind != OpKind::kComm) continue;
    const Comm& comm = block.comms[op.index];
    if (comm.event != kNoEvent) AddEvent(o, comm.event, false, &facts);
    if (IsCopy(comm.collective)) continue;
    facts.numbers = std::max(facts.numbers, static_cast<std::int32_t>(comm.bytes.slot) + 1);
    const Sequence element = ElementOf(comm, sizes);
    if (IsPointToPoint(comm.collective)) {
      facts.peers |= 1u << static_cast<unsigned>(comm.peer);
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
