// What Machine knows of a run that repeats (periods.h); included by machine.h only.
#pragma once

namespace orrery::engine {

template <class Loop>
const CallPattern& Machine<Loop>::PatternOf(std::uint32_t r) {
  const std::size_t id = layout_.variants[layout_.ranks[r].variant].program.index();
  if (patterns_.size() < graph_.programs.size()) patterns_.resize(graph_.programs.size());
  if (!patterns_[id]) patterns_[id].emplace(graph_.programs[id].calls);
  return *patterns_[id];
}

// By event, how many calls ago it was last named; -1: not in the last `window` calls.
template <class Loop>
void Machine<Loop>::NameEvents(std::uint32_t r, std::vector<std::int32_t>* ago) const {
  const graph::Program& p = program(layout_.ranks[r]);
  const std::size_t now = ranks_[r].call;
  ago->assign(static_cast<std::size_t>(p.events), -1);
  for (std::size_t back = 0; back <= std::min(now, window_); ++back) {
    if (now - back >= p.calls.size()) continue;
    const std::int32_t e = p.calls[now - back].event;
    if (e < 0) continue;
    std::int32_t& first = (*ago)[static_cast<std::size_t>(e)];
    if (first < 0) first = static_cast<std::int32_t>(back);
  }
}

// Whether an event can still hold anybody up: it has not ended, or ends after the rank's time.
template <class Loop>
bool Machine<Loop>::IsLive(std::uint32_t r, const EventState& event) const {
  return event.outstanding > 0 || event.end == kPending || event.end > ranks_[r].t;
}

// The first call that anything of the rank still under way belongs to.
template <class Loop>
std::uint32_t Machine<Loop>::FirstCall(std::uint32_t r) const {
  std::uint32_t first = ranks_[r].call;
  for (int i = 0; i < streams(); ++i) {
    const StreamState& q = stream(r, i);
    if (q.block_item == kNobody) continue;
    first = std::min(first, q.call);
    for (std::uint32_t n = q.queue_head; n != kNobody; n = queued_[r].nodes[n].next) {
      first = std::min(first, queued_[r].nodes[n].call);
    }
  }
  return first;
}

template <class Loop>
void Machine<Loop>::AppendState(SimTime base, std::vector<std::uint64_t>* out) const {
  const auto add = [out](auto value) { out->push_back(static_cast<std::uint64_t>(value)); };
  const auto add_time = [&](SimTime time) { add(time - base); };
  const auto add_pointer = [&](const void* p) { add(reinterpret_cast<std::uintptr_t>(p)); };
  std::vector<std::int32_t> ago;
  std::vector<std::pair<std::int64_t, std::size_t>> live;  // name, event
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    const RankState& s = ranks_[r];
    NameEvents(r, &ago);
    const auto name = [&](std::int32_t event) -> std::int64_t {
      if (event < 0) return kNever;
      const std::int32_t calls = ago[static_cast<std::size_t>(event)];
      return calls >= 0 ? calls : -1 - std::int64_t{event};
    };
    const auto add_call = [&](std::uint32_t call) { add(s.call - call); };
    add_time(s.t);
    if (paces_[r] > s.host) add_time(paces_[r]);
    add(std::uint64_t{s.layer} << 48 | std::uint64_t{s.item} << 32 |
        std::uint64_t{s.iteration} << 16 | s.busy);
    add(std::uint64_t{s.nic_messages} << 32 | std::uint64_t{s.in_flight[0]} << 24 |
        std::uint64_t{s.in_flight[1]} << 16 | std::uint64_t{s.beside} << 8 |
        static_cast<std::uint64_t>(s.status) << 1 | (s.wake_set ? 1u : 0u));
    if (s.status == RankStatus::kWaiting) add(name(s.waits_for));
    if (s.status == RankStatus::kWorking) {
      const WorkProgress& p = progress_[r];
      for (const SimTime time : {s.work_end, p.time, p.start}) add_time(time);
      for (const SimTime span : {s.host - p.host, p.issued, p.idle, p.idle_ahead, p.elapsed}) {
        add(span);
      }
      add(std::uint64_t{p.kernel} << 8 | p.counted);
    }
    live.clear();
    for (std::size_t e = 0; e < ago.size(); ++e) {
      if (!IsLive(r, events_[first_event_[r] + e])) continue;
      live.emplace_back(name(static_cast<std::int32_t>(e)), e);
    }
    std::sort(live.begin(), live.end());
    for (const auto& [known_as, e] : live) {
      const EventState& event = events_[first_event_[r] + e];
      add(known_as);
      add(event.outstanding);
      add(event.end == kPending ? kNever : event.end - base);
      if (event.end == kPending) continue;
      for (const SimTime time : {event.start, event.arrival}) add_time(time);
      add(static_cast<std::uint64_t>(event.group) << 1 | (event.point_to_point ? 1u : 0u));
    }
    add(kNever);
    for (int i = 0; i < streams(); ++i) {
      const StreamState& q = stream(r, i);
      add(q.block_item);
      add(q.free > s.t ? q.free - base : kNever);
      if (q.block_item == kNobody) continue;
      add_time(q.arrival);
      add(q.start > 0 ? q.start - base : kNever);
      add_pointer(q.block);
      add_call(q.call);
      add(std::uint64_t{q.layer} << 32 | std::uint64_t{q.pending} << 16 | q.iteration);
      add(name(q.event));
      for (std::uint32_t n = q.queue_head; n != kNobody; n = queued_[r].nodes[n].next) {
        const Queued& entry = queued_[r].nodes[n];
        add_time(entry.issued);
        add_pointer(entry.block);
        add_call(entry.call);
        add(std::uint64_t{entry.item} << 32 | std::uint64_t{entry.layer} << 16 | entry.iteration);
        add(name(entry.event));
      }
      add(kNobody);
    }
  }
}

template <class Loop>
void Machine<Loop>::TakeNotes() {
  notes_.resize(ranks_.size());
  noted_ = {};
  std::vector<std::int32_t> ago;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    std::uint32_t earliest = FirstCall(r);
    notes_[r].Reset(earliest);
    NameEvents(r, &ago);
    for (std::size_t e = 0; e < ago.size(); ++e) {
      if (ago[e] < 0 || !IsLive(r, events_[first_event_[r] + e])) continue;
      earliest = std::min(earliest, ranks_[r].call - static_cast<std::uint32_t>(ago[e]));
    }
    noted_.calls.push_back(ranks_[r].call);
    noted_.earliest.push_back(earliest);
    noted_.hosts.push_back(ranks_[r].host);
  }
  noted_.waited.assign(ranks_.size(), false);
  noted_.parts = parts_;
  noted_.inlined = inlined_;
  noted_.ends = ends_;
  taking_notes_ = true;
}

template <class Loop>
std::uint32_t Machine<Loop>::RoundsLeft(SimTime span) {
  std::size_t rounds = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::int32_t> ago;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    const RankState& s = ranks_[r];
    if (s.call <= noted_.calls[r]) return 0;
    const std::size_t calls = s.call - noted_.calls[r];
    const CallPattern& pattern = PatternOf(r);
    const std::size_t end = pattern.EndOfPeriods(noted_.earliest[r], calls);
    if (end < s.call + 2 * calls) return 0;
    rounds = std::min(rounds, (end - s.call) / calls - 1);
    const SimTime host = s.host - noted_.hosts[r];
    if (host > span || (host < span && noted_.waited[r])) return 0;
    // An event of blocks that calls name, too, has two names.
    NameEvents(r, &ago);
    for (std::size_t e = 0; e < ago.size(); ++e) {
      if (ago[e] < 0 && pattern.Names(e) && IsLive(r, events_[first_event_[r] + e])) return 0;
    }
  }
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const SimTime later = ends_[i] - noted_.ends[i];
    if (later != 0 && later != span) return 0;
  }
  return static_cast<std::uint32_t>(rounds);
}

// The events of a rank under the names that they have `later` calls on, `by` picoseconds later.
template <class Loop>
void Machine<Loop>::MoveEvents(std::uint32_t r, std::uint32_t later, SimTime by) {
  RankState& s = ranks_[r];
  const graph::Program& p = program(layout_.ranks[r]);
  std::vector<std::int32_t> ago;
  NameEvents(r, &ago);
  std::vector<std::int16_t> becomes(ago.size());
  std::vector<EventState> moved(ago.size());
  for (std::size_t e = 0; e < ago.size(); ++e) {
    becomes[e] = static_cast<std::int16_t>(e);
    if (ago[e] >= 0) {
      const auto call = s.call - static_cast<std::uint32_t>(ago[e]) + later;
      becomes[e] = static_cast<std::int16_t>(p.calls[call].event);
    }
    EventState event = events_[first_event_[r] + e];
    if (!IsLive(r, event)) continue;
    if (event.end != kPending) {
      for (SimTime* time : {&event.end, &event.start, &event.arrival}) *time += by;
    }
    moved[static_cast<std::size_t>(becomes[e])] = event;
  }
  std::copy(moved.begin(), moved.end(),
            events_.begin() + static_cast<std::ptrdiff_t>(first_event_[r]));
  const auto rename = [&](std::int16_t* event) {
    if (*event >= 0) *event = becomes[static_cast<std::size_t>(*event)];
  };
  if (s.status == RankStatus::kWaiting) rename(&s.waits_for);
  for (int i = 0; i < streams(); ++i) {
    StreamState& q = stream(r, i);
    if (q.block_item == kNobody) continue;
    rename(&q.event);
    for (std::uint32_t n = q.queue_head; n != kNobody; n = queued_[r].nodes[n].next) {
      rename(&queued_[r].nodes[n].event);
    }
  }
}

template <class Loop>
void Machine<Loop>::MoveStreams(std::uint32_t r, std::uint32_t later, SimTime by) {
  for (int i = 0; i < streams(); ++i) {
    StreamState& q = stream(r, i);
    q.free += by;
    if (q.block_item == kNobody) continue;
    q.arrival += by;
    if (q.start > 0) q.start += by;
    q.call += later;
    q.weight = CallWeight(q.call) * weights_.weight(q.layer);
    for (std::uint32_t n = q.queue_head; n != kNobody; n = queued_[r].nodes[n].next) {
      Queued& entry = queued_[r].nodes[n];
      entry.issued += by;
      entry.call += later;
      entry.weight = CallWeight(entry.call) * weights_.weight(entry.layer);
    }
  }
}

template <class Loop>
void Machine<Loop>::Repeat(std::uint32_t rounds, SimTime span) {
  const SimTime by = static_cast<SimTime>(rounds) * span;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    RankState& s = ranks_[r];
    const std::uint32_t calls = s.call - noted_.calls[r], later = rounds * calls;
    MoveEvents(r, later, by);
    MoveStreams(r, later, by);
    s.hash += notes_[r].Repeated(rounds, calls, span);
    s.call += later;
    s.weight = CallWeight(s.call) * weights_.weight(s.layer);
    const SimTime host_by = rounds * (s.host - noted_.hosts[r]);
    s.host += host_by;
    progress_[r].host += host_by;
    for (SimTime* time : {&s.t, &s.work_end, &paces_[r], &progress_[r].time, &progress_[r].start}) {
      *time += by;
    }
    for (std::size_t p = 0; p < kParts; ++p) {
      parts_[r][p] += rounds * (parts_[r][p] - noted_.parts[r][p]);
    }
    InlinedTraffic& inlined = inlined_[r];
    inlined.out += rounds * (inlined.out - noted_.inlined[r].out);
    inlined.in += rounds * (inlined.in - noted_.inlined[r].in);
    inlined.busy += rounds * (inlined.busy - noted_.inlined[r].busy);
  }
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    ends_[i] += rounds * (ends_[i] - noted_.ends[i]);
  }
}

}  // namespace orrery::engine
