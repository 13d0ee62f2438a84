// Which ranks, and which links, are alike when collectives are fluids over single links.
//
// The coarsest equitable partition over ranks, meetings, fluids and links: a link is coloured by
// its kind and the fluids that may cross it, a fluid by its meeting, its bytes and the links that
// it crosses, a meeting by its ranks and fluids, a rank by its meetings. Every fluid of a class
// then meets, on every link of a class, as many fluids of every class; all members of a class start
// together; so max-min gives all of them one rate. One link stands for its class: a fluid loads it
// with what all fluids of its class that cross it load it with.
//
// It begins with the classes that folding gives where links are not seen (layout.h), and with all
// that the run could start: every meeting under every plan of its ranks' programs.
// Cost: O(loads of all fluids) a round, a handful of rounds.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "orrery/engine/flow_grain.h"
#include "orrery/engine/loop.h"

namespace orrery::engine {

class LinkSymmetry {
 public:
  // `unfolded`: inputs with an unfolded layout; class_of: the classes to begin with, by rank.
  LinkSymmetry(const LoopInputs& unfolded, std::vector<std::uint32_t> class_of,
               network::Network* network);

  std::uint32_t classes() const { return classes_; }
  // By rank, numbered in order of the lowest rank.
  const std::vector<std::uint32_t>& class_of() const { return class_of_; }

  // Whether fluid i stands for those of its class: it is the first of the meeting's.
  bool Stands(const MeetInfo& meet, int plan, std::uint32_t i) const;
  // What it loads, for all that it stands for.
  std::vector<network::LinkLoad> Loads(const MeetInfo& meet, int plan, std::uint32_t i) const;
  // How many such meetings cross the link.
  std::uint32_t Copies(const MeetInfo& meet, int plan, LinkId link) const;
  // The link that stands for this one.
  LinkId stands_for(LinkId link) const { return stands_for_[link.index()]; }
  // Shares of all fluids of a class on a link have to fit.
  bool fits() const { return fits_; }

 private:
  struct Fluid {
    std::uint64_t colour = 0;
    std::int64_t bytes = 0;
    std::uint32_t weight = 1;
    std::span<const network::LinkLoad> loads;
  };
  struct Bound {
    std::uint32_t meet = 0;
    std::int32_t plan = 0;
    std::uint32_t first = 0, count = 0;  // into fluids_
    std::uint64_t colour = 0;
  };
  static std::uint64_t Key(const MeetInfo& meet, int plan);
  void Bind(const LoopInputs& in);
  void Refine(const LoopInputs& in);
  struct Round;
  void ColourMeets(const Layout& layout, Round* round) const;
  void ColourFluids(Round* round);
  void ColourRanks(const Layout& layout, Round* round);
  void Sum();

  FlowGrain grain_;
  std::vector<std::uint32_t> class_of_;
  std::uint32_t classes_ = 0;
  std::vector<Fluid> fluids_;
  std::vector<Bound> bounds_;
  std::unordered_map<std::uint64_t, std::uint32_t> bound_of_;  // by Key
  std::vector<std::uint64_t> link_colour_;
  std::vector<LinkId> stands_for_;
  std::unordered_map<std::uint64_t, std::uint64_t> share_;   // by colour of fluid, and link
  std::unordered_map<std::uint64_t, std::uint32_t> copies_;  // by colour of bound, and link
  bool fits_ = true;
};

}  // namespace orrery::engine
