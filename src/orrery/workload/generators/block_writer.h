// Writes one block, operation by operation, in host issue order.
//
// Names are interned in the generator's own table; AddJob translates them into the graph's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/graph/graph.h"

namespace orrery::workload {

// Streams and events that blocks agree on. Overlapped p2p has a stream per direction, from
// kPpStream.
inline constexpr std::uint8_t kTpStream = 1, kDpStream = 2, kModelStream = 3, kPpStream = 4;
// Layers never run beside what the model group sums: context parallelism shares its stream.
inline constexpr std::uint8_t kCpStream = kModelStream;
// Expert parallelism: streams beside all others, and an event inside a block.
inline constexpr std::uint8_t kEpStream = 8, kExpertTpStream = 9;
// Copies between device and host.
inline constexpr std::uint8_t kToHostStream = 10, kToDeviceStream = 11;
// Messages of schedules written as passes: a stream for each of eight kinds, from here on.
inline constexpr std::uint8_t kMessageStream = 12;
inline constexpr std::int16_t kExpertEvent = 5;
inline constexpr std::int16_t kGatherEvent = 0, kDgradEvent = 1;  // tp, inside a block
inline constexpr std::int16_t kGradientEvent = 2;                 // last gradient reduction
inline constexpr std::int16_t kBlockP2pEvent = 3;                 // 3 to 6, inside a block
inline constexpr std::int16_t kRingEvent = 3;                     // cp, inside a layer's block
inline constexpr std::int16_t kUnitEvent = 4;  // ZeRO-2 and -3, which have no pipeline: last gather
inline constexpr std::int16_t kShardEvent = 6;      // ZeRO-3: a shard's way from host memory
inline constexpr std::int16_t kFirstCallEvent = 7;  // given out by ProgramWriter

class Names {
 public:
  NameId Intern(std::string_view name);
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, NameId, std::less<>> ids_;
};

class BlockWriter {
 public:
  BlockWriter(Names* names, std::string_view name, graph::Pass pass);

  // The module that following operations belong to.
  void Module(std::string_view module) { module_ = names_->Intern(module); }
  void Kernel(std::string_view name, const graph::Kernel& kernel);
  void Comm(std::string_view name, const graph::Comm& comm);
  // Numbers the group calls of the block apart (Comm::batch).
  std::uint8_t NextBatch() { return ++batches_; }
  void Wait(std::string_view name, std::int16_t event);
  void HostSync(std::string_view name);
  void HostPace(std::string_view name);
  void Host(std::string_view name, std::int64_t ns);  // nothing when 0
  void Alloc(const graph::Buffer& buffer) { Memory(graph::OpKind::kAlloc, buffer); }
  void Free(const graph::Buffer& buffer) { Memory(graph::OpKind::kFree, buffer); }
  // A buffer that lives within this call; ids are given in order.
  graph::Buffer Temporary(std::string_view name, std::int64_t bytes,
                          graph::MemoryKind kind = graph::MemoryKind::kTemporary);
  graph::Buffer Named(std::uint32_t id, std::string_view name, std::int64_t bytes,
                      graph::MemoryKind kind, graph::Lifetime lifetime);

  std::size_t kernels() const { return block_.kernels.size(); }  // so far

  graph::Block Finish();

 private:
  void Memory(graph::OpKind kind, const graph::Buffer& buffer);
  graph::Op Make(graph::OpKind kind, std::size_t index, NameId name) const;

  Names* names_;
  graph::Block block_;
  NameId module_;
  std::uint32_t next_temporary_ = 100;
  std::uint8_t batches_ = 0;
};

}  // namespace orrery::workload
