// Definitions of Machine's templates; included by machine.h only.
#pragma once

namespace orrery::engine {

template <class Loop>
void Machine<Loop>::Step(std::uint32_t r) {
  RankState& s = ranks_[r];
  s.status = RankStatus::kRunning;
  const Variant& variant = layout_.variants[layout_.ranks[r].variant];
  const std::vector<graph::Call>& calls = graph_.programs[variant.program.index()].calls;
  const bool whole = options_.jitter == 0 && !options_.stepwise;
  while (s.status == RankStatus::kRunning) {
    if (s.call == calls.size()) {
      EndIteration(r);
      continue;
    }
    const graph::Call& call = calls[s.call];
    const BlockPrice& block = *variant.blocks[call.block.index()];
    if (block.items.empty()) {
      ++s.call;
      continue;
    }
    if (whole && s.item == 0 && block.inlinable) {
      const bool able = s.busy == 0 && !tracer_->wants(r);
      if (const std::uint32_t meet = GatheringOf(r, block); meet != kNobody) {
        if constexpr (Loop::kGathers) {
          if (loop().Gather(r, meet, able)) return;
        }
      } else if (able) {
        const std::uint32_t left = call.repeat - s.layer, n = WholeCalls(s, block, left);
        if (n < left) NoteHost(r);
        if (n > 0) {
          TakeCalls(r, block, n, call.repeat);
          continue;
        }
      }
    }
    if (s.item == 0) s.weight = CallWeight(s.call) * weights_.weight(s.layer);
    const Item& item = block.items[s.item];
    bool next = true;
    switch (item.kind) {
      case ItemKind::kWork:
        next = TakeWork(r, block, item);
        break;
      case ItemKind::kComm:
        next = TakeComm(r, block, item);
        break;
      case ItemKind::kWait:
        next = TakeWait(r, item);
        break;
      case ItemKind::kHostSync:
        NoteHost(r);
        s.host = std::max(s.host, s.t) + item.host;
        EndStretch(r);
        break;
      case ItemKind::kHostPace:
        NoteHost(r);
        s.host = std::max(s.host + item.host, paces_[r]);
        paces_[r] = s.t;
        break;
    }
    if (next) NextItem(s, block, call.repeat);
  }
}

// How many of the n repeats that are left can be taken at once: those, one, or none, as far as the
// host keeps ahead of the GPU.
template <class Loop>
std::uint32_t Machine<Loop>::WholeCalls(const RankState& s, const BlockPrice& block,
                                        std::uint32_t n) {
  const SimTime slip = std::max<SimTime>(0, block.host - block.duration);
  if (s.host + block.lag + (n - 1) * slip <= s.t) return n;
  return n > 1 && s.host + block.lag <= s.t ? 1 : 0;
}

template <class Loop>
bool Machine<Loop>::TakeTogether(std::span<const std::uint32_t> members) {
  const RankState& first = ranks_[members[0]];
  const BlockPrice& in = block(members[0]);
  const std::uint32_t repeat = call(members[0]).repeat;
  std::uint32_t n = repeat - first.layer;
  for (const std::uint32_t m : members) {
    const RankState& s = ranks_[m];
    ORRERY_CHECK(s.call == first.call && s.layer == first.layer, "ranks of one variant");
    n = s.t == first.t ? WholeCalls(s, in, n) : 0;
    if (n < repeat - first.layer) NoteHost(m);
    if (n == 0) return false;
  }
  for (const std::uint32_t m : members) TakeCalls(m, in, n, repeat);
  return true;
}

template <class Loop>
void Machine<Loop>::TakeCalls(std::uint32_t r, const BlockPrice& block, std::uint32_t n,
                              std::uint32_t repeat) {
  RankState& s = ranks_[r];
  if (counted(s)) {
    const std::size_t l = s.layer;
    const std::uint64_t sum = weights_.sum[l + n] - weights_.sum[l];
    const std::uint64_t moment = weights_.moment[l + n] - weights_.moment[l] - l * sum;
    const std::uint64_t value = (block.m * static_cast<std::uint64_t>(s.t) + block.o) * sum +
                                block.m * static_cast<std::uint64_t>(block.duration) * moment;
    s.hash += CallWeight(s.call) * value;
    Note(r, s.call, kNoLayer, value, block.m * sum);
    if (last_iteration(s)) {
      for (std::size_t p = 0; p < kParts; ++p) parts_[r][p] += n * block.parts[p];
    }
  }
  if (block.nvlink_busy > 0) {
    inlined_[r].out += n * block.nvlink_out;
    inlined_[r].in += n * block.nvlink_in;
    inlined_[r].busy += n * block.nvlink_busy;
  }
  s.t += n * block.duration;
  s.host += n * block.host;
  s.layer = static_cast<std::uint16_t>(s.layer + n);
  if (s.layer == repeat) {
    s.layer = 0;
    ++s.call;
  }
}

template <class Loop>
bool Machine<Loop>::TakeWork(std::uint32_t r, const BlockPrice& block, const Item& item) {
  RankState& s = ranks_[r];
  const SimTime host = s.host;
  s.host += item.host;
  if (item.count == 0) return true;
  if (counted(s)) {
    const std::uint64_t value = item.key * static_cast<std::uint64_t>(s.t) + item.digest;
    s.hash += s.weight * value;
    Note(r, s.call, s.layer, value, item.key);
  }
  const SimTime extra = options_.jitter == 0 ? 0 : Jitter(r, block, item);
  const bool kept_ahead = host + item.lag <= s.t;
  if (!kept_ahead) NoteHost(r);
  if (s.busy == 0 && kept_ahead && !tracer_->wants(r)) {
    const SimTime end = s.t + item.duration[s.beside] + extra;
    FinishWork(r, block, item, s.t, end, 0, extra);
    return true;
  }
  WorkProgress& p = progress_[r];
  p = WorkProgress{};
  p.time = p.start = s.t;
  p.host = host;
  p.extra = extra;
  p.counted = s.beside;
  s.work_end = extra + Finish(block, item, p, s.beside, options_.launch, &p.idle_ahead);
  if (tracer_->wants(r)) tracer_->BeginWork(r, s.t, s.beside);
  if (s.busy == 0) {
    FinishWork(r, block, item, s.t, s.work_end, p.idle_ahead, extra);
    return true;
  }
  s.status = RankStatus::kWorking;
  // A wait behind the work sets the next event anyway: the communication's end.
  const Item* next = PeekNext(r);
  const bool waits = next != nullptr && next->kind == ItemKind::kWait && next == &item + 1 &&
                     event(r, EventOf(r, *next)).end == kPending;
  s.wake_set = false;
  if (!waits) SetWake(r);
  return false;
}

template <class Loop>
void Machine<Loop>::FinishWork(std::uint32_t r, const BlockPrice& block, const Item& item,
                               SimTime start, SimTime end, SimTime idle, SimTime extra) {
  RankState& s = ranks_[r];
  s.t = end;
  if (tracer_->wants(r)) {
    tracer_->EndWork(r, block, item, call(r), s.layer, s.iteration, progress_[r], options_.launch);
  }
  if (!last_iteration(s)) return;
  const SimTime alone = item.duration[0] + extra;
  Spend(r, item.optimizer ? Part::kOptimizer : Part::kCompute, alone);
  Spend(r, Part::kHost, idle);
  Spend(r, Part::kInterference, end - start - alone - idle);
}

template <class Loop>
void Machine<Loop>::EndWork(std::uint32_t r) {
  RankState& s = ranks_[r];
  if (s.status != RankStatus::kWorking) return;  // resting between repeated iterations
  const WorkProgress& p = progress_[r];
  const BlockPrice& in = block(r);
  const std::uint32_t repeat = call(r).repeat;
  FinishWork(r, in, in.items[s.item], p.start, s.work_end, p.idle + p.idle_ahead, p.extra);
  NextItem(s, in, repeat);
}

// Jitter at the end of a stretch: round(GPU-bound sum · jitter · u), drawn by the key
// (seed, job, logical rank, iteration, op at its end); never more than the last piece of work gives
// back.
template <class Loop>
SimTime Machine<Loop>::Jitter(std::uint32_t r, const BlockPrice& block, const Item& item) {
  const RankState& s = ranks_[r];
  Stretch& stretch = stretch_[r];
  stretch.work += item.duration[0];
  const bool last = &item == &block.items.back();
  const Item* next = last ? PeekNext(r) : &item + 1;
  if (next != nullptr && next->kind == ItemKind::kWork) return 0;
  const std::uint64_t op = (static_cast<std::uint64_t>(s.call) << 32) |
                           (static_cast<std::uint64_t>(s.layer) << 16) | s.item;
  const std::uint64_t key =
      HashCombine(stretch.key, (static_cast<std::uint64_t>(s.iteration) << 48) ^ op);
  const double delay = static_cast<double>(stretch.work) * options_.jitter * SumOfFourUniforms(key);
  stretch.work = 0;
  const SimTime rounded = delay >= 0 ? RoundToPs(delay) : -RoundToPs(-delay);
  return std::max(rounded, -item.duration[0]);
}

template <class Loop>
const Item* Machine<Loop>::PeekNext(std::uint32_t r) const {
  const RankState& s = ranks_[r];
  const BlockPrice& here = block(r);
  if (s.item + 1u < here.items.size()) return &here.items[s.item + 1u];
  const auto& variant = layout_.variants[layout_.ranks[r].variant];
  const auto& calls = graph_.programs[variant.program.index()].calls;
  if (s.layer + 1u < calls[s.call].repeat) return &here.items[0];
  for (std::size_t c = s.call + 1u; c < calls.size(); ++c) {
    const BlockPrice& block = *variant.blocks[calls[c].block.index()];
    if (!block.items.empty()) return &block.items[0];
  }
  return nullptr;
}

template <class Loop>
bool Machine<Loop>::TakeComm(std::uint32_t r, const BlockPrice& block, const Item& item) {
  RankState& s = ranks_[r];
  s.host += item.host;
  EndStretch(r);
  if (s.host > s.t) NoteHost(r);
  const SimTime issued = std::max(s.t, s.host);
  if (item.local) return TakeCopy(r, block, item, issued);
  if (item.parts == 0) return true;  // a group of one has nothing to say
  const std::int16_t e = item.blocking ? graph::kNoEvent : EventOf(r, item);
  if (!item.blocking && !CountOutstanding(r, item)) return false;
  if (e >= 0) {
    event(r, e).end = kPending;
    ++event(r, e).outstanding;
  }
  StreamState& q = stream(r, item.stream);
  const auto index = static_cast<std::uint32_t>(&item - block.items.data());
  const Queued entry{issued, &block, s.weight, index, s.call, kNobody, s.layer, s.iteration, e};
  if (item.blocking) {
    if (last_iteration(s)) Spend(r, Part::kHost, issued - s.t);
    s.t = issued;
    s.status = RankStatus::kBlocked;
  }
  NextItem(s, block, call(r).repeat);
  if (q.block_item == kNobody) {
    PostHead(r, item.stream, entry);
  } else {
    Enqueue(r, &q, entry);
  }
  return false;
}

// False where there are more than can be counted: the rank stands still, which its loop reports
// once all others do.
template <class Loop>
bool Machine<Loop>::CountOutstanding(std::uint32_t r, const Item& item) {
  RankState& s = ranks_[r];
  std::uint16_t& count = item.shares ? s.busy : s.nic_messages;
  if (count < kMostOutstanding) {
    ++count;
    return true;
  }
  s.status = RankStatus::kBlocked;
  std::uint32_t lowest = overfull();
  while (r < lowest && !overfull_.compare_exchange_weak(lowest, r, std::memory_order_relaxed)) {
  }
  return false;
}

// A copy between device and host meets nobody: its end is known when it is issued. Its stream holds
// copies only, in order of issue.
template <class Loop>
bool Machine<Loop>::TakeCopy(std::uint32_t r, const BlockPrice& block, const Item& item,
                             SimTime issued) {
  RankState& s = ranks_[r];
  StreamState& q = stream(r, item.stream);
  ORRERY_CHECK(q.block_item == kNobody, "copies have a stream of their own");
  q.arrival = issued;
  q.start = std::max(issued, q.free);
  q.free = q.start + item.duration[0];
  if (counted(s)) {
    const std::uint64_t value = item.key * (kStartWeight * static_cast<std::uint64_t>(q.start) +
                                            kEndWeight * static_cast<std::uint64_t>(q.free));
    s.hash += s.weight * value;
    Note(r, s.call, s.layer, value, item.key * (kStartWeight + kEndWeight));
    SimTime& last = ends_[r * static_cast<std::size_t>(options_.iterations) + s.iteration];
    last = std::max(last, q.free);
  }
  if (tracer_->wants(r)) {
    q.call = s.call;
    q.layer = s.layer;
    q.iteration = s.iteration;
    tracer_->AddComm(r, block, item, q, q.free, program(layout_.ranks[r]));
  }
  if (!item.blocking) {
    const std::int16_t e = EventOf(r, item);
    if (e >= 0) event(r, e) = {q.free, issued, issued, graph::GroupSlot::kOffload, false};
    return true;
  }
  if (last_iteration(s)) {
    Spend(r, Part::kHost, issued - s.t);
    parts_[r][static_cast<std::size_t>(Part::kExposed) +
              static_cast<std::size_t>(graph::GroupSlot::kOffload)] += q.free - issued;
  }
  s.t = q.free;
  return true;
}

template <class Loop>
void Machine<Loop>::Enqueue(std::uint32_t r, StreamState* q, const Queued& entry) {
  QueuedPool& pool = queued_[r];
  std::uint32_t slot = pool.free;
  if (slot == kNobody) {
    slot = static_cast<std::uint32_t>(pool.nodes.size());
    pool.nodes.push_back(entry);
  } else {
    pool.free = pool.nodes[slot].next;
    pool.nodes[slot] = entry;
  }
  if (q->queue_head == kNobody) {
    q->queue_head = slot;
  } else {
    pool.nodes[q->queue_tail].next = slot;
  }
  q->queue_tail = slot;
}

// A communication comes to the head of its stream.
template <class Loop>
void Machine<Loop>::PostHead(std::uint32_t r, int stream_index, const Queued& entry) {
  StreamState& q = stream(r, stream_index);
  const Item& item = entry.block->items[entry.item];
  q.arrival = std::max(entry.issued, q.free);
  q.start = 0;
  q.block = entry.block;
  q.block_item = entry.item;
  q.weight = entry.weight;
  q.call = entry.call;
  q.layer = entry.layer;
  q.iteration = entry.iteration;
  q.event = entry.event;
  q.pending = item.parts;
  if (q.iteration < options_.iterations) {
    const std::uint64_t growth = item.key * kArrivalWeight;
    ranks_[r].hash += q.weight * growth * static_cast<std::uint64_t>(q.arrival);
    Note(r, q.call, q.layer, growth * static_cast<std::uint64_t>(q.arrival), growth);
  }
  loop().Post(r, stream_index, q.arrival);
}

template <class Loop>
void Machine<Loop>::PostQueued(std::uint32_t r, int stream_index) {
  StreamState& q = stream(r, stream_index);
  QueuedPool& pool = queued_[r];
  const std::uint32_t slot = q.queue_head;
  const Queued entry = pool.nodes[slot];
  q.queue_head = entry.next;
  pool.nodes[slot].next = pool.free;
  pool.free = slot;
  PostHead(r, stream_index, entry);
}

template <class Loop>
void Machine<Loop>::EndCommunication(std::uint32_t r, int stream_index) {
  RankState& s = ranks_[r];
  StreamState& q = stream(r, stream_index);
  const SimTime end = q.free;
  const Item& item = head(q);
  const graph::Comm& comm = q.block->comms[item.first].comm;
  EventState released{end, q.start, q.arrival, comm.group, graph::IsPointToPoint(comm.collective)};
  const std::int16_t e = q.event;
  if (tracer_->wants(r)) tracer_->AddComm(r, *q.block, item, q, end, program(layout_.ranks[r]));
  if (q.iteration < options_.iterations) {
    SimTime& last = ends_[r * static_cast<std::size_t>(options_.iterations) + q.iteration];
    last = std::max(last, end);
  }
  const bool blocking = item.blocking;
  if (!blocking) {
    const interference::Class beside = q.block->comms[item.first].beside;
    if (item.shares) {
      --s.busy;
    } else {
      --s.nic_messages;
    }
    if (beside != 0) ChangeClass(r, end, beside, -1);
    if (e >= 0) {
      EventState& recorded = event(r, e);
      released.outstanding = static_cast<std::uint16_t>(recorded.outstanding - 1);
      if (released.outstanding == 0) recorded = released;
      recorded.outstanding = released.outstanding;
    }
  }
  q.block_item = kNobody;
  if (q.queue_head != kNobody) PostQueued(r, stream_index);
  const bool waited = s.status == RankStatus::kWaiting && s.waits_for == e;
  if (blocking || (waited && released.outstanding == 0)) {
    Resume(r, released);
  } else if (s.status == RankStatus::kWorking) {
    // With nothing outstanding the end of the work in hand is final; no need to wait for it.
    if (s.busy > 0) {
      if (s.wake_set || event(r, AfterWork(r)).end == kPending) return;
      if (s.work_end > end) return SetWake(r);
    }
    s.wake_set = false;
    EndWork(r);
    Step(r);
  }
}

// The compute stream goes on after what it waited for.
template <class Loop>
void Machine<Loop>::Resume(std::uint32_t r, const EventState& released) {
  RankState& s = ranks_[r];
  if (last_iteration(s) && released.end > s.t) SpendWait(r, released);
  s.t = std::max(s.t, released.end);
  Step(r);
}

// From s.t to the end of a communication. It waits for partners from the rank's arrival on;
// before, and once all are there, communication is under way.
template <class Loop>
void Machine<Loop>::SpendWait(std::uint32_t r, const EventState& e) {
  const SimTime now = ranks_[r].t;
  const SimTime arrival = std::clamp(e.arrival, now, e.end);
  const SimTime start = std::clamp(e.start, arrival, e.end);
  Spend(r, e.point_to_point ? Part::kBubble : Part::kWaiting, start - arrival);
  parts_[r][static_cast<std::size_t>(Part::kExposed) + static_cast<std::size_t>(e.group)] +=
      (arrival - now) + (e.end - start);
}

template <class Loop>
bool Machine<Loop>::TakeWait(std::uint32_t r, const Item& item) {
  RankState& s = ranks_[r];
  EndStretch(r);
  const EventState& e = event(r, EventOf(r, item));
  const graph::Call& here = call(r);
  if (e.end == kPending) {
    s.status = RankStatus::kWaiting;
    s.waits_for = EventOf(r, item);
    NextItem(s, block(r), here.repeat);
    return false;
  }
  if (e.end > s.t) {
    if (last_iteration(s)) SpendWait(r, e);
    s.t = e.end;
  }
  return true;
}

template <class Loop>
void Machine<Loop>::EndIteration(std::uint32_t r) {
  RankState& s = ranks_[r];
  if (s.iteration < options_.iterations) {
    const std::size_t at = r * static_cast<std::size_t>(options_.iterations) + s.iteration;
    ends_[at] = std::max(ends_[at], s.t);
    compute_ends_[at] = s.t;
    if (s.iteration + 1 == options_.iterations) running_.fetch_sub(1, std::memory_order_relaxed);
  }
  // A short job beside a long one goes on without end; how often does not matter.
  if (s.iteration < std::numeric_limits<decltype(s.iteration)>::max()) ++s.iteration;
  s.call = 0;
  if (s.iteration < options_.iterations) return;
  if (!options_.repeat_until_stopped) {
    s.status = RankStatus::kDone;
    return;
  }
  s.status = RankStatus::kResting;  // goes on as background load of the other jobs
  s.work_end = s.t;
  SetWake(r);
}

template <class Loop>
void Machine<Loop>::ChangeClass(std::uint32_t r, SimTime now, interference::Class bits, int delta) {
  RankState& s = ranks_[r];
  interference::Class mask = 0;
  for (int bit = 0; bit < 2; ++bit) {
    if (bits >> bit & 1) s.in_flight[bit] = static_cast<std::uint8_t>(s.in_flight[bit] + delta);
    if (s.in_flight[bit] > 0) mask = static_cast<interference::Class>(mask | 1 << bit);
  }
  if (mask == s.beside) return;
  if (s.status == RankStatus::kWorking && now < s.work_end) {
    WorkProgress& p = progress_[r];
    const BlockPrice& in = block(r);
    const Item& item = in.items[s.item];
    if (now > p.time) Advance(in, item, &p, now, s.beside, options_.launch);
    if (tracer_->wants(r)) tracer_->ChangeClass(r, now, mask);
    p.idle_ahead = 0;
    // Jitter may have taken more from the end than is left of the work.
    s.work_end = std::max(now, p.extra + Finish(in, item, p, mask, options_.launch, &p.idle_ahead));
    if (s.wake_set) SetWake(r);
  }
  s.beside = mask;
}

template <class Loop>
void Machine<Loop>::SetWake(std::uint32_t r) {
  RankState& s = ranks_[r];
  s.wake_set = true;
  loop().Wake(r, s.work_end, ++s.version);
}

}  // namespace orrery::engine
