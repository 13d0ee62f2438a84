#include "orrery/cluster/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>

namespace orrery::cluster {
namespace {

constexpr std::uint32_t kNobody = 0xFFFFFFFFu;

struct Mark {  // a vertex of the picture
  std::string name;
  bool host = false;
  int layer = 0;
  double x = 0, y = 0;
  bool shown = true;
};
struct Line {
  std::uint32_t a = 0, b = 0;
  LinkKind kind = LinkKind::kNicUp;
  std::int64_t bandwidth_Bps = 0;  // of one direction, parallel cables together
  double used = 0;                 // of the most used, both directions
  bool down = false;               // one of its cables, at some time
};
struct Gap {
  double x = 0, y = 0;
  std::size_t left_out = 0;
};
struct Picture {
  std::vector<Mark> marks;
  std::vector<Line> lines;
  std::vector<Gap> gaps;
  double width = 0, height = 0;
};

// One host with a PCIe tree: the picture shows the inside of it.
bool HostAlone(const Cluster& cluster) {
  return cluster.spec().nodes == 1 && cluster.pcie_tree().any();
}

// Inside a host: GPUs and NICs in the order of what they hang under, switches, root complexes.
std::vector<std::uint32_t> MarksInside(const Cluster& cluster, Picture* picture) {
  const std::size_t local = cluster.vertices() - cluster.switches();
  std::vector<std::uint32_t> above(local, 0);  // of a GPU or NIC
  for (const Link& l : cluster.links()) {
    if (l.kind == LinkKind::kPcie && l.from < l.to) above[l.from] = l.to;
  }
  std::vector<std::uint32_t> order;
  const std::size_t ends = cluster.devices() + cluster.nvlink_domains() + cluster.nics();
  for (std::uint32_t v = 0; v < ends; ++v) {
    if (above[v] != 0) order.push_back(v);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return above[a] < above[b]; });
  for (std::uint32_t v = 0; v < local; ++v) {
    const bool hub = v >= cluster.devices() && v < cluster.devices() + cluster.nvlink_domains();
    if (hub && !cluster.peers_over_pcie()) order.push_back(v);
  }
  const PcieTree& tree = cluster.pcie_tree();
  for (const bool roots : {false, true}) {  // root complexes above switches
    for (std::size_t n = 0; n < tree.nodes(); ++n) {
      const bool root = tree.NodeName(n).starts_with("root");
      if (root == roots) order.push_back(static_cast<std::uint32_t>(ends + n));
    }
  }
  std::vector<std::uint32_t> mark(cluster.vertices(), kNobody);
  for (const std::uint32_t v : order) {
    mark[v] = static_cast<std::uint32_t>(picture->marks.size());
    std::string name = cluster.vertex_name(v);
    if (const std::size_t slash = name.find('/'); slash != std::string::npos) {
      name = name.substr(slash + 1);
    }
    picture->marks.push_back({.name = name, .host = v < ends && above[v] != 0});
  }
  return mark;
}

// Which mark a vertex belongs to: its host's, or its own.
std::vector<std::uint32_t> MarksOf(const Cluster& cluster, Picture* picture) {
  if (HostAlone(cluster)) return MarksInside(cluster, picture);
  const auto hosts = static_cast<std::uint32_t>(cluster.spec().nodes);
  const auto per_node = static_cast<std::uint32_t>(cluster.spec().gpus_per_node);
  const auto first_switch = static_cast<std::uint32_t>(cluster.vertices() - cluster.switches());
  const auto first_nic = static_cast<std::uint32_t>(cluster.devices() + cluster.nvlink_domains());
  const auto nics = static_cast<std::uint32_t>(cluster.nics());
  const auto devices = static_cast<std::uint32_t>(cluster.devices());
  std::vector<std::uint32_t> mark(cluster.vertices(), kNobody);
  for (std::uint32_t d = 0; d < devices; ++d) mark[d] = d / per_node;
  if (!cluster.direct()) {
    for (std::uint32_t n = first_nic; n < first_nic + nics; ++n) {
      mark[n] = (n - first_nic) / static_cast<std::uint32_t>(cluster.spec().nics_per_node);
    }
  }
  for (const Link& l : cluster.links()) {  // NVLink switches go with a host
    if (l.kind == LinkKind::kNvlink && mark[l.to] == kNobody) mark[l.to] = mark[l.from];
  }
  for (std::uint32_t h = 0; h < hosts; ++h) {
    picture->marks.push_back({.name = fmt::format("node{}", h), .host = true});
  }
  for (std::uint32_t v = first_switch; v < mark.size(); ++v) {
    if (mark[v] != kNobody) continue;
    mark[v] = static_cast<std::uint32_t>(picture->marks.size());
    picture->marks.push_back({.name = cluster.vertex_name(v)});
  }
  return mark;
}

Picture Collect(const Cluster& cluster, std::span<const double> used = {}) {
  Picture picture;
  const std::vector<std::uint32_t> mark = MarksOf(cluster, &picture);
  std::map<std::pair<std::uint32_t, std::uint32_t>, Line> lines;
  std::vector<bool> down(cluster.links().size(), false);
  for (const LinkChange& change : cluster.link_changes()) {
    if (change.bandwidth == 0) down[change.link.index()] = true;
  }
  for (std::size_t i = 0; i < cluster.links().size(); ++i) {
    const Link& l = cluster.links()[i];
    const bool inside = HostAlone(cluster);
    if (IsLocal(l.kind) != inside) continue;
    const bool to_switch = l.from >= cluster.devices() || l.to >= cluster.devices();
    if (l.kind == LinkKind::kNvlink && to_switch && cluster.peers_over_pcie()) continue;
    const std::uint32_t a = mark[l.from], b = mark[l.to];
    if (a == b || a == kNobody || b == kNobody) continue;
    Line& line = lines[{std::min(a, b), std::max(a, b)}];
    line.a = std::min(a, b), line.b = std::max(a, b);
    if (i < used.size()) line.used = std::max(line.used, used[i]);
    line.down = line.down || down[i];
    if (a > b) continue;  // the other direction is alike
    line.kind = l.kind;
    line.bandwidth_Bps += l.bandwidth_Bps;
  }
  for (const auto& [ends, line] : lines) picture.lines.push_back(line);
  return picture;
}

// Layers by distance from the hosts.
void PlaceLayers(Picture* picture) {
  std::vector<Mark>& marks = picture->marks;
  std::vector<std::vector<std::uint32_t>> near(marks.size());
  for (const Line& line : picture->lines) {
    near[line.a].push_back(line.b);
    near[line.b].push_back(line.a);
  }
  std::vector<std::uint32_t> queue;
  for (std::uint32_t m = 0; m < marks.size(); ++m) {
    marks[m].layer = marks[m].host ? 0 : -1;
    if (marks[m].host) queue.push_back(m);
  }
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t next : near[queue[i]]) {
      if (marks[next].layer >= 0) continue;
      marks[next].layer = marks[queue[i]].layer + 1;
      queue.push_back(next);
    }
  }
  std::map<int, std::vector<std::uint32_t>> layers;
  for (std::uint32_t m = 0; m < marks.size(); ++m) layers[std::max(0, marks[m].layer)].push_back(m);
  std::size_t widest = 1;
  for (const auto& [layer, members] : layers) {
    widest = std::max(widest, std::min(members.size(), kDrawnPerLayer + 1));
  }
  constexpr double kStep = 56, kTall = 150;
  picture->width = static_cast<double>(std::max<std::size_t>(widest, 8)) * kStep;
  picture->height = static_cast<double>(layers.size()) * kTall;
  for (const auto& [layer, members] : layers) {
    const bool cut = members.size() > kDrawnPerLayer;
    const std::size_t slots = cut ? kDrawnPerLayer + 1 : members.size();
    const std::size_t head = kDrawnPerLayer / 2;
    const double step = picture->width / static_cast<double>(slots);
    const double y = picture->height - (static_cast<double>(layer) + 0.5) * kTall;
    for (std::size_t i = 0; i < members.size(); ++i) {
      Mark& mark = marks[members[i]];
      std::size_t slot = i;
      if (cut) {
        mark.shown = i < head || i + (kDrawnPerLayer - head) >= members.size();
        if (i >= head) slot = slots - (members.size() - i);
        if (i == head) {
          picture->gaps.push_back(
              {(static_cast<double>(head) + 0.5) * step, y, members.size() - kDrawnPerLayer});
        }
      }
      mark.x = (static_cast<double>(slot) + 0.5) * step;
      mark.y = y;
    }
  }
}

// Routers of a lattice (or its GPUs) on their grid: dimension 0 across, 1 down, the rest side by
// side. Routers stand for their hosts.
void PlaceGrid(const Lattice& lattice, Picture* picture) {
  const auto& dimensions = lattice.shape().dimensions;
  const auto size = [&](std::size_t i) {
    return i < dimensions.size() ? static_cast<std::size_t>(dimensions[i].size) : 1;
  };
  std::size_t points = 1;
  for (const Dimension& d : dimensions) points *= static_cast<std::size_t>(d.size);
  const std::size_t first = lattice.direct() ? 0 : picture->marks.size() - lattice.switches();
  const double step = 74, lift = 16;
  for (std::size_t m = 0; m < picture->marks.size(); ++m) {
    Mark& mark = picture->marks[m];
    if (m < first || m >= first + points) {
      mark.shown = lattice.direct() && !mark.host;
      continue;
    }
    const std::size_t p = m - first;
    const std::size_t x = p % size(0), y = p / size(0) % size(1), z = p / size(0) / size(1);
    mark.host = false;
    mark.x = step * (static_cast<double>(x + z * size(0)) + 0.8 * static_cast<double>(z) + 0.5) +
             lift * static_cast<double>(y % 2) * (size(1) > 1 ? 1 : 0);
    mark.y = step * (static_cast<double>(y) + 0.6) + lift * static_cast<double>(x % 2) + 30;
    picture->width = std::max(picture->width, mark.x + step / 2);
    picture->height = std::max(picture->height, mark.y + step / 2);
  }
  // A dimension's switch stands in the middle of its GPUs, a little above.
  std::vector<int> seen(picture->marks.size(), 0);
  for (const Line& line : picture->lines) {
    for (const auto& [hub, point] : {std::pair{line.a, line.b}, std::pair{line.b, line.a}}) {
      if (hub < first + points || point >= first + points) continue;
      Mark& mark = picture->marks[hub];
      const double n = ++seen[hub];
      mark.x += (picture->marks[point].x - mark.x) / n;
      mark.y += (picture->marks[point].y - 22 - mark.y) / n;
    }
  }
}

// Groups on a circle, their routers on smaller ones.
void PlaceGroups(const Dragonfly& dragonfly, Picture* picture) {
  const auto per_group = static_cast<std::size_t>(dragonfly.shape().routers_per_group);
  const std::size_t groups = dragonfly.groups();
  const std::size_t first = picture->marks.size() - dragonfly.switches();
  const double small = std::max(40.0, 12.0 * static_cast<double>(per_group));
  const double large =
      groups > 1 ? std::max(2 * small, 0.6 * small * static_cast<double>(groups)) : 0;
  picture->width = picture->height = 2 * (large + small) + 100;
  for (std::size_t m = 0; m < picture->marks.size(); ++m) {
    Mark& mark = picture->marks[m];
    mark.shown = m >= first;
    if (m < first) continue;
    const std::size_t g = (m - first) / per_group, r = (m - first) % per_group;
    const double turn = 2 * std::numbers::pi;
    const double a = turn * static_cast<double>(g) / static_cast<double>(groups);
    const double b = turn * static_cast<double>(r) / static_cast<double>(per_group) + a;
    mark.x = picture->width / 2 + large * std::sin(a) + (per_group > 1 ? small : 0) * std::sin(b);
    mark.y = picture->height / 2 - large * std::cos(a) - (per_group > 1 ? small : 0) * std::cos(b);
  }
}

std::string_view Colour(LinkKind kind) {
  switch (kind) {
    case LinkKind::kLeafSpine:
      return "#0072b2";
    case LinkKind::kSpineCore:
      return "#d55e00";
    case LinkKind::kRouter:
      return "#0072b2";
    case LinkKind::kGlobal:
    case LinkKind::kSocket:
      return "#d55e00";
    case LinkKind::kPcieUp:
      return "#0072b2";
    case LinkKind::kNvlink:
      return "#cc79a7";
    default:
      return "#009e73";
  }
}

std::string_view What(LinkKind kind) {
  return kind == LinkKind::kNicUp || kind == LinkKind::kNicDown ? "NIC" : Name(kind);
}

double Width(const Line& line) {
  return std::clamp(std::log2(static_cast<double>(line.bandwidth_Bps) / 6.25e9) * 0.4, 0.5, 4.0);
}

// Grey to dark red, told apart without colour too: ever darker. Source of the scale: ColorBrewer's
// OrRd, with grey for idle.
struct Heat {
  double from = 0;
  std::string_view colour, what;
};
constexpr std::array<Heat, 6> kHeat = {{{0.90, "#7f0000", "90 % and more"},
                                        {0.70, "#d7301f", "70 %"},
                                        {0.50, "#fc8d59", "50 %"},
                                        {0.25, "#fdbb84", "25 %"},
                                        {1e-9, "#c9b8a4", "used"},
                                        {0.00, "#d9dde0", "idle"}}};
const Heat& HeatOf(double used) {
  for (const Heat& heat : kHeat) {
    if (used >= heat.from) return heat;
  }
  return kHeat.back();
}

Picture Place(const Cluster& cluster, std::span<const double> used) {
  Picture picture = Collect(cluster, used);
  if (HostAlone(cluster)) {
    PlaceLayers(&picture);
  } else if (const auto* lattice = std::get_if<Lattice>(&cluster.fabric())) {
    PlaceGrid(*lattice, &picture);
  } else if (const auto* dragonfly = std::get_if<Dragonfly>(&cluster.fabric())) {
    PlaceGroups(*dragonfly, &picture);
  } else {
    PlaceLayers(&picture);
  }
  return picture;
}

// "rail-optimised: 32 GPUs in 4 hosts, 12 switches", "inside a host: 8 GPUs, 2 NICs".
std::string Title(const Cluster& cluster) {
  const std::string& named = cluster.spec().topology.name;
  const std::string_view unnamed = cluster.spec().rail_optimised ? "rail-optimised" : "fat-tree-2";
  const auto count = [](std::int64_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : what.ends_with("h") ? "es" : "s");
  };
  if (HostAlone(cluster)) {
    return fmt::format("inside a host: {}, {}",
                       count(static_cast<std::int64_t>(cluster.devices()), "GPU"),
                       count(static_cast<std::int64_t>(cluster.nics()), "NIC"));
  }
  return fmt::format("{}: {} in {}, {}", named.empty() ? unnamed : named,
                     count(static_cast<std::int64_t>(cluster.devices()), "GPU"),
                     count(cluster.spec().nodes, "host"),
                     count(static_cast<std::int64_t>(cluster.switches()), "switch"));
}

constexpr std::string_view kDownColour = "#000000", kDownDashes = "6 4";

// Behind what the legend has up to `x`.
void AddDownLegend(const Picture& picture, double x, std::string* svg) {
  const auto down = [&](const Line& line) {
    return line.down && picture.marks[line.a].shown && picture.marks[line.b].shown;
  };
  if (std::ranges::none_of(picture.lines, down)) return;
  *svg += fmt::format(
      "<line x1='{:.0f}' y1='38' x2='{:.0f}' y2='38' stroke='{}' stroke-width='3' "
      "stroke-dasharray='{}'/><text x='{:.0f}' y='42' font-size='11' "
      "text-anchor='start'>failed</text>\n",
      x, x + 20, kDownColour, kDownDashes, x + 26);
}

void AddLegend(const Picture& picture, std::string* svg) {
  std::map<std::string_view, std::string_view> kinds;
  for (const Line& line : picture.lines) {
    if (picture.marks[line.a].shown && picture.marks[line.b].shown) {
      kinds.emplace(What(line.kind), Colour(line.kind));
    }
  }
  double x = 12;
  for (const auto& [what, colour] : kinds) {
    *svg += fmt::format(
        "<line x1='{:.0f}' y1='38' x2='{:.0f}' y2='38' stroke='{}' stroke-width='3'/>"
        "<text x='{:.0f}' y='42' font-size='11' text-anchor='start'>{}</text>\n",
        x, x + 20, colour, x + 26, what);
    x += 50 + 7 * static_cast<double>(what.size());
  }
  AddDownLegend(picture, x, svg);
}

void AddHeatLegend(const Picture& picture, std::string* svg) {
  double x = 12;
  for (auto heat = kHeat.rbegin(); heat != kHeat.rend(); ++heat) {
    *svg += fmt::format(
        "<line x1='{:.0f}' y1='38' x2='{:.0f}' y2='38' stroke='{}' stroke-width='5'/>"
        "<text x='{:.0f}' y='42' font-size='11' text-anchor='start'>{}</text>\n",
        x, x + 20, heat->colour, x + 26, heat->what);
    x += 44 + 6.5 * static_cast<double>(heat->what.size());
  }
  AddDownLegend(picture, x, svg);
}

}  // namespace

std::string DrawSvg(const Cluster& cluster) { return DrawSvg(cluster, {}); }

std::string DrawSvg(const Cluster& cluster, std::span<const double> used) {
  const bool heated = !used.empty();
  Picture picture = Place(cluster, used);
  // The most used are drawn last, over the others, and then what failed.
  std::stable_sort(picture.lines.begin(), picture.lines.end(), [](const Line& a, const Line& b) {
    return std::pair(a.down, a.used) < std::pair(b.down, b.used);
  });
  constexpr double kTop = 50;
  const double width = std::max(picture.width, heated ? 620.0 : 420.0);
  for (Mark& mark : picture.marks) mark.x += (width - picture.width) / 2;
  for (Gap& gap : picture.gaps) gap.x += (width - picture.width) / 2;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' "
      "height='{1:.0f}' font-family='sans-serif' text-anchor='middle'>\n"
      "<rect width='100%' height='100%' fill='white'/>\n"
      "<text x='12' y='22' font-size='14' text-anchor='start'>{2}{3}</text>\n",
      width, picture.height + kTop, Title(cluster), heated ? "; share of capacity used" : "");
  if (heated) {
    AddHeatLegend(picture, &svg);
  } else {
    AddLegend(picture, &svg);
  }
  for (const Line& line : picture.lines) {
    const Mark& a = picture.marks[line.a];
    const Mark& b = picture.marks[line.b];
    if (!a.shown || !b.shown) continue;
    // Long lines along a row (a ring's way back) bow, so that they do not hide under short ones.
    const double dx = b.x - a.x, dy = b.y - a.y, length = std::sqrt(dx * dx + dy * dy);
    const bool bow = line.kind == LinkKind::kRouter && length > 110;
    svg += fmt::format(
        "<path d='M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}' fill='none' stroke='{}' "
        "stroke-width='{:.1f}' stroke-opacity='{}'{}><title>{} to {}: {:.0f} "
        "Gb/s{}{}</title></path>\n",
        a.x, a.y + kTop, (a.x + b.x) / 2 + (bow ? dy * 0.18 : 0),
        (a.y + b.y) / 2 + kTop - (bow ? dx * 0.18 : 0), b.x, b.y + kTop,
        line.down ? kDownColour
        : heated  ? HeatOf(line.used).colour
                  : Colour(line.kind),
        heated || line.down ? std::max(1.5, Width(line)) : Width(line),
        heated || line.down ? "0.9" : "0.55",
        line.down ? fmt::format(" stroke-dasharray='{}'", kDownDashes) : "", a.name, b.name,
        static_cast<double>(line.bandwidth_Bps) * 8e-9,
        heated ? fmt::format(", {:.1f} % used", 100 * line.used) : "", line.down ? ", failed" : "");
  }
  for (const Mark& mark : picture.marks) {
    if (!mark.shown) continue;
    const double half = mark.host ? 22 : 7;
    svg += fmt::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{:.0f}' height='{:.0f}' rx='3' fill='{}' "
        "stroke='#444'/><text x='{:.1f}' y='{:.1f}' font-size='9'{}>{}</text>\n",
        mark.x - half, mark.y + kTop - (mark.host ? 9 : 7), 2 * half, mark.host ? 18 : 14.0,
        mark.host ? "#f0e4c2" : "#cfe3f2", mark.x, mark.y + kTop + (mark.host ? 3 : 17),
        mark.host ? "" : " stroke='white' stroke-width='3' paint-order='stroke'", mark.name);
  }
  for (const Gap& gap : picture.gaps) {
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' font-size='10'>… {} more …</text>\n", gap.x,
                       gap.y + kTop + 3, gap.left_out);
  }
  return svg + "</svg>\n";
}

std::string DrawDot(const Cluster& cluster) {
  const Picture picture = Collect(cluster);
  std::string dot = "graph cluster {\n  rankdir=BT;\n  node [shape=box];\n";
  for (const Mark& mark : picture.marks) {
    dot += fmt::format("  \"{}\"{};\n", mark.name, mark.host ? " [style=filled]" : "");
  }
  for (const Line& line : picture.lines) {
    dot += fmt::format("  \"{}\" -- \"{}\" [color=\"{}\", label=\"{:.0f} Gb/s\"];\n",
                       picture.marks[line.a].name, picture.marks[line.b].name, Colour(line.kind),
                       static_cast<double>(line.bandwidth_Bps) * 8e-9);
  }
  return dot + "}\n";
}

}  // namespace orrery::cluster
