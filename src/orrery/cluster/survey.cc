#include "orrery/cluster/survey.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <variant>

namespace orrery::cluster {
namespace {

bool InNetwork(const Link& link) { return !IsLocal(link.kind); }

// Network links by sending vertex.
class Adjacency {
 public:
  explicit Adjacency(const Cluster& cluster) : links_(cluster.links()) {
    first_.assign(cluster.vertices() + 1, 0);
    for (const Link& l : links_) {
      if (InNetwork(l)) ++first_[l.from + 1];
    }
    for (std::size_t v = 0; v + 1 < first_.size(); ++v) first_[v + 1] += first_[v];
    order_.resize(first_.back());
    std::vector<std::uint32_t> at(first_.begin(), first_.end() - 1);
    for (std::uint32_t i = 0; i < links_.size(); ++i) {
      if (InNetwork(links_[i])) order_[at[links_[i].from]++] = i;
    }
    // GPUs forward only in a lattice of GPUs.
    const bool gpus_forward = std::holds_alternative<Lattice>(cluster.fabric());
    silent_ = gpus_forward ? 0 : static_cast<std::uint32_t>(cluster.devices());
  }
  std::span<const std::uint32_t> Out(std::uint32_t v) const {
    return std::span(order_).subspan(first_[v], first_[v + 1] - first_[v]);
  }

  // Distances, and the number of shortest ways (saturating) where `ways` is given.
  std::vector<int> Search(std::uint32_t from, std::vector<std::uint64_t>* ways) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
    std::vector<int> distance(first_.size() - 1, -1);
    std::vector<std::uint32_t> queue = {from};
    distance[from] = 0;
    if (ways != nullptr) ways->assign(distance.size(), 0), (*ways)[from] = 1;
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const std::uint32_t v = queue[head];
      if (v < silent_ && v != from) continue;
      for (const std::uint32_t i : Out(v)) {
        const std::uint32_t to = links_[i].to;
        if (distance[to] < 0) distance[to] = distance[v] + 1, queue.push_back(to);
        if (ways != nullptr && distance[to] == distance[v] + 1) {
          (*ways)[to] = std::min(kMost, (*ways)[to] + (*ways)[v]);
        }
      }
    }
    return distance;
  }

 private:
  std::span<const Link> links_;
  std::vector<std::uint32_t> first_, order_;
  std::uint32_t silent_ = 0;
};

// Dinic's maximum flow.
class MaxFlow {
 public:
  explicit MaxFlow(std::size_t vertices) : head_(vertices, kNone) {}
  void Add(std::uint32_t from, std::uint32_t to, std::int64_t capacity) {
    edges_.push_back({to, head_[from], capacity});
    head_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
    edges_.push_back({from, head_[to], 0});
    head_[to] = static_cast<std::uint32_t>(edges_.size() - 1);
  }
  std::int64_t Run(std::uint32_t source, std::uint32_t sink) {
    std::int64_t sum = 0;
    while (Levels(source, sink)) {
      at_ = head_;
      while (const std::int64_t pushed = Augment(source, sink)) sum += pushed;
    }
    return sum;
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  struct Edge {
    std::uint32_t to = 0, next = kNone;
    std::int64_t left = 0;
  };
  bool Levels(std::uint32_t source, std::uint32_t sink) {
    level_.assign(head_.size(), -1);
    level_[source] = 0;
    std::vector<std::uint32_t> queue = {source};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (std::uint32_t e = head_[queue[i]]; e != kNone; e = edges_[e].next) {
        if (edges_[e].left <= 0 || level_[edges_[e].to] >= 0) continue;
        level_[edges_[e].to] = level_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
    }
    return level_[sink] >= 0;
  }
  // One augmenting path by level, without recursion.
  std::int64_t Augment(std::uint32_t source, std::uint32_t sink) {
    path_.clear();
    std::uint32_t v = source;
    while (v != sink) {
      std::uint32_t& e = at_[v];
      while (e != kNone && (edges_[e].left <= 0 || level_[edges_[e].to] != level_[v] + 1)) {
        e = edges_[e].next;
      }
      if (e != kNone) {
        path_.push_back(e);
        v = edges_[e].to;
      } else {
        if (path_.empty()) return 0;
        level_[v] = -1;
        v = edges_[path_.back() ^ 1U].to;
        path_.pop_back();
      }
    }
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const std::uint32_t e : path_) least = std::min(least, edges_[e].left);
    for (const std::uint32_t e : path_) edges_[e].left -= least, edges_[e ^ 1U].left += least;
    return least;
  }

  std::vector<Edge> edges_;
  std::vector<std::uint32_t> head_, at_, path_;
  std::vector<int> level_;
};

std::uint32_t EndVertex(const Cluster& cluster, std::size_t end) {
  if (cluster.direct()) return static_cast<std::uint32_t>(end);
  return static_cast<std::uint32_t>(cluster.devices() + cluster.nvlink_domains() + end);
}

std::size_t Ends(const Cluster& cluster) {
  return cluster.direct() ? cluster.devices() : cluster.nics();
}

// The ends of each half are one vertex.
void Bisect(const Cluster& cluster, Survey* survey) {
  const auto source = static_cast<std::uint32_t>(cluster.vertices());
  const std::uint32_t sink = source + 1;
  const std::size_t ends = Ends(cluster);
  const std::size_t hosts = static_cast<std::size_t>(cluster.spec().nodes);
  const std::size_t half =
      hosts > 1 ? hosts / 2 * (ends / hosts) : std::max<std::size_t>(1, ends / 2);
  std::vector<std::uint32_t> vertex(cluster.vertices());
  for (std::uint32_t v = 0; v < vertex.size(); ++v) vertex[v] = v;
  for (std::size_t e = 0; e < ends; ++e) vertex[EndVertex(cluster, e)] = e < half ? source : sink;
  MaxFlow flow(cluster.vertices() + 2);
  for (const Link& l : cluster.links()) {
    if (!InNetwork(l)) continue;
    if (vertex[l.from] == source && vertex[l.to] != source)
      survey->injection_Bps += l.bandwidth_Bps;
    if (vertex[l.from] == vertex[l.to] || vertex[l.to] == source || vertex[l.from] == sink)
      continue;
    flow.Add(vertex[l.from], vertex[l.to], l.bandwidth_Bps);
  }
  if (ends > 1) survey->bisection_Bps = flow.Run(source, sink);
}

void CountKinds(const Cluster& cluster, Survey* survey) {
  std::array<Survey::Kind, kLinkKinds> kinds;
  for (const Link& l : cluster.links()) {
    const bool no_nvlink = cluster.spec().gpus_per_nvlink_domain < 2 || cluster.peers_over_pcie();
    const bool to_switch = l.from >= cluster.devices() || l.to >= cluster.devices();
    if (l.kind == LinkKind::kNvlink && to_switch && no_nvlink) continue;
    Survey::Kind& kind = kinds[static_cast<std::size_t>(l.kind)];
    kind.kind = l.kind;
    kind.least_Bps = kind.links == 0 ? l.bandwidth_Bps : std::min(kind.least_Bps, l.bandwidth_Bps);
    kind.most_Bps = std::max(kind.most_Bps, l.bandwidth_Bps);
    ++kind.links;
  }
  for (const Survey::Kind& kind : kinds) {
    if (kind.links > 0) survey->kinds.push_back(kind);
  }
}

}  // namespace

std::vector<int> NetworkDistances(const Cluster& cluster, std::uint32_t from) {
  return Adjacency(cluster).Search(from, nullptr);
}

Survey SurveyOf(const Cluster& cluster) {
  Survey survey;
  survey.vertices = cluster.vertices();
  CountKinds(cluster, &survey);
  const Adjacency adjacency(cluster);
  const std::size_t ends = Ends(cluster);
  std::vector<std::uint64_t> ways;
  const std::vector<int> from_first = adjacency.Search(EndVertex(cluster, 0), &ways);
  survey.far_from = survey.far_to = EndVertex(cluster, 0);
  for (std::size_t e = 1; e < ends; ++e) {
    const std::uint32_t v = EndVertex(cluster, e);
    if (from_first[v] >= from_first[survey.far_to]) survey.far_to = v;
  }
  survey.far_paths = ways[survey.far_to];
  // One search for the first end below each switch: ends below one switch see the same.
  std::vector<char> seen(cluster.switches() + cluster.devices() + 1, 0);
  const std::size_t work = cluster.links().size() + cluster.vertices() + 1;
  std::size_t budget = std::max<std::size_t>(1, 2'000'000'000 / work);
  for (std::size_t e = 0; e < ends; ++e) {
    const std::size_t leaf = cluster.leaf(NicId(e));
    if (leaf < seen.size() && std::exchange(seen[leaf], 1) != 0) continue;
    if (budget-- == 0) {
      survey.diameter_exact = false;
      break;
    }
    const std::vector<int> distance = adjacency.Search(EndVertex(cluster, e), nullptr);
    for (std::size_t other = 0; other < ends; ++other) {
      survey.diameter_links = std::max(survey.diameter_links, distance[EndVertex(cluster, other)]);
    }
  }
  if (cluster.links().size() <= kSurveyLinks) Bisect(cluster, &survey);
  return survey;
}

}  // namespace orrery::cluster
