// A fabric: what stands between the NICs (or, where GPUs are wired directly, between the GPUs).
//
// Model. Four families cover every topology: `Clos` (leaves, spines, cores; rails, dual ToR,
// planes), `Dragonfly`, `Lattice` (rings, lines, full meshes and switches composed by dimension)
// and `Imported` (any graph). The first three find a path by arithmetic alone; only the last keeps
// tables. A topology (topologies/) is a rule that makes one of these from a Spec.
//
// Ends. An end is a NIC's number, or a GPU's where `direct()`: then the fabric holds all links and
// the cluster adds no NVLink, PCIe or NIC of its own.
//
// Routing. Of all shortest paths `Choice` takes one: `hash` (ECMP; the connection's number is in
// it), or with `fixed` the destination alone decides (d-mod-k in a Clos, dimension order in a
// lattice). The same choice gives the same path everywhere. In a dragonfly shortest means minimal:
// at most one global link. Cost: O(path); Dragonfly also O(parallel links of two groups), Imported
// O(path · degree). Sources: Leiserson 1985, Al-Fares et al. SIGCOMM'08 (fat trees); Kim et al.
// ISCA'08 (dragonfly); Dally and Towles 2004 (tori); Qian et al. SIGCOMM'24 (HPN).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/cluster/topology.h"

namespace orrery::cluster {

struct Choice {
  std::uint64_t hash = 0;
  bool fixed = false;
};

// Where the numbering of a fabric starts in its cluster.
struct Origin {
  std::uint32_t first_end = 0;     // vertex of end 0
  std::uint32_t first_switch = 0;  // vertex of switch 0
  std::uint32_t first_link = 0;    // number of the fabric's first link
};

// A link each way between every end and the switch that is its leaf, up before down.
template <class AFabric>
void AddEndLinks(const AFabric& fabric, const Origin& origin, std::size_t ends, Link link,
                 std::vector<Link>* links) {
  for (std::size_t n = 0; n < ends; ++n) {
    const auto end = origin.first_end + static_cast<std::uint32_t>(n);
    const auto router = origin.first_switch + static_cast<std::uint32_t>(fabric.leaf(n));
    link.kind = LinkKind::kNicUp, link.from = end, link.to = router;
    links->push_back(link);
    link.kind = LinkKind::kNicDown, link.from = router, link.to = end;
    links->push_back(link);
  }
}

// Leaves under spines, spines of one index under cores. Leaf (segment, rail, port) is number
// (segment · rails + rail) · ports + port; a segment is the hosts that share leaves. With one
// plane every leaf of a pod meets every spine of it; with planes = ports, port k's leaves meet
// plane k's alone. Links: per NIC and port up, down; per leaf and spine up, down; per spine and
// core up, down.
class Clos {
 public:
  struct Shape {
    int nodes = 1, nics_per_node = 1, nodes_per_leaf = 1;
    int rails = 1;             // 1, or nics_per_node
    int ports = 1;             // of a NIC, each under a leaf of its own
    int planes = 1;            // 1, or ports
    int segments_per_pod = 0;  // 0: one pod
    int spines = 0;            // of one pod and plane; 0: no leaf needs one
    int cores = 0;             // above each spine; 0: one pod
    std::int64_t port_Bps = 0, spine_Bps = 0, core_Bps = 0;
    SimTime latency = 0, spine_latency = 0, core_latency = 0;
    std::int32_t mtu_bytes = 0;
  };
  Clos() = default;
  explicit Clos(const Shape& shape);

  static constexpr bool direct() { return false; }
  std::uint32_t switches() const { return leaves() + spines() + cores(); }
  std::int64_t links() const;
  std::size_t leaf(std::size_t nic) const;  // of port 0
  int switches_between(std::size_t from, std::size_t to) const;
  void AddLinks(const Origin& origin, std::vector<Link>* links) const;
  void Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
             std::vector<LinkId>* path) const;
  std::string SwitchName(std::uint32_t number) const;

  std::uint32_t leaves() const { return leaves_; }
  std::uint32_t spines() const { return spines_; }
  std::uint32_t cores() const;
  const Shape& shape() const { return s_; }

 private:
  std::size_t segment(std::size_t nic) const;
  std::size_t rail(std::size_t nic) const;

  Shape s_;
  std::uint32_t segments_ = 1, pods_ = 1, leaves_ = 1, spines_ = 0;
};

// Groups of routers: all routers of a group joined, all groups joined by `global` links a router,
// dealt round so that two groups share as many as any other two. Links: per NIC up, down; per
// router to each other of its group; per group and global port.
class Dragonfly {
 public:
  struct Shape {
    std::size_t nics = 1;
    int nics_per_router = 1, routers_per_group = 1, global_per_router = 1;
    std::int64_t nic_Bps = 0, local_Bps = 0, global_Bps = 0;
    SimTime latency = 0, global_latency = 0;
    std::int32_t mtu_bytes = 0;
  };
  Dragonfly() = default;
  explicit Dragonfly(const Shape& shape);

  static constexpr bool direct() { return false; }
  std::uint32_t switches() const;
  std::int64_t links() const;
  std::size_t leaf(std::size_t nic) const;
  void AddLinks(const Origin& origin, std::vector<Link>* links) const;
  void Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
             std::vector<LinkId>* path) const;
  std::string SwitchName(std::uint32_t number) const;

  const Shape& shape() const { return s_; }
  std::size_t groups() const { return groups_; }

 private:
  struct Crossing {
    std::size_t out_router = 0, in_router = 0, port = 0;  // routers within their groups
  };
  Crossing CrossingOf(std::size_t from_group, std::size_t to_group, std::size_t copy) const;
  std::uint32_t LocalLink(std::size_t router, std::size_t to) const;

  Shape s_;
  std::size_t groups_ = 1, copies_ = 0;
};

// Points in up to kMostDimensions dimensions, dimension 0 fastest. Each line of points along a
// dimension is a ring, an open line, a full mesh or hangs on one switch. A point is a router with
// the NICs of one host, or (direct) a GPU. Links: per NIC up, down unless direct; then dimension by
// dimension.
class Lattice {
 public:
  static constexpr std::size_t kMostDimensions = 8;
  struct Shape {
    std::vector<Dimension> dimensions;
    bool points_are_gpus = false;
    std::size_t ends = 1;  // NICs or GPUs in use
    std::size_t ends_per_point = 1;
    std::int64_t nic_Bps = 0;
    SimTime latency = 0;  // NIC to router
    std::int32_t mtu_bytes = 0;
  };
  Lattice() = default;
  explicit Lattice(Shape shape);

  bool direct() const { return s_.points_are_gpus; }
  std::uint32_t switches() const;
  std::int64_t links() const;
  std::size_t leaf(std::size_t nic) const { return nic / s_.ends_per_point; }
  void AddLinks(const Origin& origin, std::vector<Link>* links) const;
  void Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
             std::vector<LinkId>* path) const;
  std::string SwitchName(std::uint32_t number) const;
  const Shape& shape() const { return s_; }

 private:
  struct Axis {
    std::size_t size = 1, stride = 1;
    std::size_t first_link = 0;    // within the fabric
    std::size_t first_switch = 0;  // within the fabric; kSwitch only
  };
  std::size_t Line(std::size_t axis, std::size_t point) const;
  void AddDimension(const Origin& origin, std::size_t axis, std::vector<Link>* links) const;
  // Moves one link (two through a switch) along `axis` towards coordinate `to`.
  std::size_t Step(const Origin& origin, std::size_t axis, std::size_t point, std::size_t to,
                   bool up, std::vector<LinkId>* path) const;

  Shape s_;
  std::vector<Axis> axes_;
  std::size_t points_ = 1, switches_ = 0, links_ = 0;
};

// Any graph of GPUs and switches; GPUs forward nothing. Distances between switches are a table of
// one byte a pair.
class Imported {
 public:
  Imported() = default;
  // Fails unless ids are in range, the table fits its budget and every GPU reaches every other one.
  // REQUIRES: every cable is in the graph as two links, one each way.
  static Result<Imported> Make(const Graph& graph);

  static constexpr bool direct() { return true; }
  std::uint32_t switches() const { return graph_.switches; }
  std::int64_t links() const { return static_cast<std::int64_t>(graph_.links.size()); }
  std::size_t leaf(std::size_t gpu) const;
  void AddLinks(const Origin& origin, std::vector<Link>* links) const;
  void Route(const Origin& origin, std::size_t from, std::size_t to, Choice choice,
             std::vector<LinkId>* path) const;
  std::string SwitchName(std::uint32_t number) const;

 private:
  static constexpr std::uint8_t kFar = 255;
  // Links between two switches at most: a way of two GPUs, with its ends, stays below kFar.
  static constexpr std::uint8_t kFarthest = 250;
  void Index();
  Status FillDistances();
  std::uint32_t Island(std::uint32_t number) const;
  Status CheckReach() const;
  int Distance(std::uint32_t vertex, std::uint32_t gpu) const;

  Graph graph_;
  std::vector<std::uint32_t> out_;        // links by sending vertex
  std::vector<std::uint32_t> first_out_;  // into out_, by vertex
  std::vector<std::uint32_t> in_;         // sending vertices of links, by receiving GPU
  std::vector<std::uint32_t> first_in_;
  std::vector<std::uint8_t> distance_;  // [from · switches + to]
};

using AnyFabric = std::variant<Clos, Dragonfly, Lattice, Imported>;

}  // namespace orrery::cluster
