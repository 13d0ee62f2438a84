// Weighted max-min fair levels of flows over links, in integers, solved again only where disturbed.
//
// Model. A flow f of weight w_f loads link l with share_fl / 1024 bytes for each of its own bytes;
// a link it crosses twice has twice the share. The rule, a water-filling in stages: a link's level
// is
//     floor(256 · residual capacity · 1024 / Σ over its unfrozen flows of w_f · share_fl)
// in 256ths of a byte/s;
// the least level freezes all links that have it, together, from the residuals before it: their
// unfrozen flows get it, and what they take comes off their other links. A flow's rate is
// w_f · level. A rate cap is a link of the flow's own: level floor(256 · cap / w_f). Levels of
// successive stages rise strictly. Flows of equal loads, weight and cap are one class with members.
//
// Uniqueness. Write C, S(v), W(v) for a link's capacity, what its flows of levels below v take, and
// the weights of those at v and above. An assignment of levels is the rule's outcome exactly if
//   (1) on every link with highest level m: C - S(m) >= m·W(m), and C - S(v) >= (v + 1)·W(v) at
//   every
//       lower level v there; and
//   (2) every flow has its cap's level, or a link on which it has the highest level m and
//       C - S(m) < (m + 1)·W(m): its bottleneck.
// (Take two assignments and the flow with the lowest level at which they differ: on its bottleneck
// in the one, (1) fails in the other.) So the solver is free in how it gets there: it keeps the
// levels of all flows but a disturbed set fixed, fills the links for that set alone, and checks (1)
// and (2) on the links where something changed; what fails them joins the set. It begins with the
// flows that came, changed, or have their bottleneck on a link of one that came or went. Beyond a
// tenth of all loads the set is everything. A class that came or changed and has all of its links
// to itself has the least of their levels, and no set.
//
// Source: bottleneck conditions after Bertsekas and Gallager, Data Networks (1992), 6.5.2, in
// integers; docs of the rule: DESIGN, "A network is a few calls".
//
// Accuracy. A floor leaves less than 1/256 byte/s for every flow on a link, and a later flow may
// get all of that: levels are within loads / 256 byte/s of real-valued max-min, hence within 1
// byte/s a link where links carry up to 256 flows each on average. Whole byte/s would not do: four
// equal flows over a link of 3 byte/s would get nothing, and one that shares a link of 10 with them
// 10 instead of 7, off by 3 over 2 links.
//
// Units. Capacities and caps in byte/s, at most kMaxCapacity; weights so that Σ w · share of a link
// stays below 2^42. No floating point; no order of calls changes an outcome.
//
// Cost. A round is O(loads of the set · log of its links) plus the population of its frozen links;
// rounds are few (bench/network_bench); what many flows cost is the cache lines of their classes,
// which are fetched ahead. Memory: 64 bytes a class, 12 + 8 a load, 96 a link.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace orrery::network {

class MaxMin {
 public:
  static constexpr std::uint32_t kWhole = 1024;  // share of a flow that loads a link with its bytes
  static constexpr std::int64_t kFine = 256;     // levels and rates count in 256ths of a byte/s
  static constexpr std::int64_t kMaxCapacity_Bps = std::int64_t{1} << 44;
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  struct Load {
    std::uint32_t link = 0;
    std::uint32_t share = kWhole;  // bytes on the link per byte of the flow, in 1024ths, above 0
    friend bool operator==(const Load&, const Load&) = default;
  };

  // REQUIRES: every capacity within 1 to kMaxCapacity_Bps.
  void Setup(std::span<const std::int64_t> capacity_Bps);
  // A class without members. `cap_Bps` is of one member; 0: none. REQUIRES: loads not empty, each
  // link once; weight > 0; cap >= weight or 0.
  std::uint32_t AddClass(std::span<const Load> loads, std::uint32_t weight, std::int64_t cap_Bps);
  void AddMembers(std::uint32_t id, std::int32_t count);  // negative: they leave
  // 0: the link is down, its flows have level 0.
  void SetCapacity(std::uint32_t link, std::int64_t capacity_Bps);

  bool dirty() const { return !dirty_classes_.empty() || !dirty_links_.empty(); }
  // Brings levels up to date and appends the classes whose level changed; a class that came has had
  // level 0.
  void Solve(std::vector<std::uint32_t>* changed);
  void set_always_full(bool value) { always_full_ = value; }

  std::int64_t level(std::uint32_t id) const { return classes_[id].level; }
  std::int64_t rate(std::uint32_t id) const {  // in 256ths of a byte/s
    return classes_[id].level * static_cast<std::int64_t>(classes_[id].weight);
  }
  std::uint32_t members(std::uint32_t id) const { return classes_[id].members; }
  std::uint32_t weight(std::uint32_t id) const { return classes_[id].weight; }
  std::int64_t cap_Bps(std::uint32_t id) const { return classes_[id].cap_Bps; }
  std::span<const Load> loads(std::uint32_t id) const {
    return {loads_.data() + classes_[id].first, classes_[id].count};
  }
  std::size_t classes() const { return classes_.size(); }

  // How much work it was: exact counters for benches and tests.
  struct Counters {
    std::uint64_t solves = 0, full = 0, rounds = 0;
    std::uint64_t classes = 0;  // Σ over solves of the disturbed sets' sizes
    std::uint64_t changed = 0;  // Σ over solves of levels changed
    std::uint64_t lone = 0;     // Σ over solves of classes that met nobody
  };
  const Counters& counters() const { return counters_; }

 private:
  static constexpr std::uint32_t kCap = 0xFFFFFFFEu;  // a bottleneck that is the flow's own cap

  struct alignas(64) Class {  // a line of the cache: every member of a link is looked at
    std::int64_t level = 0;
    std::int64_t next = 0;  // level in the filling under way
    std::int64_t cap_Bps = 0;
    std::uint32_t first = 0, count = 0;  // in loads_
    std::uint32_t weight = 1, members = 0;
    std::uint32_t bottleneck = kNone, next_bottleneck = kNone;
    std::uint32_t joined = 0;  // epoch in which it joined the disturbed set
    std::uint32_t lone = 0;    // epoch in which it was found to have its links to itself
    bool frozen = false;
    bool dirty = false;
    std::int64_t heft() const { return std::int64_t{weight} * members; }
  };
  struct Member {
    std::uint32_t id = 0;    // class
    std::uint32_t load = 0;  // in loads_
  };
  struct Link {
    std::int64_t capacity = 0;  // all amounts in 2^-18 byte/s
    std::int64_t used = 0;
    std::int64_t weight = 0;  // Σ share · weight · members
    // Of the filling under way.
    std::int64_t fixed = 0;          // what classes outside the set use
    std::int64_t open = 0;           // weight of the set on the link
    std::uint32_t bottlenecked = 0;  // classes whose bottleneck it is
    std::uint32_t leaving = 0;       // of them, in the set
    std::uint32_t epoch = 0;
    bool dirty = false;
    bool froze = false;
    std::vector<Member> members;
  };
  // Of a link in the filling under way; apart from it, since that is what a filling writes.
  struct Room {
    std::int64_t residual = 0, unfrozen = 0;
  };
  struct Key {
    std::int64_t level = 0;
    std::uint32_t id = 0;  // link, or number of links + class for a cap
    friend bool operator<(const Key& a, const Key& b) { return a.level > b.level; }  // least on top
  };

  void Touch(std::uint32_t link);
  void Attach(std::uint32_t id);
  void Detach(std::uint32_t id);
  void Join(std::uint32_t id);
  void JoinAll();
  void Begin(std::vector<std::uint32_t>* changed);
  bool Lone(const Class& c) const;
  void SetLone(std::uint32_t id, std::vector<std::uint32_t>* changed);
  void Fill();
  void FetchAhead(const std::vector<Member>& members, std::size_t at) const;
  void PopTop();
  void SinkTop(Key key);
  bool TopLevel(std::int64_t* level);
  void Freeze(std::uint32_t id, std::int64_t level, std::uint32_t bottleneck);
  bool Check();
  void CheckLink(Link& link, std::uint32_t number);
  void CheckClose(const Link& link, std::int64_t slack);
  void Apply(std::vector<std::uint32_t>* changed);
  std::int64_t LevelNow(const Class& c) const { return c.joined == epoch_ ? c.next : c.level; }

  std::vector<Link> links_;
  std::vector<Room> rooms_;  // by link
  std::vector<Class> classes_;
  std::vector<Load> loads_;
  std::vector<std::uint32_t> place_;  // by load: where it stands in its link's members
  std::vector<std::uint32_t> dirty_classes_, dirty_links_;
  std::size_t active_loads_ = 0;
  bool always_full_ = false;

  // Of the solve under way.
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> set_, set_links_;
  std::size_t set_loads_ = 0;
  std::vector<Key> heap_;
  std::vector<std::uint32_t> stage_;
  std::vector<std::pair<std::int64_t, std::int64_t>> close_;  // levels and weights of one link
  Counters counters_;
};

}  // namespace orrery::network
