// The compact form of a graph: varints of differences, and the codes of columns as they are used in
// memory. Little-endian, a version in front, checksums. Documented in docs/formats/graph.md.
//
// Round trip: FromBinary(ToBinary(g)) is g to the last index, name numbers included. Damaged bytes
// give an error that names the offset, never a crash: every count is checked against the bytes that
// remain and against a budget of memory before anything is allocated. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/mapped_file.h"
#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

inline constexpr std::string_view kBinaryMagic = "orrgraph";
inline constexpr std::uint8_t kBinaryVersion = 7;

struct BinaryLimits {
  std::size_t memory_bytes = std::size_t{8} << 30;  // of the graph in memory, about
};

// REQUIRES: Verify(graph).ok().
std::string ToBinary(const Graph& graph);

// The result is sealed and verified, and keeps nothing of `bytes`.
Result<Graph> FromBinary(std::string_view bytes, const BinaryLimits& limits = {});

// A graph whose columns lie in a mapped file: they are read where they are touched, and processes
// that map one file share them. `file` must live as long as the graph or a copy of its programs.
struct MappedGraph {
  MappedFile file;
  Graph graph;
};
Result<MappedGraph> MapBinary(const std::string& path, const BinaryLimits& limits = {});

// Parts of the form, for its reader, writer and tests: a header of fixed size, the body, zeros up
// to a multiple of kBinaryAlignment, codes.
inline constexpr std::size_t kBinaryHeader = 48;
inline constexpr std::size_t kBinaryAlignment = 64;
constexpr std::size_t BinaryAligned(std::size_t bytes) {
  return (bytes + kBinaryAlignment - 1) / kBinaryAlignment * kBinaryAlignment;
}
// The checksum of all bytes given.
std::uint64_t BinaryChecksum(std::string_view bytes);
// The whole file of a body and codes, the header's sizes and checksums made to fit.
std::string BinaryFile(std::string_view body, std::string_view codes);

}  // namespace orrery::graph
