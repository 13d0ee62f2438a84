#include "orrery/engine/straight/symmetry.h"

#include <algorithm>
#include <utility>

#include "orrery/base/check.h"
#include "orrery/base/hash.h"

namespace orrery::engine {
namespace {

// Numbers equal colours in order of first appearance; returns how many there are.
std::uint32_t Number(const std::vector<std::uint64_t>& colour, std::vector<std::uint32_t>* number) {
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  number->resize(colour.size());
  for (std::size_t i = 0; i < colour.size(); ++i) {
    (*number)[i] = known.emplace(colour[i], static_cast<std::uint32_t>(known.size())).first->second;
  }
  return static_cast<std::uint32_t>(known.size());
}

}  // namespace

LinkSymmetry::LinkSymmetry(const LoopInputs& unfolded, std::vector<std::uint32_t> class_of,
                           network::Network* network)
    : grain_(unfolded, network), class_of_(std::move(class_of)) {
  Bind(unfolded);
  Refine(unfolded);
  Sum();
}

// Names a meeting in any layout of the graph.
std::uint64_t LinkSymmetry::Key(const MeetInfo& meet, int plan) {
  Hasher hasher;
  hasher.Add(plan).Add(meet.pair);
  if (meet.pair) return hasher.Add(meet.from.value).Add(meet.slot).Add(meet.tag).value();
  return hasher.Add(meet.group.value).value();
}

void LinkSymmetry::Bind(const LoopInputs& in) {
  const Layout& layout = *in.layout;
  std::vector<FlowGrain::Binding> bindings;
  for (std::uint32_t r = 0; r < layout.ranks.size(); ++r) {
    const SimRank& rank = layout.ranks[r];
    for (const BlockPrice* block : layout.variants[rank.variant].blocks) {
      if (block == nullptr) continue;
      for (const CommPrice& comm : block->comms) {
        if (comm.plan < 0) continue;
        const std::uint32_t id = MeetOf(rank, comm.comm);
        if (id == kNobody) continue;
        // A pair starts by the plan of whoever comes last, and its ends may name two communicators.
        if (!layout.meets[id].pair && layout.members(id)[0] != r) continue;
        const auto number = static_cast<std::uint32_t>(bounds_.size());
        if (!bound_of_.emplace(Key(layout.meets[id], comm.plan), number).second) continue;
        bindings.push_back(grain_.Bind(id, comm.plan));
        bounds_.push_back({id, comm.plan});
      }
    }
  }
  for (std::size_t b = 0; b < bounds_.size(); ++b) {  // where loads stand is final now
    bounds_[b].first = static_cast<std::uint32_t>(fluids_.size());
    bounds_[b].count = bindings[b].fluids;
    for (std::uint32_t i = 0; i < bindings[b].fluids; ++i) {
      const FlowGrain::FluidView view = grain_.fluid(bindings[b], i);
      fluids_.push_back({0, view.bytes, view.weight, view.loads});
    }
  }
}

// Colours that a round of refinement makes anew from those of the round before.
struct LinkSymmetry::Round {
  std::vector<std::uint64_t> rank;     // kept from round to round
  std::vector<std::uint64_t> slots;    // by meeting: behind which a group stands; never changes
  std::vector<std::uint64_t> meet;     // by meeting: from its ranks
  std::vector<std::uint64_t> crossed;  // by meeting: with the fluids that it starts
  std::vector<std::uint64_t> on_link;  // by link: sum over the fluids that cross it
};

void LinkSymmetry::ColourMeets(const Layout& layout, Round* round) const {
  for (std::size_t id = 0; id < layout.meets.size(); ++id) {
    const MeetInfo& info = layout.meets[id];
    Hasher hasher;
    std::uint64_t sum = 0;
    for (const std::uint32_t m : layout.members(static_cast<std::uint32_t>(id))) {
      if (info.pair) hasher.Add(round->rank[m]);
      sum += Mix64(round->rank[m]);
    }
    hasher.Add(sum).Add(round->slots[id]).Add(info.pair).Add(info.slot).Add(info.tag);
    round->meet[id] = hasher.value();
  }
}

void LinkSymmetry::ColourFluids(Round* round) {
  std::ranges::fill(round->on_link, 0u);
  round->crossed = round->meet;
  for (Bound& b : bounds_) {
    std::uint64_t all = 0;
    for (Fluid& f : std::span(fluids_).subspan(b.first, b.count)) {
      std::uint64_t sum = 0;
      for (const network::LinkLoad& load : f.loads) {
        sum += Mix64(HashCombine(link_colour_[load.link.index()], load.share));
      }
      Hasher hasher;
      hasher.Add(round->meet[b.meet]).Add(b.plan).Add(f.bytes).Add(f.weight).Add(sum);
      f.colour = hasher.value();
      for (const network::LinkLoad& load : f.loads) {
        round->on_link[load.link.index()] += Mix64(HashCombine(f.colour, load.share));
      }
      all += Mix64(f.colour);
    }
    b.colour = Hasher().Add(round->meet[b.meet]).Add(b.plan).Add(all).value();
    round->crossed[b.meet] += Mix64(b.colour);
  }
  for (std::size_t l = 0; l < link_colour_.size(); ++l) {
    link_colour_[l] = HashCombine(link_colour_[l], round->on_link[l]);
  }
}

void LinkSymmetry::ColourRanks(const Layout& layout, Round* round) {
  for (std::size_t r = 0; r < layout.ranks.size(); ++r) {
    const SimRank& rank = layout.ranks[r];
    Hasher hasher;
    hasher.Add(round->rank[r]);
    const auto add = [&](std::uint32_t id) { hasher.Add(id == kNobody ? 0 : round->crossed[id]); };
    std::ranges::for_each(rank.meet, add);
    for (const auto& tags : rank.send) std::ranges::for_each(tags, add);
    for (const auto& tags : rank.receive) std::ranges::for_each(tags, add);
    round->rank[r] = hasher.value();
  }
}

void LinkSymmetry::Refine(const LoopInputs& in) {
  const Layout& layout = *in.layout;
  const auto links = in.inputs->cluster->links();
  Round round;
  round.rank.assign(class_of_.begin(), class_of_.end());
  for (const cluster::Link& link : links) {
    Hasher hasher;
    link_colour_.push_back(hasher.Add(link.kind).Add(link.bandwidth_Bps).Add(link.latency).value());
  }
  round.slots.resize(layout.meets.size());
  for (const SimRank& rank : layout.ranks) {
    for (std::size_t s = 0; s < rank.meet.size(); ++s) {
      if (rank.meet[s] != kNobody) round.slots[rank.meet[s]] |= std::uint64_t{1} << s;
    }
  }
  round.meet.resize(layout.meets.size());
  round.on_link.resize(links.size());
  std::vector<std::uint32_t> link_class;
  classes_ = Number(round.rank, &class_of_);
  std::uint32_t link_classes = Number(link_colour_, &link_class);
  for (bool finer = true; finer && classes_ < round.rank.size();) {
    ColourMeets(layout, &round);
    ColourFluids(&round);
    ColourRanks(layout, &round);
    const std::uint32_t ranks_before = std::exchange(classes_, Number(round.rank, &class_of_));
    const std::uint32_t links_before =
        std::exchange(link_classes, Number(link_colour_, &link_class));
    finer = classes_ != ranks_before || link_classes != links_before;
  }
  std::vector<LinkId> first(link_classes);
  for (std::size_t l = 0; l < links.size(); ++l) {
    LinkId& stands = first[link_class[l]];
    if (!stands.valid()) stands = LinkId(l);
    stands_for_.push_back(stands);
  }
}

void LinkSymmetry::Sum() {
  std::vector<LinkId> seen;
  for (const Bound& b : bounds_) {
    seen.clear();
    for (const Fluid& f : std::span(fluids_).subspan(b.first, b.count)) {
      for (const network::LinkLoad& load : f.loads) {
        if (stands_for(load.link) != load.link) continue;
        std::uint64_t& share = share_[HashCombine(f.colour, load.link.value)];
        share += load.share;
        fits_ = fits_ && share <= 0xFFFFFFFFu;
        seen.push_back(load.link);
      }
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const LinkId link : seen) ++copies_[HashCombine(b.colour, link.value)];
  }
}

bool LinkSymmetry::Stands(const MeetInfo& meet, int plan, std::uint32_t i) const {
  const Bound& b = bounds_[bound_of_.at(Key(meet, plan))];
  const auto fluids = std::span(fluids_).subspan(b.first, i);
  return std::ranges::find(fluids, fluids_[b.first + i].colour, &Fluid::colour) == fluids.end();
}

std::vector<network::LinkLoad> LinkSymmetry::Loads(const MeetInfo& meet, int plan,
                                                   std::uint32_t i) const {
  const Bound& b = bounds_[bound_of_.at(Key(meet, plan))];
  const Fluid& f = fluids_[b.first + i];
  std::vector<network::LinkLoad> loads;
  for (const network::LinkLoad& load : f.loads) loads.push_back({stands_for(load.link), 0});
  std::sort(loads.begin(), loads.end(),
            [](const auto& x, const auto& y) { return x.link < y.link; });
  loads.erase(std::unique(loads.begin(), loads.end()), loads.end());
  for (network::LinkLoad& load : loads) {
    load.share = static_cast<std::uint32_t>(share_.at(HashCombine(f.colour, load.link.value)));
  }
  return loads;
}

std::uint32_t LinkSymmetry::Copies(const MeetInfo& meet, int plan, LinkId link) const {
  const Bound& b = bounds_[bound_of_.at(Key(meet, plan))];
  return copies_.at(HashCombine(b.colour, link.value));
}

}  // namespace orrery::engine
