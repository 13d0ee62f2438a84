// The stage on which a plan's first rounds are played (playback.h): lanes that step, slots that
// hold what has come, ways with FIFO ports at both ends, and one domain for each level of the tree.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "orrery/collective/choice/ring_order.h"
#include "orrery/collective/playback/playback.h"

namespace orrery::collective::playback {

// At least so many rounds must fit into the messages that a plan may take, else nothing is played.
inline constexpr std::int64_t kFewestRounds = 2;
// Windows of credits that are played: beyond them the formula's pace holds.
inline constexpr int kMostWindows = 3;

inline int LevelsOf(int domains) {
  return domains == 1 ? 1 : std::bit_width(static_cast<unsigned>(domains - 1));
}

// What a step does; how long it takes, Times::work says.
enum Work : std::int8_t {
  kNothing,
  kMain,    // the wait, and the copy or sum of a step that has all it needs
  kStream,  // one source or destination more
  kPass,    // kMain of what comes down (NVLS), of heads but the root's (trees)
  kPassOn,  // kStream of the same
  kFirst,   // NVLS' scatter: the first part
  kOthers,  // and all the others
  kGather,  // NVLS: all parts
  kWorks
};

// The second tree of an odd number of domains is the first one shifted: what is inner in one may be
// inner in the other. Few domains are all played.
inline bool PlaysAll(int domains) { return domains % 2 == 1 && domains > 1 && domains <= 7; }

// kScatter, kOwn: NVLS, the last part to leave, and the sum of the parts for a GPU's own head;
// kStore: what a head stores, a part for every GPU, out of the switch.
enum Kind : std::int8_t { kNvlink, kNet, kScatter, kOwn, kStore, kKinds };

// A lane's steps of a chunk; slots: -1 needs nothing; ways: -1 sends nothing.
struct Step {
  std::int32_t source = -1, way = -1;
  Work work = kNothing;
};
struct Lane {
  SimTime free = 0;
  SimTime head = 0;                   // of a batch's first round, the step before
  SimTime cycle[2] = {};              // all steps of a round
  std::int32_t round = 0, first = 0;  // of its steps
  std::int8_t step = 0, steps = 0;    // no steps: no such lane
  bool blocked = false;               // waits for a credit
};
// What one lane gets from one neighbour. Its senders stand a level apart.
inline constexpr int kSlots = 4;  // of a lane: from near, from far children, and a head's own sum
struct Slot {
  std::int32_t lane = -1;
  std::int32_t arrived = 0, consumed = 0;
  std::int32_t sender = -1, senders = 0;
};
// From a lane to a neighbour: through a port out into ports in.
struct Way {
  std::int32_t lane = 0, out = 0;
  Kind kind = kNvlink;
  std::int8_t last_batch = 0;
  std::int32_t channel = -1;  // NVLS: its number among those that share the port part by part
  std::int32_t window = -1;   // the slot that gives its credits
  std::int32_t targets = 0, targets_end = 0;
  std::int32_t left = 0, entered = 0;  // messages so far: through `out`, at the ports in
};
struct Target {
  std::int32_t in = -1;  // -1: comes in alone
  std::int32_t slot = -1;
};
// Of a chunk.
struct Times {
  SimTime work[kWorks] = {};
  SimTime spread = 0;  // kGather: from the first part's arrival to the last one's copy
  SimTime serial[kKinds] = {}, delay[kKinds] = {};  // delay: from the port to the receiver
  SimTime port[kKinds][2] = {};                     // a batch in a port; the last batch
};

// When the first and the last message of a batch of rounds pass.
struct Span {
  SimTime head = 0, tail = 0;
};

// A message before a port out (`number`: its way) or before ports in (beyond the ways).
struct Event {
  SimTime time = 0;
  std::uint32_t sequence = 0, number = 0;  // what was first to be known comes first
  bool operator<(const Event& o) const {
    return time != o.time ? time < o.time : sequence < o.sequence;
  }
};
// A FIFO port. Of batches whose last messages come later than their first ones `work` is still to
// come at `from`, the last of it at `until`: what comes meanwhile goes between it.
struct Port {
  SimTime free = 0;
  SimTime from = 0, until = 0, work = 0;
};

class Stage {
 public:
  // `all`: a domain is played for each there is, not one for each level. Then a `level` below is
  // the domain's number, and tree 0 and 1 are the two trees.
  Stage(const Plan& plan, int places, int batches, bool all);
  // At most so many windows of credits. `most_together`: rounds that may go through as one (Batch
  // below); 1: none.
  struct Limits {
    std::int64_t messages = 0;
    std::int64_t windows = kMostWindows;
    std::int64_t together = 1;
  };
  Playback Play(const Plan& plan, const Limits& limits);

 protected:
  virtual ~Stage() = default;
  virtual void SetTimes(const model::Chunk& chunk, Times* times) = 0;
  // Before the first step: of the rounds to be played.
  virtual void Prepare() {}
  // At the end: of a batch's last channel, behind its first one.
  virtual SimTime Late(const Times&) const { return 0; }

  // The lane of a level's domain, in its own tree (0) or as a leaf of the other one (1). Higher
  // levels first: what comes at the same time comes from them first.
  std::int32_t At(int level, int tree, int batch, int place, int down) const {
    return (((Order(level) * trees_ + tree) * batches_ + batch) * places_ + place) * 2 + down;
  }
  int Order(int level) const { return all_ ? level : levels_ - 1 - level; }
  std::int32_t Stride() const { return trees_ * batches_ * places_ * 2; }
  bool Top(int level, int tree) const {
    return all_ ? Node(level, tree).parent < 0 : tree == 0 && level == levels_ - 1;
  }
  // Children of a head over the network, and the level of the second one (-1: a leaf).
  int Far(int level, int tree) const;
  int Second(int level) const;
  std::int32_t NicOut(int level, int tree) const { return 2 * level + (apart_ ? tree : 0); }
  std::int32_t NicIn(int level, int tree) const { return NicOut(level, tree) + 2 * levels_; }
  std::int32_t NvlinkPort(int number) const { return 4 * levels_ + number; }

  Step* AddSteps(std::int32_t lane, int count);
  std::int32_t Connect(std::int32_t from, std::int32_t to, int kind);
  // `at`: the step that sends. Targets are those added since the last way.
  Way& AddWay(std::int32_t lane, int at, Kind kind, std::int32_t out, int batch,
              std::int32_t window);
  void SendUp(int level, int tree, int batch, int at);
  void SendDown(int level, int tree, int batch, int child, std::int32_t sender, int at);
  BinaryNode Node(int domain, int tree) const {
    return tree == 0 ? BinaryTree(domain, domains_) : SecondBinaryTree(domain, domains_);
  }
  const Times& Of(std::int32_t round) const { return times_[round < full_ ? 0 : 1]; }
  SimTime Size(std::int32_t round) const { return sizes_[static_cast<std::size_t>(round)]; }

  int domains_, levels_, trees_, places_, batches_;
  bool all_;
  bool apart_;                          // the two trees use different NICs
  bool late_child_;                     // the second child over the network is served last
  std::int32_t full_ = 0, rounds_ = 0;  // played, without and with the tail
  SimTime post_[kKinds] = {}, back_[kKinds] = {};
  std::vector<Target> targets_;
  std::vector<Port> ports_;
  // When the first channel's first and last part leave at the earliest, by round.
  std::vector<SimTime> first_part_, last_part_;

 private:
  bool TakeStep(std::int32_t id);
  void Run(std::int32_t id);
  void Deliver(std::int32_t number, Span time);
  void Leave(std::size_t number, SimTime time);
  void Enter(std::size_t number, SimTime time);
  // A batch through a port.
  static Span Through(Port* port, const Span& comes, SimTime size, SimTime each);
  // A heap of four children a node.
  void Push(SimTime time, std::size_t number);
  Event Pop();
  Span& Cell(std::int32_t slot, std::int32_t round) {
    return cells_[static_cast<std::size_t>(slot * rounds_ + round)];
  }
  SimTime& Tail(std::size_t way, std::int32_t round) {
    return tails_[way * static_cast<std::size_t>(rounds_) + static_cast<std::size_t>(round)];
  }
  void SetSizes(std::int64_t rounds, std::int64_t batches, bool tail);

  int credits_;
  Times times_[2];
  std::vector<Lane> lanes_;
  std::vector<Step> steps_;
  std::vector<Slot> slots_;
  std::vector<Way> ways_;
  std::vector<std::int64_t> sizes_;   // rounds of a batch
  std::vector<std::int32_t> needs_;   // the batch that must be consumed before; -1: none
  std::unique_ptr<Span[]> cells_;     // by slot and batch: arrival, then consumption
  std::unique_ptr<SimTime[]> tails_;  // by way and batch: of the last message, before the next port
  std::vector<Event> events_;
  std::uint32_t sequence_ = 0;
  std::vector<std::int32_t> todo_;
  SimTime end_ = 0;
};

}  // namespace orrery::collective::playback
