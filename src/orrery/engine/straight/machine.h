// One rank's execution: the rules of graph.h's semantics, apart from how communication proceeds.
//
// A Machine holds the state of all simulated ranks and steps one rank until it must wait. A loop
// (closed form, flow or lowered) derives from it, says how a posted communication goes on, and
// keeps the event queue. What a Loop provides:
//   void Post(rank, stream, arrival)
//       The communication at the stream's head may proceed from `arrival` on.
//   void Wake(rank, time, version)
//       Call OnWake(rank, version) at `time`.
//   bool Gather(rank, meet, able)
//       Where kGathers: the rank stands before a block that the meet's members may take together.
//       True: it waits for them.
//
// How far a rank runs ahead. While nothing that could slow its kernels is outstanding (busy == 0),
// all later times are final: it runs through work, and posts communications in its future, without
// an event. While something is, it stops at the end of each piece of work for one event, and a
// change of class re-times the piece in hand.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "orrery/engine/loop.h"
#include "orrery/engine/straight/inline_block.h"
#include "orrery/engine/straight/layout.h"
#include "orrery/engine/straight/periods.h"
#include "orrery/engine/straight/tracer.h"
#include "orrery/engine/work.h"

namespace orrery::engine {

inline constexpr std::uint16_t kMostOutstanding = 0xFFFF;  // of a rank's communications of a kind
inline constexpr SimTime kPending = -1;  // an event whose communication has not ended

enum class RankStatus : std::uint8_t {
  kRunning,
  kWorking,
  kBlocked,
  kWaiting,
  kGathering,  // before a block that its group's members may take together
  kResting,
  kDone
};

// What a wait needs to know of the communication behind an event.
struct EventState {
  SimTime end = 0;  // kPending while under way
  SimTime start = 0;
  SimTime arrival = 0;  // of this rank: before it, its stream was busy with communication
  graph::GroupSlot group = graph::GroupSlot::kTp;
  bool point_to_point = false;
  // Communications under way that record it: it is over with the last of them, which need not be
  // the first that ends.
  std::uint16_t outstanding = 0;
};

// One cache line: with thousands of ranks out of step, the cost of a meeting is its cache misses.
struct alignas(64) RankState {
  SimTime t = 0;  // compute stream: end of what was taken from it
  SimTime host = 0;
  SimTime work_end = 0;
  std::uint64_t hash = 0;
  std::uint64_t weight = 0;  // of its call and layer in the fingerprint
  std::uint32_t call = 0;
  std::uint32_t version = 0;  // of the wake in the queue; older ones are void
  std::uint16_t layer = 0, item = 0;
  std::uint16_t iteration = 0;
  std::uint16_t busy = 0;          // communications outstanding that share the GPU with kernels
  std::uint16_t nic_messages = 0;  // outstanding on a NIC that do not block, and not in `busy`
  std::int16_t waits_for = graph::kNoEvent;
  std::uint8_t in_flight[2] = {0, 0};  // by class bit; of a stream one at a time
  RankStatus status = RankStatus::kRunning;
  interference::Class beside : 7 = 0;
  bool wake_set : 1 = false;
};
static_assert(sizeof(RankState) == 64);

// The communication at the head of a rank's stream, and the queue behind it.
struct alignas(64) StreamState {
  SimTime free = 0;  // latest end so far
  SimTime arrival = 0;
  SimTime start = 0;  // of the part that ended last
  const BlockPrice* block = nullptr;
  std::uint64_t weight = 0;            // of its call and layer in the fingerprint
  std::uint32_t block_item = kNobody;  // index of the item; kNobody: idle
  std::uint32_t queue_head = kNobody, queue_tail = kNobody;
  std::uint32_t call = 0;
  std::uint16_t layer = 0;
  std::uint16_t pending = 0;  // parts of the group call not yet ended
  std::uint16_t iteration = 0;
  std::int16_t event = graph::kNoEvent;
};
static_assert(sizeof(StreamState) == 64);

// Issued behind another on its stream.
struct Queued {
  SimTime issued = 0;
  const BlockPrice* block = nullptr;
  std::uint64_t weight = 0;
  std::uint32_t item = 0, call = 0, next = kNobody;
  std::uint16_t layer = 0, iteration = 0;
  std::int16_t event = graph::kNoEvent;
};

// A rank's communications that wait behind others: a slab of list nodes.
struct QueuedPool {
  std::vector<Queued> nodes;
  std::uint32_t free = kNobody;
};

// What a rank's NVLink ports carried in calls that were taken whole.
struct InlinedTraffic {
  std::int64_t out = 0, in = 0;
  SimTime busy = 0;
};

// GPU-bound time since a rank's last meeting, and the key of its draws.
struct Stretch {
  SimTime work = 0;
  std::uint64_t key = 0;
};

struct MachineOptions {
  SimTime launch = 0;
  int iterations = 2;
  bool repeat_until_stopped = false;  // several jobs: shorter ones go on
  bool stepwise = false;
  double jitter = 0;
  std::uint64_t seed = 1;
};

inline MachineOptions OptionsOf(const LoopInputs& in) {
  MachineOptions options;
  options.launch = in.launch;
  options.iterations = in.iterations;
  options.repeat_until_stopped = in.repeats;
  options.stepwise = in.options->stepwise;
  options.jitter = in.options->jitter;
  options.seed = in.options->seed;
  return options;
}

template <class Loop>
class Machine {
 public:
  Machine(const graph::Graph& graph, const Layout& layout, const MachineOptions& options,
          Tracer* tracer)
      : graph_(graph),
        layout_(layout),
        options_(options),
        tracer_(tracer),
        weights_(Weights()),
        ranks_(layout.ranks.size()),
        stream_count_(static_cast<std::size_t>(layout.streams)),
        streams_(layout.ranks.size() * stream_count_),
        parts_(layout.ranks.size()),
        inlined_(layout.ranks.size()),
        paces_(layout.ranks.size()),
        ends_(layout.ranks.size() * static_cast<std::size_t>(options.iterations)),
        compute_ends_(ends_.size()),
        queued_(layout.ranks.size()) {
    std::size_t events = 0;
    first_event_.reserve(ranks_.size());
    for (const SimRank& r : layout.ranks) {
      first_event_.push_back(events);
      events += static_cast<std::size_t>(program(r).events);
    }
    events_.resize(events);
    progress_.resize(ranks_.size());
    if (options.jitter > 0) {
      for (const SimRank& r : layout.ranks) {
        const std::uint64_t job = HashCombine(options.seed, layout.variants[r.variant].job.value);
        stretch_.push_back({0, HashCombine(job, r.logical_rank)});
      }
    }
    SetRunning(static_cast<std::uint32_t>(ranks_.size()));
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].t = ranks_[r].host = layout.ranks[r].delay;
    }
  }

  RankState& state(std::uint32_t r) { return ranks_[r]; }
  // Of what is kept per rank and stream.
  std::size_t slot(std::uint32_t r, int s) const {
    return r * stream_count_ + static_cast<std::size_t>(s);
  }
  StreamState& stream(std::uint32_t r, int s) { return streams_[slot(r, s)]; }
  const StreamState& stream(std::uint32_t r, int s) const { return streams_[slot(r, s)]; }
  int streams() const { return layout_.streams; }
  const Item& head(const StreamState& s) const { return s.block->items[s.block_item]; }
  std::span<const RankState> states() const { return ranks_; }
  const Breakdown& parts(std::size_t r) const { return parts_[r]; }
  const InlinedTraffic& inlined_traffic(std::size_t r) const { return inlined_[r]; }
  SimTime end(std::size_t r, int iteration) const {
    return ends_[r * static_cast<std::size_t>(options_.iterations) +
                 static_cast<std::size_t>(iteration)];
  }
  SimTime compute_end(std::size_t r, int iteration) const {
    return compute_ends_[r * static_cast<std::size_t>(options_.iterations) +
                         static_cast<std::size_t>(iteration)];
  }

  // Times, breakdowns and hashes of all ranks.
  LoopResult Collect() const {
    LoopResult result;
    result.iterations = options_.iterations;
    result.ends = ends_;
    result.compute_ends = compute_ends_;
    result.parts = parts_;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      result.finish_time = std::max(result.finish_time, end(r, options_.iterations - 1));
      result.hashes.push_back(ranks_[r].hash);
    }
    return result;
  }

  static constexpr bool kGathers = false;  // of a Loop that has no Gather

  // Steps rank r until it waits for something. Amortised O(1) an item.
  void Step(std::uint32_t r);

  // All members of a meet stand before one block. If they do so at one instant, each takes the
  // block's fixed course, as often as its call repeats it or once. False: nothing was done.
  bool TakeTogether(std::span<const std::uint32_t> members);
  // The meet whose members take the rank's block together; kNobody: it needs nobody.
  std::uint32_t GatheringOf(std::uint32_t r, const BlockPrice& block) const {
    if (!layout_.gathers || block.meets == graph::GroupSlot::kCount) return kNobody;
    return layout_.ranks[r].meet[static_cast<std::size_t>(block.meets)];
  }

  // The wake set for the end of the piece of work in hand.
  void OnWake(std::uint32_t r, std::uint32_t version) {
    RankState& s = ranks_[r];
    if (s.version != version || !s.wake_set) return;
    s.wake_set = false;
    EndWork(r);
    Step(r);
  }

  // The communication at the head of a stream began, on this rank, at `now`.
  void OnStart(std::uint32_t r, int stream_index, SimTime now) {
    const StreamState& q = stream(r, stream_index);
    const Item& item = head(q);
    if (item.blocking) return;
    if (const auto c = q.block->comms[item.first].beside; c != 0) ChangeClass(r, now, c, +1);
  }

  // A part of the communication at the head of a stream ended; `part_key` names the part.
  void OnPartEnd(std::uint32_t r, int stream_index, SimTime start, SimTime end,
                 std::uint64_t part_key) {
    OnPartEnd(r, stream_index, start, start, end, part_key);
  }
  // As above, of a part that began before the partners were there, at `met`, that it waited for.
  void OnPartEnd(std::uint32_t r, int stream_index, SimTime start, SimTime met, SimTime end,
                 std::uint64_t part_key) {
    StreamState& q = stream(r, stream_index);
    if (q.iteration < options_.iterations) {
      const std::uint64_t key = head(q).key * part_key;
      const std::uint64_t value = key * (kStartWeight * static_cast<std::uint64_t>(start) +
                                         kEndWeight * static_cast<std::uint64_t>(end));
      ranks_[r].hash += q.weight * value;
      Note(r, q.call, q.layer, value, key * (kStartWeight + kEndWeight));
    }
    // Of parts that end at one instant the one that began last, in whatever order they are told.
    if (end > q.free || (end == q.free && met > q.start)) {
      q.free = end;
      q.start = met;
    }
    if (--q.pending == 0) EndCommunication(r, stream_index);
  }

  // Whether the communication at the head of a stream may be settled ahead of the clock: it ends at
  // a time that nothing can change any more, and until then nothing else happens to the rank's
  // kernels or to the ports it uses. That is so if the rank stands still in it, or waits for it and
  // for nothing else after the work in hand.
  bool MaySettle(std::uint32_t r, int stream_index, bool over_nic) const {
    const RankState& s = ranks_[r];
    const StreamState& q = stream(r, stream_index);
    const Item& item = head(q);
    if (over_nic && s.nic_messages != 0) return false;
    if (item.blocking) return s.busy == 0;
    return s.busy == (item.shares ? 1 : 0) && WaitsOnlyFor(r, q.event);
  }

  // Whether the rank does nothing more before the communication at the head of a stream has ended:
  // it stands still in it, or waits for it and for nothing else after the work in hand.
  bool StandsIn(std::uint32_t r, int stream_index) const {
    const StreamState& q = stream(r, stream_index);
    return head(q).blocking || WaitsOnlyFor(r, q.event);
  }
  // Whether f(block, item) holds for all communications, under way or queued, of the rank's streams
  // but one.
  template <class F>
  bool AllOthers(std::uint32_t r, int stream_index, const F& f) const {
    for (int o = 0; o < streams(); ++o) {
      const StreamState& q = stream(r, o);
      if (o == stream_index || q.block_item == kNobody) continue;
      if (!f(*q.block, head(q))) return false;
      for (std::uint32_t n = q.queue_head; n != kNobody; n = queued_[r].nodes[n].next) {
        const Queued& entry = queued_[r].nodes[n];
        if (!f(*entry.block, entry.block->items[entry.item])) return false;
      }
    }
    return true;
  }

  // The call that the rank stands in, and its block. REQUIRES: it is not at its program's end.
  const graph::Call& call(std::uint32_t r) const {
    return program(layout_.ranks[r]).calls[ranks_[r].call];
  }
  const BlockPrice& block(std::uint32_t r) const {
    return *layout_.variants[layout_.ranks[r].variant].blocks[call(r).block.index()];
  }

  // Runs that repeat (periods.h). All that decides what the ranks do next, times from `base` on.
  void AppendState(SimTime base, std::vector<std::uint64_t>* out) const;
  // Notes from here on what is added to sums; then how often the stretch since comes again before
  // the last time, if it took `span`; and takes it so often at once.
  void TakeNotes();
  void StopNotes() { taking_notes_ = false; }
  bool taking_notes() const { return taking_notes_; }
  std::uint32_t RoundsLeft(SimTime span);
  void Repeat(std::uint32_t rounds, SimTime span);
  const CallPattern& PatternOf(std::uint32_t r);
  void set_window(std::size_t calls) { window_ = calls; }  // in which events are known by calls

  // A rank that has more outstanding than can be counted, where it stands; kNobody: none has.
  std::uint32_t overfull() const { return overfull_.load(std::memory_order_relaxed); }
  bool finished() const { return running_.load(std::memory_order_relaxed) == 0; }
  void SetRunning(std::uint32_t ranks) { running_.store(ranks, std::memory_order_relaxed); }

 private:
  Loop& loop() { return static_cast<Loop&>(*this); }
  const graph::Program& program(const SimRank& r) const {
    return graph_.programs[layout_.variants[r.variant].program.index()];
  }
  bool last_iteration(const RankState& s) const { return s.iteration + 1 == options_.iterations; }
  bool counted(const RankState& s) const { return s.iteration < options_.iterations; }
  EventState& event(std::uint32_t r, std::int16_t e) {
    return events_[first_event_[r] + static_cast<std::size_t>(e)];
  }
  void Spend(std::uint32_t r, Part part, SimTime time) {
    parts_[r][static_cast<std::size_t>(part)] += time;
  }

  static std::uint32_t WholeCalls(const RankState& s, const BlockPrice& block, std::uint32_t n);
  void TakeCalls(std::uint32_t r, const BlockPrice& block, std::uint32_t n, std::uint32_t repeat);
  bool TakeWork(std::uint32_t r, const BlockPrice& block, const Item& item);
  void EndWork(std::uint32_t r);
  bool TakeComm(std::uint32_t r, const BlockPrice& block, const Item& item);
  bool TakeCopy(std::uint32_t r, const BlockPrice& block, const Item& item, SimTime issued);
  bool TakeWait(std::uint32_t r, const Item& item);
  void EndIteration(std::uint32_t r);
  bool CountOutstanding(std::uint32_t r, const Item& item);
  void Enqueue(std::uint32_t r, StreamState* q, const Queued& entry);
  void PostHead(std::uint32_t r, int stream_index, const Queued& entry);
  void PostQueued(std::uint32_t r, int stream_index);
  void EndCommunication(std::uint32_t r, int stream_index);
  void Resume(std::uint32_t r, const EventState& released);
  void SpendWait(std::uint32_t r, const EventState& e);
  void ChangeClass(std::uint32_t r, SimTime now, interference::Class bits, int delta);
  void SetWake(std::uint32_t r);
  void FinishWork(std::uint32_t r, const BlockPrice& block, const Item& item, SimTime start,
                  SimTime end, SimTime idle, SimTime extra);
  SimTime Jitter(std::uint32_t r, const BlockPrice& block, const Item& item);
  std::uint32_t FirstCall(std::uint32_t r) const;
  void NameEvents(std::uint32_t r, std::vector<std::int32_t>* ago) const;
  bool IsLive(std::uint32_t r, const EventState& event) const;
  void MoveEvents(std::uint32_t r, std::uint32_t later, SimTime by);
  void MoveStreams(std::uint32_t r, std::uint32_t later, SimTime by);
  // The rank's host, as far ahead as it is, mattered.
  void NoteHost(std::uint32_t r) {
    if (taking_notes_) [[unlikely]]
      noted_.waited[r] = true;
  }
  // What a layer of a call adds to the fingerprint, but for their weights, and how that grows with
  // time; kNoLayer: the layers' weights are in it.
  static constexpr std::size_t kNoLayer = LayerWeights::kMax;
  void Note(std::uint32_t r, std::uint32_t call, std::size_t layer, std::uint64_t value,
            std::uint64_t growth) {
    if (!taking_notes_) [[likely]]
      return;
    const std::uint64_t weight = layer == kNoLayer ? 1 : weights_.weight(layer);
    notes_[r].Add(call, weight * value, weight * growth);
  }
  void EndStretch(std::uint32_t r) {
    if (!stretch_.empty()) stretch_[r].work = 0;
  }
  const Item* PeekNext(std::uint32_t r) const;
  // Whether the rank waits for the event, or has nothing but the work in hand before it does.
  bool WaitsOnlyFor(std::uint32_t r, std::int16_t e) const {
    const RankState& s = ranks_[r];
    if (s.status == RankStatus::kWaiting) return s.waits_for == e;
    return s.status == RankStatus::kWorking && !s.wake_set && AfterWork(r) == e;
  }
  // The event that the item after the work in hand waits for.
  std::int16_t AfterWork(std::uint32_t r) const {
    return EventOf(r, block(r).items[ranks_[r].item + 1u]);
  }
  std::int16_t EventOf(std::uint32_t r, const Item& item) const {
    return item.event == graph::kCallEvent ? call(r).event : item.event;
  }

  void NextItem(RankState& s, const BlockPrice& block, std::uint32_t repeat) {
    if (++s.item == block.items.size()) {
      s.item = 0;
      if (++s.layer == repeat) {
        s.layer = 0;
        ++s.call;
      }
    }
  }

 protected:
  const graph::Graph& graph_;
  const Layout& layout_;
  MachineOptions options_;
  Tracer* tracer_;

 private:
  const LayerWeights& weights_;
  std::vector<RankState> ranks_;
  std::size_t stream_count_;  // of a rank
  std::vector<StreamState> streams_;
  std::vector<WorkProgress> progress_;
  std::vector<Stretch> stretch_;  // jitter only
  std::vector<Breakdown> parts_;  // of the last counted iteration
  std::vector<InlinedTraffic> inlined_;
  std::vector<SimTime> paces_;         // of the compute stream at the last kHostPace, by rank
  std::vector<SimTime> ends_;          // last completion, by rank and iteration
  std::vector<SimTime> compute_ends_;  // of the compute stream
  std::vector<EventState> events_;
  std::vector<std::size_t> first_event_;
  std::vector<QueuedPool> queued_;  // by rank
  bool taking_notes_ = false;
  std::vector<HashNotes> notes_;  // by rank
  std::size_t window_ = 0;
  std::vector<std::optional<CallPattern>> patterns_;  // by program
  struct {                                            // when notes began, by rank
    std::vector<std::uint32_t> calls, earliest;       // earliest: of what was under way
    std::vector<SimTime> hosts;
    std::vector<bool> waited;  // for its host, since then
    std::vector<Breakdown> parts;
    std::vector<InlinedTraffic> inlined;
    std::vector<SimTime> ends;
  } noted_;
  std::atomic<std::uint32_t> running_{0};  // ranks may be stepped by several threads, each by one
  std::atomic<std::uint32_t> overfull_{kNobody};  // the lowest
};

}  // namespace orrery::engine

#include "orrery/engine/straight/machine_inl.h"
#include "orrery/engine/straight/machine_periods_inl.h"
