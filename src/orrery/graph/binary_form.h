// The compact form of a graph: varints, little-endian, a version in front and a checksum at the
// end. Documented in docs/formats/graph.md.
//
// Round trip: FromBinary(ToBinary(g)) is g to the last index, name numbers included. Damaged bytes
// give an error that names the offset, never a crash: every count is checked against the bytes that
// remain and against a budget of memory before anything is allocated. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

inline constexpr std::string_view kBinaryMagic = "orrgraph";
inline constexpr std::uint8_t kBinaryVersion = 6;

struct BinaryLimits {
  std::size_t memory_bytes = std::size_t{8} << 30;  // of the graph in memory, about
};

// REQUIRES: Verify(graph).ok().
std::string ToBinary(const Graph& graph);

// The result is sealed and verified at the full level.
Result<Graph> FromBinary(std::string_view bytes, const BinaryLimits& limits = {});

// The checksum of all bytes before it.
std::uint64_t BinaryChecksum(std::string_view bytes);

}  // namespace orrery::graph
