// Chakra execution traces (.et): one file a rank, its operations with what they depend on.
//
// A file is a sequence of [varint length][message], the first GlobalMetadata, all others Node
// (schema 0.0.4, unchanged in Chakra 1.0; docs/formats/chakra.md lists the fields); it may be
// gzipped. Attributes come in any integer type. Attributes that are not read
// are counted by name.
//
// Source: the MLCommons Chakra schema (schema/protobuf/et_def.proto, 1.0.0). Cost: O(bytes); 120
// bytes a node and 8 a dependency beside the file's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

enum class ChakraNodeType : std::uint8_t {
  kInvalid,
  kMetadata,
  kMemLoad,
  kMemStore,
  kCompute,
  kSend,
  kReceive,
  kCollective,
};
std::string_view Name(ChakraNodeType type);

enum class ChakraCollective : std::uint8_t {
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kBroadcast,
  kAllToAll,
  kReduceScatter,
  kReduceScatterBlock,
  kBarrier,
  kNone,
};
inline constexpr int kChakraCollectives = 10;
inline constexpr std::size_t kMostChakraNodes = 1 << 24;  // of a rank: some 2.5 GB in memory

struct ChakraNode {
  // Attributes that a node has, as bits.
  enum Bit : std::uint16_t {
    kCommType = 1,
    kCommSize = 2,
    kSource = 4,
    kDestination = 8,
    kTag = 16,
    kInvolvedDim = 32,
    kNumOps = 64,
    kTensorSize = 128,
    kCpuOp = 256,
    kDurationPs = 512,
  };
  struct Text {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
  };
  std::uint64_t id = 0;
  std::uint64_t duration_us = 0;
  std::uint64_t duration_ps = 0;  // the same, exactly: an attribute that Orrery alone writes
  std::uint64_t num_ops = 0, tensor_size = 0, comm_size = 0;  // FLOP, bytes, bytes
  std::uint64_t first_dep = 0;                                // up to the next node's
  std::uint64_t offset = 0;                                   // in its file, for messages
  Text name, group;
  std::uint32_t source = 0, destination = 0, tag = 0;
  std::uint32_t priority = 0;
  std::uint16_t has = 0;
  ChakraNodeType type = ChakraNodeType::kInvalid;
  ChakraCollective collective = ChakraCollective::kNone;
  bool cpu = false;
  std::uint8_t involved_dims = 0;  // how many entries involved_dim has, at most 8
  std::uint8_t involved = 0;       // and which are true, as bits

  bool Has(Bit bit) const { return (has & bit) != 0; }
};

struct ChakraTrace {
  std::string bytes;  // of the file, inflated: names refer to it
  std::string version;
  std::vector<ChakraNode> nodes;    // in file order, and one more for first_dep
  std::vector<std::uint64_t> deps;  // ids; data and control dependencies
  // Process groups that PyTorch's metadata names (METADATA nodes): JSON texts.
  std::vector<ChakraNode::Text> group_lists;
  std::map<std::string, std::uint64_t> ignored;  // attributes, with how often

  std::size_t size() const { return nodes.empty() ? 0 : nodes.size() - 1; }
  std::string_view text(ChakraNode::Text t) const { return {bytes.data() + t.offset, t.size}; }
  std::span<const std::uint64_t> deps_of(std::size_t node) const {
    return {deps.data() + nodes[node].first_dep, nodes[node + 1].first_dep - nodes[node].first_dep};
  }
};

// Whether a file's beginning is that of a Chakra trace (a gzipped one inflates to this).
bool SniffChakra(std::string_view start);

// The trace keeps `bytes`. Gzipped ones are inflated to at most `limit_bytes` and 4 GiB.
Result<ChakraTrace> ParseChakra(std::string bytes, const std::string& name,
                                std::int64_t limit_bytes);

// Writes a trace node by node.
class ChakraWriter {
 public:
  ChakraWriter();
  // Attributes that `node` has are written, dependencies as data dependencies.
  void Add(const ChakraNode& node, std::string_view name, std::string_view group,
           std::span<const std::uint64_t> deps);
  std::string Release() { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace orrery::formats
