// Weighted max-min fair levels of flows over links, in integers, solved again only where disturbed.
//
// Model. A flow f of weight w_f loads link l with share_fl / 1024 bytes for each of its own bytes;
// a link it crosses twice has twice the share. The rule, a water-filling in stages: a link's level
// is
//     floor(256 · residual capacity · 1024 / Σ over its unfrozen flows of w_f · share_fl)
// in 256ths of a byte/s; the least level freezes all links that have it, together, from the
// residuals before it: their unfrozen flows get it, and what they take comes off their other links.
// A flow's rate is w_f · level. A rate cap is a link of the flow's own: level floor(256 · cap /
// w_f). Levels of successive stages rise strictly. Flows of equal loads, weight and cap are one
// class with members.
//
// Uniqueness. Write C, S(v), W(v) for a link's capacity, what its flows of levels below v take, and
// the weights of those at v and above. An assignment of levels is the rule's outcome exactly if
//
// (1) on every link with highest level m: C - S(m) >= m·W(m), and C - S(v) >= (v + 1)·W(v) at every
// lower level v there; and
//
// (2) every flow has its cap's level, or a link on which it has the highest level m and
// C - S(m) < (m + 1)·W(m): its bottleneck.
//
// (Take two assignments and the flow with the lowest level at which they differ: on its bottleneck
// in the one, (1) fails in the other.) So the solver is free in how it gets there.
//
// All classes with one bottleneck have one level, and it is kept once: with the bottleneck,
// together with a row that says how much weight these classes lay on each link. A change of a level
// goes over a row, whatever the number of classes behind it; a class is looked at only when it
// comes, goes or gets another bottleneck. A solve keeps the levels of all bottlenecks but a
// disturbed set fixed, fills the links for that set alone, and checks (1) and (2) on the links that
// the set crosses; what fails them joins the set. It begins with the classes that came, and the
// bottlenecks on links where one came or went. Of the links that the set crosses and that are
// nobody's bottleneck, a filling asks only those that look as if they could hold somebody back; the
// check finds the others. A class that came and has all of its links to itself has the least of
// their levels, and no set.
//
// Links that cannot hold anybody back are left out (max_min_links.cc): those whose classes all
// cross another link that does so first, for good, and those with room for more than their classes
// have, while they have it.
//
// Source: bottleneck conditions after Bertsekas and Gallager, Data Networks (1992), 6.5.2, in
// integers.
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
// Cost. A round is O(cells of the set's rows + links of these · log): a cell is a bottleneck and a
// link that its classes cross, and costs some nanoseconds; rounds are few (bench/network_bench). A
// class that comes, goes or gets another bottleneck costs a look-up for each of its loads. Memory:
// 40 bytes a class, 24 a load (28 on a link left out for good), some 60 a cell (no more than
// loads), 250 a link.
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

  bool dirty() const { return !came_.empty() || !dirty_.empty(); }
  // What a solve changed. Bottlenecks are numbered: a link's has the link's number, a class's own
  // cap has one above.
  struct Changes {
    std::vector<std::uint32_t> bottlenecks;  // those with another level
    std::vector<std::uint32_t> moved;        // classes with another bottleneck, or that came
    void clear() {
      bottlenecks.clear();
      moved.clear();
    }
  };
  // Brings levels up to date and appends what changed.
  void Solve(Changes* changes);
  // For tests and benches: every solve disturbs everything.
  void set_always_full(bool value) { always_full_ = value; }

  // kNone without members; above all others while it waits for the next solve.
  std::uint32_t bottleneck(std::uint32_t id) const { return classes_[id].bottleneck; }
  std::size_t bottlenecks() const { return bottlenecks_.size(); }
  std::int64_t bottleneck_level(std::uint32_t b) const { return bottlenecks_[b].level; }
  std::int64_t level(std::uint32_t id) const {
    const std::uint32_t b = classes_[id].bottleneck;
    return b == kNone ? 0 : bottlenecks_[b].level;
  }
  std::int64_t rate(std::uint32_t id) const {  // in 256ths of a byte/s
    return level(id) * static_cast<std::int64_t>(classes_[id].weight);
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
    std::uint64_t solves = 0, rounds = 0;
    std::uint64_t disturbed = 0;                // Σ over solves of the disturbed sets' bottlenecks
    std::uint64_t cells = 0;                    // Σ over solves of the cells of their rows
    std::uint64_t changed = 0;                  // Σ over solves of bottlenecks with another level
    std::uint64_t moved = 0;                    // Σ over solves of classes with another bottleneck
    std::uint64_t lone = 0;                     // Σ over solves of classes that met nobody
    std::uint64_t loosened = 0, tightened = 0;  // links
    std::uint64_t uncovered = 0;                // links that had been left out for good
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Class {
    std::int64_t cap_Bps = 0;
    std::uint32_t first = 0, count = 0;  // in loads_
    std::uint32_t weight = 1, members = 0;
    std::uint32_t bottleneck = kNone;
    std::uint32_t was = kNone;  // its bottleneck before the solve under way
    std::uint32_t moved = 0;    // epoch in which it got another one
    std::uint32_t cap = kNone;  // the bottleneck that its cap is
    std::int64_t heft() const { return std::int64_t{weight} * members; }
    std::int64_t cap_level() const { return cap_Bps * kFine / weight; }
  };
  // The classes of one bottleneck that load one link.
  struct Cell {
    std::uint32_t bottleneck = 0, link = 0;
    std::uint32_t in_row = 0, in_column = 0;
    std::uint32_t head = kNone;  // first of its loads
  };
  // Where a load stands: in a cell's list.
  struct Place {
    std::uint32_t cell = kNone;
    std::uint32_t before = kNone, after = kNone;
    std::uint32_t owner = 0;  // class
  };
  struct RowEntry {
    std::int64_t weight = 0;  // Σ share · weight · members
    std::uint32_t link = 0, cell = 0;
  };
  struct ColumnEntry {
    std::uint32_t bottleneck = 0, cell = 0;
  };
  struct Bottleneck {
    std::int64_t level = 0;
    std::int64_t ceiling = 0;  // the level stays below, as far as loose links are concerned
    std::uint32_t joined = 0;  // epoch in which it joined the disturbed set
    std::uint32_t capped = 0;  // of its classes, those with a cap that does not hold them back
    bool frozen = false;
    bool dirty = false;
    std::uint32_t tight = 0;    // of its row, the first ones are of tight links
    std::vector<RowEntry> row;  // of a cell each
    std::span<const RowEntry> tight_row() const { return {row.data(), tight}; }
    std::span<const RowEntry> loose_row() const { return std::span(row).subspan(tight); }
  };
  enum class Hold : std::uint8_t {
    kTight,    // may hold somebody back
    kLoose,    // has room for the ceilings of all bottlenecks: holds nobody back
    kCovered,  // another link holds its classes back first: has no cells
  };
  struct alignas(64) Link {     // a line of the cache: what a pass over a row goes to
    std::int64_t capacity = 0;  // all amounts in 2^-18 byte/s
    std::int64_t used = 0;      // of a loose link: would be, at the ceilings
    std::int64_t weight = 0;    // Σ share · weight · members
    // Of the solve under way.
    std::int64_t fixed = 0;     // what classes outside the set use
    std::int64_t open = 0;      // weight of the set on the link
    std::int64_t residual = 0;  // of the filling: what nobody has
    std::int64_t unfrozen = 0;  // of the filling: weight of who has no level yet
    std::uint32_t epoch = 0;
    bool holds = false;  // it is the bottleneck of a class
    bool asked = false;  // the filling asks for its level
    bool froze = false;
    Hold hold = Hold::kCovered;
  };
  // Why a link is covered: by which loads of a class that crosses it.
  struct Cover {
    std::uint32_t witness = kNone;      // the first class that crossed it
    std::uint32_t by = 0;               // its loads whose links cover, as bits
    std::vector<std::uint32_t> hidden;  // loads that have no cell
  };
  struct Key {
    std::int64_t level = 0;
    std::uint32_t id = 0;                                                            // bottleneck
    friend bool operator<(const Key& a, const Key& b) { return a.level > b.level; }  // least on top
  };

  // The cell of a bottleneck and a link by hash, open addressing; of newcomers by link.
  std::uint32_t* SlotOf(std::uint32_t bottleneck, std::uint32_t link);
  std::uint32_t FindCell(std::uint32_t bottleneck, std::uint32_t link);
  std::size_t HomeOf(std::uint32_t bottleneck, std::uint32_t link) const;
  void EraseSlot(const Cell& cell);
  void GrowSlots();
  void Enter(std::uint32_t at, std::uint32_t bottleneck, std::int64_t weight);
  void Withdraw(std::uint32_t at, std::int64_t weight);
  RowEntry& EntryOf(const Cell& cell) { return bottlenecks_[cell.bottleneck].row[cell.in_row]; }

  // max_min_links.cc: links that cannot matter, for good or for now.
  void CoverLinks(std::uint32_t id);
  bool Covers(const Load& by, const Load& of) const;
  void Uncover(std::uint32_t number);
  void Tighten(std::uint32_t number);
  void TryToLoosen(std::uint32_t number);
  void SetTight(const Cell& cell, bool tight);
  void SetCeiling(std::uint32_t bottleneck, std::int64_t ceiling);
  void AddToLoose(std::uint32_t number, std::int64_t used);
  void RaiseCeilings();
  void LowerCeilings();
  bool Hidden(std::uint32_t at) const { return places_[at].cell == kHidden; }
  static std::int64_t Above(std::int64_t level) { return level + level / kHeadroom; }

  bool IsLink(std::uint32_t bottleneck) const { return bottleneck < links_.size(); }
  std::uint32_t newcomers() const { return static_cast<std::uint32_t>(links_.size()); }
  Class& ClassOfCap(std::uint32_t b) { return classes_[cap_class_[b - links_.size() - 1]]; }
  bool InSet(std::uint32_t b) const { return bottlenecks_[b].joined == epoch_; }
  void Touch(std::uint32_t bottleneck);
  void SetBottleneck(std::uint32_t id, std::uint32_t bottleneck);
  void Join(std::uint32_t bottleneck);
  void JoinAll();
  void Ask(std::uint32_t link);
  void Begin(Changes* changes);
  bool Lone(const Class& c) const;
  void SetLone(std::uint32_t id, Changes* changes);
  void BeginFill();
  void Open(std::uint32_t number);
  void PushCaps(std::uint32_t bottleneck);
  void Push(Key key);
  bool Fill();
  bool JoinLate(std::uint32_t bottleneck, std::int64_t level);
  bool FreezeStage(std::int64_t level);
  void FreezeRow(std::uint32_t bottleneck, std::int64_t level);
  void Move(std::uint32_t id, std::uint32_t bottleneck, std::int64_t level);
  void PopTop();
  void SinkTop(Key key);
  bool TopLevel(std::int64_t* level);
  bool Check();
  void CheckLink(std::uint32_t number);
  void CheckClose(std::uint32_t number, std::int64_t slack);
  void Apply(Changes* changes);

  static constexpr std::uint32_t kHidden = kNone - 1;
  static constexpr std::int64_t kHeadroom = 16;  // of a ceiling above its level, a part

  std::vector<Link> links_;
  std::vector<Cover> covers_;                      // by link
  std::vector<std::uint64_t> settled_;             // by link: the solve since which it is tight
  std::vector<std::vector<ColumnEntry>> columns_;  // by link
  std::vector<Bottleneck> bottlenecks_;  // of links, of who came and waits for a solve, of caps
  std::vector<std::int64_t> next_;       // by bottleneck: its level in the filling under way
  std::vector<std::uint32_t> cap_class_;
  std::vector<Class> classes_;
  std::vector<Load> loads_;
  std::vector<Place> places_;  // by load
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> free_cells_;
  std::vector<std::uint32_t> slots_;  // of the hash table: cells; a power of two, at most half full
  std::vector<std::uint32_t> newcomer_slots_;  // by link
  std::size_t used_slots_ = 0;
  std::vector<std::uint32_t> dirty_, came_;  // bottlenecks; classes
  std::vector<std::uint32_t> strained_;      // links that may be loose no longer
  bool always_full_ = false;
  bool cover_ = true;  // capacities have not changed since classes came

  // Of the solve under way.
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> set_, set_links_;
  std::size_t unfrozen_rows_ = 0;
  bool grew_ = false;
  std::vector<Key> heap_;
  std::vector<std::int64_t> keys_;  // by link: its level in the heap; higher ones are void
  std::vector<std::uint32_t> stage_, moved_, reset_, scratch_;
  std::vector<std::pair<std::int64_t, std::int64_t>> close_;  // levels and weights of one link
  Counters counters_;
};

}  // namespace orrery::network
