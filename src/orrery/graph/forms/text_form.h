// The readable form of a graph: one line an operation, a call, a rank or a group. Version
// orrery.graph/2, documented in docs/formats/graph.md.
//
// Round trip: FromText(ToText(g)) is g, but that names are numbered anew, in order of appearance,
// and those that nothing uses are gone; ToText of both is the same text. Fields equal to their
// defaults are left out. Cost: O(text); memory below 100 bytes a byte of text.
#pragma once

#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

inline constexpr std::string_view kTextVersion = "orrery.graph/2";
// Read where it has no `numbers`: numeric slots stood elsewhere.
inline constexpr std::string_view kOldTextVersion = "orrery.graph/1";

// REQUIRES: Verify(graph).ok().
std::string ToText(const Graph& graph);

// Errors name the line. The result is sealed and verified.
Result<Graph> FromText(std::string_view text);

}  // namespace orrery::graph
