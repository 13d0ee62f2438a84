#include "orrery/engine/straight/secluded.h"

#include <algorithm>

namespace orrery::engine {
namespace {

void SortUnique(std::vector<std::uint32_t>* list) {
  std::ranges::sort(*list);
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

}  // namespace

Secluded::Secluded(const LoopInputs& in, const Wiring& wiring) {
  const cluster::Cluster& cluster = *in.inputs->cluster;
  const Layout& layout = *in.layout;
  meets_.resize(layout.meets.size());
  std::vector<char> leaves(layout.meets.size(), 0);
  std::vector<std::vector<std::uint32_t>> crossing(cluster.links().size());  // wires, by link
  std::vector<LinkId> path;
  for (std::uint32_t id = 0; id < wiring.wires.size(); ++id) {
    const Wire& w = wiring.wires[id];
    for (std::uint32_t k = 0; k < w.queue_pairs; ++k) {
      const std::uint64_t salt = w.salt + (w.queue_pairs == 1 ? 0 : cluster::QueuePair(0, k));
      cluster.Route(wiring.device(w.from), wiring.device(w.to), salt, &path);
      for (const LinkId link : path) {
        if (cluster.direct() || !cluster::IsLocal(cluster.links()[link.index()].kind)) {
          leaves[w.meet] = 1;
          continue;
        }
        auto& here = crossing[link.index()];
        if (here.empty() || here.back() != id) here.push_back(id);
        meets_[w.meet].links.push_back(link.value);
      }
    }
  }
  for (std::uint32_t m = 0; m < meets_.size(); ++m) {
    Meet& meet = meets_[m];
    if (leaves[m] != 0 || meet.links.empty() || layout.meets[m].pair) {
      meet = Meet();
      continue;
    }
    SortUnique(&meet.links);
    for (const std::uint32_t link : meet.links) {
      meet.wires.insert(meet.wires.end(), crossing[link].begin(), crossing[link].end());
    }
    SortUnique(&meet.wires);
    const auto members = layout.members(m);
    meet.secluded = std::ranges::all_of(meet.wires, [&](std::uint32_t w) {
      return std::ranges::find(members, wiring.wires[w].from) != members.end();
    });
    if (!meet.secluded) {
      meet = Meet();
      continue;
    }
    for (const std::uint32_t w : meet.wires) meet.meets.push_back(wiring.wires[w].meet);
    SortUnique(&meet.meets);
  }
}

}  // namespace orrery::engine
