// A pipeline's steady phase repeats itself: the same calls with the micro-batch moved on, and after
// a few rounds the same times but for a shift. What a run of them comes to is then known without
// running them.
//
// The loop looks at its whole state at marks in one rank's program, a whole number of the program's
// periods apart: all that decides what happens next, times counted from the mark. Two equal states
// in a row say that the run is in step; over the next stretch it notes what each call adds to the
// fingerprint; if the state is the same again, all stretches but the last that the programs still
// repeat are taken at once: times, calls and events move on, sums grow by as many times what the
// stretch added. The outcome is that of the full run, to the bit.
//
// Two things may differ between equal states. Programs number their events in turn: an event is
// known by how many calls ago it was last named. And hosts that run ever further ahead of their
// GPUs go on to do so, as long as nothing in a stretch waited for them.
//
// Cost: a state is O(ranks · streams + events + meets + fluids) words, at most 24 of them an
// iteration until one is as the one before; a note O(1) a hashed item of one stretch; the jump
// O(calls left out), 3 ns each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/engine/prices.h"
#include "orrery/graph/graph.h"

namespace orrery::engine {

// A program's calls as far as they decide what a rank does: micro-batches and layers are names.
class CallPattern {
 public:
  explicit CallPattern(const std::vector<graph::Call>& calls);

  // Whether both do the same, to events that were last named as many calls before.
  bool Same(std::size_t a, std::size_t b) const { return SameWork(a, b) && since_[a] == since_[b]; }
  // Whether some call names the event.
  bool Names(std::size_t event) const { return event < named_.size() && named_[event]; }

  struct Period {
    std::size_t begin = 0, end = 0, calls = 0;
  };
  // The shortest of at least six rounds around the middle that make up a quarter of the program.
  // O(calls).
  std::optional<Period> FindPeriod() const;
  // Calls from `from` on are those `period` before them, up to this one.
  std::size_t EndOfPeriods(std::size_t from, std::size_t period) const;

 private:
  bool SameWork(std::size_t a, std::size_t b) const {
    const graph::Call &x = (*calls_)[a], &y = (*calls_)[b];
    return x.block == y.block && x.repeat == y.repeat && x.chunk == y.chunk &&
           (x.event < 0) == (y.event < 0) && (x.event >= 0 || x.event == y.event);
  }

  const std::vector<graph::Call>* calls_;
  std::vector<std::uint32_t> since_;  // calls since the same event was named; 0: never, or none
  std::vector<bool> named_;           // by event
};

// What the calls of one rank add to its fingerprint over a stretch: call c adds its weight times
// `value`, and `growth` more of it for each picosecond that it comes later.
class HashNotes {
 public:
  // Calls below `first` are not to come.
  void Reset(std::uint32_t first) {
    first_ = first;
    notes_.clear();
  }
  void Add(std::uint32_t call, std::uint64_t value, std::uint64_t growth) {
    if (call < first_) return;  // of the next iteration: the stretch is none to repeat
    const std::size_t at = call - first_;
    if (at >= notes_.size()) notes_.resize(at + 1);
    notes_[at].value += value;
    notes_[at].growth += growth;
  }
  // Of the same stretch `times` times more, each `calls` calls and `later` picoseconds on.
  std::uint64_t Repeated(std::uint32_t times, std::uint32_t calls, SimTime later) const;

 private:
  struct Note {
    std::uint64_t value = 0, growth = 0;
  };
  std::uint32_t first_ = 0;
  std::vector<Note> notes_;  // by call
};

}  // namespace orrery::engine
