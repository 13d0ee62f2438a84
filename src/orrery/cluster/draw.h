// A cluster's network as a picture: SVG for people, DOT for Graphviz.
//
// Hosts stand as one box each (GPUs, NVLink switches and NICs inside). A Clos or an imported graph
// is drawn in layers by distance from the hosts, a lattice on its grid, a dragonfly's groups on a
// circle. A layer of more than kDrawnPerLayer vertices shows its first and last ones and says how
// many are left out. Parallel cables are one line, as wide as the logarithm of what they carry
// together; colours are link kinds (a palette that the colour-blind can tell apart, Okabe and Ito
// 2008). A heat map colours the lines by use instead. Of parallel cables one that fails, at
// whatever time, makes the line black and dashed.
#pragma once

#include <span>
#include <string>

#include "orrery/cluster/cluster.h"

namespace orrery::cluster {

inline constexpr std::size_t kDrawnPerLayer = 48;

std::string DrawSvg(const Cluster& cluster);
// The same as a heat map: `used` by LinkId is the share of its capacity that a link carried. Of all
// links between two marks, both directions, the most used counts.
std::string DrawSvg(const Cluster& cluster, std::span<const double> used);
std::string DrawDot(const Cluster& cluster);

}  // namespace orrery::cluster
