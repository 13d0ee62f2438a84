// Imported: any graph, routed by tables. See fabric.h.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/rng.h"
#include "orrery/cluster/fabric.h"
#include "orrery/cluster/topologies/topologies.h"

namespace orrery::cluster {
namespace {

constexpr std::uint32_t kMaxSwitches = 16384;  // a table of 256 MiB

}  // namespace

// Counting sort of links by sender, and of senders by receiving GPU.
void Imported::Index() {
  const std::uint32_t vertices = graph_.gpus + graph_.switches;
  first_out_.assign(vertices + 1, 0);
  first_in_.assign(graph_.gpus + 1, 0);
  for (const Link& l : graph_.links) {
    ++first_out_[l.from + 1];
    if (l.to < graph_.gpus) ++first_in_[l.to + 1];
  }
  for (std::uint32_t v = 0; v < vertices; ++v) first_out_[v + 1] += first_out_[v];
  for (std::uint32_t g = 0; g < graph_.gpus; ++g) first_in_[g + 1] += first_in_[g];
  out_.resize(graph_.links.size());
  in_.resize(first_in_.back());
  std::vector<std::uint32_t> out = first_out_, in = first_in_;
  for (std::uint32_t i = 0; i < graph_.links.size(); ++i) {
    const Link& l = graph_.links[i];
    out_[out[l.from]++] = i;
    if (l.to < graph_.gpus) in_[in[l.to]++] = l.from;
  }
}

// One breadth-first search a switch, over switches alone.
Status Imported::FillDistances() {
  const std::size_t n = graph_.switches;
  distance_.assign(n * n, kFar);
  std::vector<std::uint32_t> queue;
  for (std::size_t root = 0; root < n; ++root) {
    std::uint8_t* row = distance_.data() + root * n;
    queue.assign(1, static_cast<std::uint32_t>(root));
    row[root] = 0;
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const std::uint32_t v = queue[head];
      const std::uint32_t vertex = graph_.gpus + v;
      for (std::uint32_t i = first_out_[vertex]; i < first_out_[vertex + 1]; ++i) {
        const std::uint32_t to = graph_.links[out_[i]].to;
        if (to < graph_.gpus || row[to - graph_.gpus] != kFar) continue;
        if (row[v] == kFarthest) {
          return InvalidInput("switches {} and {} are more than {} links apart; join them closer",
                              root, to - graph_.gpus, kFarthest);
        }
        row[to - graph_.gpus] = static_cast<std::uint8_t>(row[v] + 1);
        queue.push_back(to - graph_.gpus);
      }
    }
  }
  return {};
}

// Links from a vertex to a GPU; kFar where there is no way.
int Imported::Distance(std::uint32_t vertex, std::uint32_t gpu) const {
  if (vertex == gpu) return 0;
  int best = kFar;
  for (std::uint32_t i = first_in_[gpu]; i < first_in_[gpu + 1]; ++i) {
    const std::uint32_t last = in_[i];
    if (last == vertex) return 1;
    if (last < graph_.gpus || vertex < graph_.gpus) continue;
    const std::size_t from = vertex - graph_.gpus;
    best = std::min(best, 1 + distance_[from * graph_.switches + (last - graph_.gpus)]);
  }
  if (vertex >= graph_.gpus) return std::min<int>(best, kFar);
  for (std::uint32_t i = first_out_[vertex]; i < first_out_[vertex + 1]; ++i) {
    const std::uint32_t next = graph_.links[out_[i]].to;
    if (next >= graph_.gpus) best = std::min(best, 1 + Distance(next, gpu));
  }
  return std::min<int>(best, kFar);
}

Result<Imported> Imported::Make(const Graph& graph) {
  const std::uint32_t vertices = graph.gpus + graph.switches;
  if (graph.gpus == 0) return InvalidInput("the topology has no GPUs");
  if (graph.switches > kMaxSwitches) {
    return InvalidInput("the topology has {} switches, more than {}; use a generated topology",
                        graph.switches, kMaxSwitches);
  }
  for (const Link& l : graph.links) {
    if (l.from >= vertices || l.to >= vertices || l.from == l.to) {
      return InvalidInput("a link from vertex {} to {}: there are vertices 0 to {}", l.from, l.to,
                          vertices - 1);
    }
  }
  Imported imported;
  imported.graph_ = graph;
  imported.Index();
  ORRERY_RETURN_IF_ERROR(imported.FillDistances());
  ORRERY_RETURN_IF_ERROR(imported.CheckReach());
  return imported;
}

// The lowest switch that a switch reaches.
std::uint32_t Imported::Island(std::uint32_t number) const {
  const auto row =
      distance_.begin() + static_cast<std::ptrdiff_t>(std::size_t{number} * graph_.switches);
  std::uint32_t lowest = 0;
  while (row[lowest] == kFar) ++lowest;
  return lowest;
}

// GPUs on one island of joined switches reach each other. So only the GPUs that are not on the
// island of most GPUs are looked at pair by pair: they need cables of their own to the others.
Status Imported::CheckReach() const {
  const std::uint32_t gpus = graph_.gpus;
  std::vector<std::vector<std::uint32_t>> on(graph_.switches);  // GPUs, by island
  for (std::uint32_t g = 0; g < gpus; ++g) {
    for (std::uint32_t i = first_out_[g]; i < first_out_[g + 1]; ++i) {
      const std::uint32_t to = graph_.links[out_[i]].to;
      if (to < gpus) continue;
      std::vector<std::uint32_t>& members = on[Island(to - gpus)];
      if (members.empty() || members.back() != g) members.push_back(g);
    }
  }
  std::vector<bool> main(gpus, false);
  const auto most = std::ranges::max_element(on, {}, &std::vector<std::uint32_t>::size);
  if (most != on.end()) {
    for (const std::uint32_t g : *most) main[g] = true;
  }
  for (std::uint32_t a = 0; a < gpus; ++a) {
    for (std::uint32_t b = 0; b < gpus && !main[a]; ++b) {
      if (Distance(a, b) < kFar) continue;
      return InvalidInput("no path of switches leads from GPU {} to GPU {}; join them by links",
                          std::min(a, b), std::max(a, b));
    }
  }
  return {};
}

std::size_t Imported::leaf(std::size_t gpu) const {
  const auto vertex = static_cast<std::uint32_t>(gpu);
  std::uint32_t leaf = 0;
  for (std::uint32_t i = first_out_[vertex]; i < first_out_[vertex + 1]; ++i) {
    const Link& l = graph_.links[out_[i]];
    if (l.to < graph_.gpus) continue;
    leaf = l.to - graph_.gpus;
    if (l.kind != LinkKind::kNvlink) break;
  }
  return leaf;
}

void Imported::AddLinks(const Origin&, std::vector<Link>* links) const {
  links->insert(links->end(), graph_.links.begin(), graph_.links.end());
}

void Imported::Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
                     std::vector<LinkId>* path) const {
  const auto goal = static_cast<std::uint32_t>(to);
  auto at = static_cast<std::uint32_t>(from);
  for (int left = Distance(at, goal); left > 0; --left) {
    std::uint32_t options = 0, nvlinks = 0;
    const auto good = [&](std::uint32_t i) {
      const std::uint32_t next = graph_.links[out_[i]].to;
      if (next < graph_.gpus) return left == 1 && next == goal;
      return Distance(next, goal) == left - 1;
    };
    for (std::uint32_t i = first_out_[at]; i < first_out_[at + 1]; ++i) {
      if (!good(i)) continue;
      ++options;
      if (graph_.links[out_[i]].kind == LinkKind::kNvlink) ++nvlinks;
    }
    if (options == 0) return;  // Make() has checked that there is a way
    // Where NVLink is as short as the network it is taken.
    const std::uint64_t h =
        choice.fixed ? to : HashCombine(choice.hash, static_cast<std::uint64_t>(left));
    std::uint64_t skip = h % (nvlinks > 0 ? nvlinks : options);
    for (std::uint32_t i = first_out_[at]; i < first_out_[at + 1]; ++i) {
      const Link& link = graph_.links[out_[i]];
      if (!good(i) || (nvlinks > 0 && link.kind != LinkKind::kNvlink) || skip-- > 0) continue;
      path->push_back(LinkId(origin.first_link + out_[i]));
      at = link.to;
      break;
    }
  }
}

std::string Imported::SwitchName(std::uint32_t number) const {
  if (number < graph_.names.size()) return graph_.names[number];
  return fmt::format("switch{}", number);
}

Result<AnyFabric> MakeImported(const Spec& spec) {
  if (spec.topology.graph.gpus == 0) {
    return InvalidInput("topology 'file' needs a file; name one by topology.file");
  }
  const std::int64_t gpus = std::int64_t{spec.nodes} * spec.gpus_per_node;
  if (gpus != spec.topology.graph.gpus) {
    return InvalidInput("nodes = {} with gpus_per_node = {}: the file has {} GPUs, so nodes is {}",
                        spec.nodes, spec.gpus_per_node, spec.topology.graph.gpus,
                        spec.topology.graph.gpus / static_cast<std::uint32_t>(spec.gpus_per_node));
  }
  ORRERY_ASSIGN_OR_RETURN(Imported imported, Imported::Make(spec.topology.graph));
  return AnyFabric(std::move(imported));
}

}  // namespace orrery::cluster
