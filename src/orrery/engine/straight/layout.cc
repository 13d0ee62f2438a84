#include "orrery/engine/straight/layout.h"

#include <algorithm>
#include <unordered_map>

#include "orrery/base/hash.h"
#include "orrery/engine/rank_noise.h"

namespace orrery::engine {
namespace {

using graph::kGroupSlots;
using graph::kPeerSlots;

// What a rank is before anyone is met.
struct Perturbed {
  double speed = 1;
  SimTime delay = 0;
};

class Builder {
 public:
  Builder(const Inputs& inputs, const Options& options, PriceCache* prices)
      : graph_(*inputs.graph),
        cluster_(*inputs.cluster),
        device_(inputs.placement->device),
        prices_(prices),
        perturbed_(graph_.bindings.size()) {
    for (const RankPerturbation& p : options.ranks) {
      perturbed_[p.rank.index()] = {p.speed, p.delay};
    }
    if (options.rank_noise == 0) return;
    layout_.paces = RankPaces(graph_, options.rank_noise, prices);
    for (std::size_t r = 0; r < ranks(); ++r) {
      perturbed_[r].speed /= layout_.paces[graph_.bindings[r].program.index()];
    }
  }

  Result<Layout> Build(Folding folding) {
    FindNics();
    FindShapes();
    if (folding == Folding::kClasses) {
      Refine();
      FindAlone(layout_.class_of);
    }
    if (folding == Folding::kGathers) {
      layout_.gathers = true;
      FindAlone(Kinds());
    }
    return Make();
  }
  Layout Ports() {
    FindNics();
    MakeRanks();
    MakePorts();
    return std::move(layout_);
  }
  Result<Layout> Build(std::vector<std::uint32_t> class_of) {
    FindNics();
    FindShapes();
    const std::vector<std::uint64_t> colour(class_of.begin(), class_of.end());
    std::vector<std::uint64_t> next(ranks());
    Round(colour, &next);  // the groups' and the NICs' colours
    layout_.class_of = std::move(class_of);
    return Make();
  }

 private:
  Result<Layout> Make() {
    MakeRanks();
    MakePorts();
    MakeMeets();
    ORRERY_RETURN_IF_ERROR(MakeVariants());
    return std::move(layout_);
  }

  std::size_t ranks() const { return graph_.bindings.size(); }

  void FindShapes() {
    group_shape_.resize(graph_.groups.size());
    std::vector<DeviceId> members;
    for (std::size_t g = 0; g < group_shape_.size(); ++g) {
      members.clear();
      for (RankId r : graph_.groups.members(GroupId(g))) members.push_back(device_[r.index()]);
      group_shape_[g] = prices_->ShapeId(collective::ShapeOf(cluster_, members));
    }
    peer_shape_.resize(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      const graph::Binding& b = graph_.bindings[r];
      for (std::size_t p = 0; p < kPeerSlots; ++p) {
        if (b.peers[p].valid()) peer_shape_[r][p] = PairShape(RankId(r), b.peers[p]);
      }
    }
  }

  void FindNics() {
    std::vector<std::uint8_t> users(cluster_.nics(), 0);
    nic_.reserve(ranks());
    for (const DeviceId d : device_) {
      nic_.push_back(cluster_.nic(d).value);
      std::uint8_t& n = users[nic_.back()];
      n = static_cast<std::uint8_t>(std::min(n + 1, 2));
      nics_shared_ |= n > 1;
    }
    nic_users_ = std::move(users);
  }

  // Of both ends: they name one plan.
  std::uint16_t PairShape(RankId a, RankId b) {
    if (device_[b.index()] < device_[a.index()]) std::swap(a, b);
    const DeviceId da = device_[a.index()], db = device_[b.index()];
    // Pairs over the same two leaves are alike; 0: inside a domain, which no two leaves give. With
    // PCIe trees their ends are as far from their NICs, or from each other.
    const std::uint64_t leaf_a = cluster_.leaf(NicId(nic_[a.index()])) + 1;
    const std::uint64_t leaf_b = cluster_.leaf(NicId(nic_[b.index()])) + 1;
    const bool near = cluster_.nvlink_domain(da) == cluster_.nvlink_domain(db);
    std::uint64_t leaves = near ? 0 : leaf_a << 32 | leaf_b;
    if (cluster_.pcie_tree().any()) {
      const auto at = [](cluster::PcieDistance d) { return static_cast<std::uint64_t>(d); };
      if (!near) {
        leaves =
            leaves << 2 | std::max(at(cluster_.nic_distance(da)), at(cluster_.nic_distance(db)));
      } else if (cluster_.peers_over_pcie()) {
        leaves = at(cluster_.peer_distance(da, db));
      }
    }
    if (leaves == last_leaves_) return last_pair_shape_;  // ranks in a row mostly repeat it
    std::uint16_t& shape = pair_shape_[leaves];
    if (shape == 0) {
      const DeviceId pair[2] = {da, db};
      shape = prices_->ShapeId(collective::ShapeOf(cluster_, pair));
    }
    last_leaves_ = leaves;
    last_pair_shape_ = shape;
    return shape;
  }

  // `classes`: folded by them; a ring within one is the rank's own.
  View ViewOf(std::size_t r, bool classes) const {
    const graph::Binding& b = graph_.bindings[r];
    View view;
    view.speed = perturbed_[r].speed;
    for (std::size_t s = 0; s < kGroupSlots; ++s) {
      if (!b.groups[s].valid()) continue;
      const std::size_t g = b.groups[s].index();
      view.shape[s] = group_shape_[g];
      if (!alone_.empty() && alone_[g]) view.alone |= static_cast<std::uint16_t>(1u << s);
    }
    view.peer = peer_shape_[r];
    const auto& class_of = layout_.class_of;
    for (std::size_t p = 0; classes && p < kPeerSlots; ++p) {
      if (!b.peers[p].valid() || class_of[b.peers[p].index()] != class_of[r]) continue;
      if (SlotBack(RankId(r), p) != (p ^ 1)) continue;
      view.own_peers |= static_cast<std::uint8_t>(1u << p);
    }
    return view;
  }

  // The groups whose members are all of one kind.
  void FindAlone(const std::vector<std::uint32_t>& kind) {
    alone_.assign(graph_.groups.size(), true);
    for (std::size_t g = 0; g < alone_.size(); ++g) {
      const auto members = graph_.groups.members(GroupId(g));
      alone_[g] = std::ranges::all_of(
          members, [&](RankId m) { return kind[m.index()] == kind[members[0].index()]; });
    }
  }
  // Of every rank: those of one kind run one program at one speed and see alike groups and peers.
  std::vector<std::uint32_t> Kinds() const {
    std::unordered_map<std::uint64_t, std::uint32_t> known;
    std::vector<std::uint32_t> kind;
    kind.reserve(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::uint64_t key = VariantKey(ViewOf(r, false), graph_.bindings[r]);
      kind.push_back(known.emplace(key, static_cast<std::uint32_t>(known.size())).first->second);
    }
    return kind;
  }
  static std::uint64_t VariantKey(const View& view, const graph::Binding& b) {
    return Hasher().Add(view.Key()).Add(b.program.value).Add(b.job.value).value();
  }

  // One round of refinement: new colours from old ones. Sums of mixed colours are multisets'
  // hashes.
  void Round(const std::vector<std::uint64_t>& colour, std::vector<std::uint64_t>* next) {
    group_colour_.assign(graph_.groups.size(), 0);
    for (std::size_t g = 0; g < group_colour_.size(); ++g) {
      std::uint64_t sum = 0;
      for (RankId m : graph_.groups.members(GroupId(g))) sum += Mix64(colour[m.index()]);
      group_colour_[g] = HashCombine(sum, group_shape_[g]);
    }
    if (nics_shared_) {
      nic_colour_.assign(cluster_.nics(), 0);
      for (std::size_t r = 0; r < ranks(); ++r) nic_colour_[nic_[r]] += Mix64(colour[r]);
    }
    for (std::size_t r = 0; r < ranks(); ++r) {
      const graph::Binding& b = graph_.bindings[r];
      std::uint64_t h = nics_shared_ ? HashCombine(colour[r], nic_colour_[nic_[r]]) : colour[r];
      for (std::size_t s = 0; s < kGroupSlots; ++s) {
        if (b.groups[s].valid()) h = HashCombine(h, group_colour_[b.groups[s].index()] + s);
      }
      for (std::size_t p = 0; p < kPeerSlots; ++p) {
        if (!b.peers[p].valid()) continue;
        h = HashCombine(h, colour[b.peers[p].index()] + peer_shape_[r][p]);
      }
      (*next)[r] = h;
    }
  }

  // Numbers the classes in order of their lowest rank; returns how many there are.
  std::size_t Number(const std::vector<std::uint64_t>& colour) {
    std::unordered_map<std::uint64_t, std::uint32_t> number;
    number.reserve(64);
    layout_.class_of.resize(ranks());
    std::uint64_t last_colour = 0;
    std::uint32_t last = kNobody;
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (last == kNobody || colour[r] != last_colour) {
        last = number.emplace(colour[r], static_cast<std::uint32_t>(number.size())).first->second;
        last_colour = colour[r];
      }
      layout_.class_of[r] = last;
    }
    return number.size();
  }

  void Refine() {
    std::vector<std::uint64_t> colour(ranks()), next(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      const graph::Binding& b = graph_.bindings[r];
      colour[r] = Hasher()
                      .Add(b.program.value)
                      .Add(b.job.value)
                      .Add(perturbed_[r].speed)
                      .Add(perturbed_[r].delay)
                      .value();
    }
    std::size_t classes = Number(colour);
    for (;;) {
      Round(colour, &next);
      colour.swap(next);
      const std::size_t now = Number(colour);
      if (now == classes) return;
      classes = now;
    }
  }

  void MakeRanks() {
    const bool folded = !layout_.class_of.empty();
    if (!folded) layout_.ranks.reserve(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (folded && layout_.class_of[r] < layout_.ranks.size()) {
        ++layout_.ranks[layout_.class_of[r]].size;
        continue;
      }
      SimRank s;
      s.rank = RankId(r);
      s.logical_rank = graph_.bindings[r].logical_rank;
      s.delay = perturbed_[r].delay;
      s.meet.fill(kNobody);
      for (auto& tags : s.send) tags.fill(kNobody);
      for (auto& tags : s.receive) tags.fill(kNobody);
      layout_.ranks.push_back(s);
    }
  }

  // Two private NVLink ports a simulated rank, two ports a NIC that one of them sits next to.
  void MakePorts() {
    const cluster::Spec& spec = cluster_.spec();
    auto& capacity = layout_.port_capacity_Bps;
    // Over PCIe a GPU's own links bound it, as the host's do (below).
    const std::int64_t peer = spec.peers_over_pcie() ? std::max(spec.nvlink_Bps, spec.pcie_Bps)
                                                     : spec.nvlink_reached_Bps();
    capacity.assign(2 * layout_.ranks.size(), std::max<std::int64_t>(peer, 1));
    std::vector<std::uint32_t> port(cluster_.nics(), kNobody);
    for (std::size_t i = 0; i < layout_.ranks.size(); ++i) {
      SimRank& s = layout_.ranks[i];
      s.nvlink_port = static_cast<std::uint32_t>(2 * i);
      std::uint32_t& p = port[nic_[s.rank.index()]];
      if (p == kNobody) {
        p = static_cast<std::uint32_t>(capacity.size());
        capacity.insert(capacity.end(), 2, std::max<std::int64_t>(spec.nic_reached_Bps(), 1));
      }
      s.nic_port = p;
    }
    AddHostPorts();
    for (SimRank& s : layout_.ranks) s.private_nic = nic_users_[nic_[s.rank.index()]] == 1;
    if (layout_.class_of.empty() || !nics_shared_) return;
    // Another class of the same kind of NIC must meet its copies at one port: give every class the
    // port of the representative's NIC and count the class's members there. Classes that share NICs
    // elsewhere share the representative's too, since the NIC's colour is part of theirs.
    for (std::size_t i = 0; i < layout_.ranks.size(); ++i) layout_.ranks[i].nic_copies = 0;
    for (std::size_t r = 0; r < ranks(); ++r) {
      SimRank& s = layout_.ranks[layout_.class_of[r]];
      if (nic_[r] == nic_[s.rank.index()]) ++s.nic_copies;
    }
    ShareNicPorts(&port);
  }

  void AddHostPorts() {
    if (!cluster_.pcie_tree().any() || !layout_.class_of.empty()) return;
    auto& capacity = layout_.port_capacity_Bps;
    layout_.first_pcie_port = static_cast<std::uint32_t>(capacity.size());
    const auto links = cluster_.links().subspan(cluster_.first_pcie_link(), cluster_.pcie_links());
    for (const cluster::Link& link : links) capacity.push_back(link.bandwidth_Bps);
  }

  // Representatives of classes that share a NIC need not sit at the same one: the lowest class of
  // each kind of NIC owns the port.
  void ShareNicPorts(std::vector<std::uint32_t>* port) {
    std::unordered_map<std::uint64_t, std::uint32_t> owner;
    for (SimRank& s : layout_.ranks) {
      const std::uint32_t nic = nic_[s.rank.index()];
      const auto [it, fresh] = owner.emplace(nic_colour_[nic], (*port)[nic]);
      if (!fresh) s.nic_port = it->second;
    }
  }

  void MakeMeets() {
    const bool folded = !layout_.class_of.empty();
    std::unordered_map<std::uint64_t, std::uint32_t> by_colour;
    std::vector<std::uint32_t> by_group(folded ? 0 : graph_.groups.size(), kNobody);
    for (std::size_t i = 0; i < layout_.ranks.size(); ++i) {
      const graph::Binding& b = graph_.bindings[layout_.ranks[i].rank.index()];
      for (std::size_t s = 0; s < kGroupSlots; ++s) {
        if (!b.groups[s].valid()) continue;
        std::uint32_t* id = nullptr;
        if (folded) {
          id = &by_colour.emplace(group_colour_[b.groups[s].index()] + s, kNobody).first->second;
        } else {
          id = &by_group[b.groups[s].index()];
        }
        if (*id == kNobody) *id = AddGroupMeet(b.groups[s]);
        layout_.ranks[i].meet[s] = *id;
      }
    }
    for (std::size_t i = 0; i < layout_.ranks.size(); ++i) AddPairs(static_cast<std::uint32_t>(i));
  }

  std::uint32_t AddGroupMeet(GroupId group) {
    MeetInfo info;
    info.group = group;
    info.first = static_cast<std::uint32_t>(layout_.participants.size());
    for (RankId m : graph_.groups.members(group)) {
      const std::uint32_t sim = layout_.sim_of(m);
      if (!layout_.class_of.empty() &&
          std::find(layout_.participants.begin() + info.first, layout_.participants.end(), sim) !=
              layout_.participants.end()) {
        continue;
      }
      layout_.participants.push_back(sim);
    }
    info.count = static_cast<std::uint32_t>(layout_.participants.size()) - info.first;
    layout_.meets.push_back(info);
    return static_cast<std::uint32_t>(layout_.meets.size() - 1);
  }

  // The slot by which the peer behind `slot` sees this rank: the opposite one if it fits.
  std::size_t SlotBack(RankId rank, std::size_t slot) const {
    const RankId peer = graph_.bindings[rank.index()].peers[slot];
    const auto& back = graph_.bindings[peer.index()].peers;
    for (std::size_t i = 0; i < kPeerSlots; ++i) {
      const std::size_t candidate = slot ^ 1 ^ i;
      if (back[candidate] == rank) return candidate;
    }
    return kPeerSlots;
  }

  void AddPairs(std::uint32_t i) {
    const RankId rank = layout_.ranks[i].rank;
    const graph::Binding& b = graph_.bindings[rank.index()];
    for (std::size_t slot = 0; slot < kPeerSlots; ++slot) {
      if (!b.peers[slot].valid()) continue;
      const std::size_t back = SlotBack(rank, slot);
      if (back == kPeerSlots) continue;  // nobody receives: the first send reports it
      const std::uint32_t peer = layout_.sim_of(b.peers[slot]);
      for (int tag = 0; tag < graph::kStraightTags; ++tag) {
        MeetInfo info;
        info.first = static_cast<std::uint32_t>(layout_.participants.size());
        info.count = 2;
        info.pair = true;
        info.from = rank;
        info.to = b.peers[slot];
        info.slot = static_cast<std::uint8_t>(slot);
        info.tag = static_cast<std::uint8_t>(tag);
        layout_.participants.push_back(i);
        layout_.participants.push_back(peer);
        const auto id = static_cast<std::uint32_t>(layout_.meets.size());
        layout_.meets.push_back(info);
        layout_.ranks[i].send[slot][static_cast<std::size_t>(tag)] = id;
        layout_.ranks[peer].receive[back][static_cast<std::size_t>(tag)] = id;
      }
    }
  }

  Status MakeVariants() {
    std::unordered_map<std::uint64_t, std::uint32_t> known;
    const bool classes = !layout_.class_of.empty() && !alone_.empty();
    for (SimRank& s : layout_.ranks) {
      const graph::Binding& b = graph_.bindings[s.rank.index()];
      const View view = ViewOf(s.rank.index(), classes);
      const auto [it, fresh] =
          known.emplace(VariantKey(view, b), static_cast<std::uint32_t>(layout_.variants.size()));
      s.variant = it->second;
      if (!fresh) continue;
      Variant v;
      v.program = b.program;
      v.job = b.job;
      v.view = view;
      v.blocks.assign(graph_.blocks.size(), nullptr);
      double seconds = 0;
      for (const graph::Call& call : graph_.programs[b.program.index()].calls) {
        const BlockPrice*& price = v.blocks[call.block.index()];
        if (price != nullptr) {
          seconds += call.repeat * price->seconds;
          continue;
        }
        ORRERY_ASSIGN_OR_RETURN(
            price, prices_->Find(graph_.blocks[call.block.index()], view, graph_.shares));
        for (const Item& item : price->items) {
          layout_.streams = std::max(layout_.streams, item.stream + 1);
        }
        seconds += call.repeat * price->seconds;
      }
      if (seconds > kLongest_s) {
        return InvalidInput(
            "'{}' has work for {:.2g} s an iteration, where {:.0f} s (28 h) are the most: see "
            "cluster.device, the cluster's bandwidths and the sizes of model and training",
            graph_.programs[b.program.index()].name, seconds, kLongest_s);
      }
      layout_.variants.push_back(std::move(v));
    }
    return {};
  }

  const graph::Graph& graph_;
  const cluster::Cluster& cluster_;
  const std::vector<DeviceId>& device_;
  PriceCache* prices_;
  std::vector<Perturbed> perturbed_;
  std::vector<std::uint16_t> group_shape_;
  std::unordered_map<std::uint64_t, std::uint16_t> pair_shape_;  // by leaves
  std::uint64_t last_leaves_ = ~std::uint64_t{0};                // of the last pair looked up
  std::uint16_t last_pair_shape_ = 0;
  std::vector<std::array<std::uint16_t, kPeerSlots>> peer_shape_;  // by rank
  std::vector<std::uint32_t> nic_;                                 // by rank
  std::vector<std::uint8_t> nic_users_;                            // by NIC: 0, 1, or 2 for more
  bool nics_shared_ = false;
  std::vector<bool> alone_;  // by group; empty: no block is taken as a whole
  std::vector<std::uint64_t> group_colour_, nic_colour_;
  Layout layout_;
};

}  // namespace

Result<Layout> BuildLayout(const Inputs& inputs, const Options& options, Folding folding,
                           PriceCache* prices) {
  return Builder(inputs, options, prices).Build(folding);
}

Layout BuildPorts(const Inputs& inputs, PriceCache* prices) {
  return Builder(inputs, Options(), prices).Ports();
}

Result<Layout> BuildLayout(const Inputs& inputs, const Options& options,
                           std::vector<std::uint32_t> class_of, PriceCache* prices) {
  return Builder(inputs, options, prices).Build(std::move(class_of));
}

}  // namespace orrery::engine
