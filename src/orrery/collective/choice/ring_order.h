// Where a group's members stand: in which order a channel's ring visits them, and in which chains
// and double binary tree a channel's tree connects them.
//
// A channel belongs to one NIC of each domain (NIC number channel mod NICs). Its ring enters a
// domain at a GPU beside that NIC and leaves it at another one there; where each GPU has a NIC to
// itself it leaves beside the neighbouring NIC, and every second domain runs the other way round,
// so that each crossing stays on a rail (NCCL pairs channels on odd nodes to the same end).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/collective/choice/graph_file.h"

namespace orrery::collective {

class RingOrder {
 public:
  // `graphs`: channels visit GPUs as a file says (graph_file.h); null: as above, or, where NVLinks
  // join GPUs without a switch, by those.
  RingOrder(const cluster::Cluster& cluster, std::span<const DeviceId> members,
            const Graphs* graphs = nullptr);

  std::size_t domains() const { return domains_.size(); }
  // Member indices in the order of the channel's ring, domain by domain.
  void Ring(int channel, std::vector<std::uint32_t>* order) const;
  // Members of domain `number`, the channel's head first.
  void ChainOf(std::size_t number, int channel, std::vector<std::uint32_t>* order) const;

 private:
  struct Domain {
    std::vector<std::uint32_t> members;       // grouped by NIC, NICs in the order of their number
    std::vector<std::uint32_t> first_of_nic;  // index into members; one past the end at last
    std::vector<std::vector<std::uint32_t>> rings;  // members, where NVLinks without a switch close
    std::size_t nics() const { return first_of_nic.size() - 1; }
  };
  // In the file's order; false: it has none of the kind.
  bool FromFile(const Graph& graph, const Domain& domain, int channel,
                std::vector<std::uint32_t>* order) const;

  void AddRings(const cluster::NvlinkMesh& mesh, Domain* domain) const;
  // The channel's ring of `rings` from its NIC's GPU on.
  void AlongNvlinks(const Domain& domain, int channel, std::vector<std::uint32_t>* order) const;

  std::vector<Domain> domains_;
  const Graphs* graphs_ = nullptr;
  std::vector<int> local_;  // by member: its number in its host
};

// NCCL's binary tree over `count` nodes, root 0. Children: -1 for none.
struct BinaryNode {
  int parent = -1;
  int child[2] = {-1, -1};
};
BinaryNode BinaryTree(int node, int count);
// The second tree of the pair: mirrored for an even count, shifted by one for an odd one, so that
// an inner node of one is a leaf of the other.
BinaryNode SecondBinaryTree(int node, int count);

}  // namespace orrery::collective
