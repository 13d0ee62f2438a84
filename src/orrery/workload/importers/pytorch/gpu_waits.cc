#include "orrery/workload/importers/pytorch/gpu_waits.h"

#include <algorithm>
#include <string_view>

namespace orrery::workload {
namespace {

using formats::ProfileTrace;
using Event = ProfileTrace::Event;
using EventKind = ProfileTrace::Kind;

constexpr std::uint32_t kNone = GpuWaits::kNone;

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class WaitFinder {
 public:
  WaitFinder(const ProfileTrace& profile, const Window& window, const Communications& comms,
             std::set<std::string>* assumed, std::set<std::string>* missing)
      : p_(profile), window_(window), comms_(comms), assumed_(*assumed), missing_(*missing) {}

  GpuWaits Find() {
    out_.used.assign(p_.events.size(), false);
    out_.launch.assign(p_.events.size(), kNone);
    FindLaunches();
    for (std::uint32_t i = 0; i < comms_.list.size(); ++i) {
      if (comms_.list[i].kernel != Communication::kNone) {
        out_.comms[comms_.list[i].kernel].push_back(i);
      }
    }
    const bool read = std::any_of(p_.events.begin(), p_.events.end(),
                                  [](const Event& e) { return e.kind == EventKind::kSync; });
    if (read) {
      ReadWaits();
    } else {
      InferStreamWaits();
    }
    FindHostWaits();
    return std::move(out_);
  }

 private:
  // Of a stream: its operations by the time of their launch.
  struct Launched {
    std::int64_t ns = 0;
    std::uint32_t event = 0;
    friend bool operator<(const Launched& a, const Launched& b) {
      return a.ns != b.ns ? a.ns < b.ns : a.event < b.event;
    }
  };
  using Stream = std::vector<Launched>;

  static bool OnGpu(const Event& e) {
    return e.kind == EventKind::kKernel || e.kind == EventKind::kCopy || e.kind == EventKind::kSet;
  }
  const Event& event(std::uint32_t i) const { return p_.events[i]; }

  void FindLaunches() {
    for (std::uint32_t i = 0; i < p_.events.size(); ++i) {
      const Event& e = event(i);
      if (e.kind == EventKind::kRuntime && e.correlation >= 0) calls_[e.correlation] = i;
    }
    std::size_t alone = 0;
    for (std::uint32_t i = 0; i < p_.events.size(); ++i) {
      const Event& e = event(i);
      if (!OnGpu(e)) continue;
      const auto call = calls_.find(e.correlation);
      const std::int64_t ns = call == calls_.end() ? e.start_ns : event(call->second).start_ns;
      if (!window_.Has(ns)) continue;
      out_.used[i] = true;
      if (call == calls_.end()) {
        ++alone;
      } else {
        out_.launch[i] = call->second;
      }
      streams_[e.track].push_back({ns, i});
    }
    for (auto& [track, stream] : streams_) {
      std::sort(stream.begin(), stream.end());
      by_number_[{p_.tracks[track].process, p_.tracks[track].number}] = &stream;
    }
    if (alone > 0) {
      missing_.insert(
          "the calls that launched some operations of the GPU: they begin by their "
          "streams alone");
    }
  }

  // The last operation on a stream that was launched before `ns`.
  static std::uint32_t LastBefore(const Stream& stream, std::int64_t ns) {
    const auto after = std::upper_bound(stream.begin(), stream.end(), Launched{ns, kNone});
    return after == stream.begin() ? kNone : (after - 1)->event;
  }
  static std::uint32_t FirstFrom(const Stream& stream, std::int64_t ns) {
    const auto at = std::lower_bound(stream.begin(), stream.end(), Launched{ns, 0});
    return at == stream.end() ? kNone : at->event;
  }
  Stream* StreamOf(std::int64_t device, std::int64_t number) {
    const auto at = by_number_.find({device, number});
    return at == by_number_.end() ? nullptr : at->second;
  }
  std::int64_t CallOf(std::int64_t correlation, std::int64_t otherwise) const {
    const auto call = calls_.find(correlation);
    return call == calls_.end() ? otherwise : event(call->second).start_ns;
  }
  void Wait(std::uint32_t operation, std::uint32_t target) {
    if (operation == kNone || target == kNone) return;
    if (event(target).end_ns() > event(operation).start_ns + kClockNs) return;
    out_.stream[operation].push_back(target);
  }

  // The profile's own synchronisation events.
  void ReadWaits() {
    for (std::uint32_t i = 0; i < p_.events.size(); ++i) {
      const Event& e = event(i);
      if (e.kind != EventKind::kSync) continue;
      const ProfileTrace::Wait& wait = p_.waits[e.detail];
      const std::int64_t called = CallOf(e.correlation, e.start_ns);
      if (!window_.Has(called)) continue;
      const ProfileTrace::Track& track = p_.tracks[e.track];
      const std::string_view name = p_.name(e);
      const std::int64_t recorded = CallOf(wait.correlation, called);
      Stream* const target = StreamOf(track.process, wait.stream);
      if (Contains(name, "Stream Wait")) {
        const auto own = streams_.find(e.track);
        if (own == streams_.end() || target == nullptr) continue;
        Wait(FirstFrom(own->second, called), LastBefore(*target, recorded));
        continue;
      }
      const auto call = calls_.find(e.correlation);
      if (call == calls_.end()) continue;
      GpuWaits::Targets& targets = out_.host[call->second];
      if (Contains(name, "Context") || Contains(name, "Device")) {
        AllBefore(called, &targets);
      } else if (target != nullptr) {
        if (const std::uint32_t last = LastBefore(*target, recorded); last != kNone) {
          targets.push_back(last);
        }
      }
    }
  }
  void AllBefore(std::int64_t ns, GpuWaits::Targets* targets) const {
    for (const auto& [track, stream] : streams_) {
      if (const std::uint32_t last = LastBefore(stream, ns); last != kNone) {
        targets->push_back(last);
      }
    }
  }

  // What a thread launched, and told its streams to wait for, in order.
  void InferStreamWaits() {
    std::map<std::uint32_t, std::uint32_t> last;  // by thread: its last kernel of computation
    std::map<std::uint32_t, std::int64_t> told;   // by thread: its last cudaStreamWaitEvent
    std::map<std::uint32_t, std::vector<std::uint32_t>> running;  // by thread: communication
    std::vector<Launched> order;
    for (const auto& [track, stream] : streams_) {
      order.insert(order.end(), stream.begin(), stream.end());
    }
    for (std::uint32_t i = 0; i < p_.events.size(); ++i) {
      const bool waits = event(i).kind == EventKind::kRuntime && window_.Has(event(i).start_ns) &&
                         Contains(p_.name(event(i)), "StreamWaitEvent");
      if (waits) order.push_back({event(i).start_ns, i});
    }
    std::sort(order.begin(), order.end());
    bool inferred = false;
    for (const Launched& l : order) {
      const Event& e = event(l.event);
      if (!OnGpu(e)) {
        told[e.track] = l.ns;
        continue;
      }
      if (out_.launch[l.event] == kNone) continue;
      const std::uint32_t thread = event(out_.launch[l.event]).track;
      if (out_.comms.contains(l.event)) {
        if (const auto before = last.find(thread); before != last.end()) {
          Wait(l.event, before->second);
          inferred = true;
        }
        running[thread].push_back(l.event);
        told.erase(thread);  // the wait was for this: its stream's for the computation before it
        continue;
      }
      if (told.erase(thread) > 0) {
        inferred = true;
        // Those that were done by then, as streams go on in order the last of each.
        std::map<std::uint32_t, std::uint32_t> done;
        std::vector<std::uint32_t>& list = running[thread];
        for (const std::uint32_t c : list) {
          if (event(c).end_ns() <= e.start_ns + kClockNs) done[event(c).track] = c;
        }
        for (const auto& [track, c] : done) Wait(l.event, c);
        std::erase_if(list, [&](std::uint32_t c) { return event(c).end_ns() <= e.start_ns; });
      }
      last[thread] = l.event;
    }
    if (inferred) {
      assumed_.insert(
          "streams wait for each other as ProcessGroupNCCL makes them: the profile has no "
          "synchronisation events (enable_cuda_sync_events)");
    }
  }

  // Calls that last until operations are done.
  void FindHostWaits() {
    bool inferred = false;
    for (std::uint32_t i = 0; i < p_.events.size(); ++i) {
      const Event& e = event(i);
      if (e.kind != EventKind::kRuntime || !window_.Has(e.start_ns) || out_.host.contains(i))
        continue;
      const std::string_view name = p_.name(e);
      if (Contains(name, "DeviceSynchronize") || Contains(name, "CtxSynchronize")) {
        AllBefore(e.start_ns, &out_.host[i]);
      } else if (Contains(name, "StreamSynchronize") || Contains(name, "EventSynchronize")) {
        std::uint32_t latest = kNone;
        for (const auto& [track, stream] : streams_) {
          const std::uint32_t last = LastBefore(stream, e.start_ns);
          if (last == kNone || event(last).end_ns() > e.end_ns() + kClockNs) continue;
          if (latest == kNone || event(last).end_ns() > event(latest).end_ns()) latest = last;
        }
        if (latest == kNone) continue;
        out_.host[i].push_back(latest);
        inferred = true;
      } else if (Contains(name, "Memcpy") || Contains(name, "Memset")) {
        AddBlockingCopy(i);
      }
    }
    for (auto& [call, targets] : out_.host) {
      std::erase_if(targets, [&, end = event(call).end_ns()](std::uint32_t t) {
        return event(t).end_ns() > end + kClockNs;
      });
    }
    if (inferred) {
      assumed_.insert(
          "a host that synchronises waits for the last operation that ended before it "
          "went on");
    }
  }
  // A call to copy that returns only once the copy is done.
  void AddBlockingCopy(std::uint32_t call) {
    for (const auto& [track, stream] : streams_) {
      for (auto at =
               std::lower_bound(stream.begin(), stream.end(), Launched{event(call).start_ns, 0});
           at != stream.end() && at->ns == event(call).start_ns; ++at) {
        const bool own = out_.launch[at->event] == call;
        if (own && event(at->event).end_ns() <= event(call).end_ns()) {
          out_.host[call].push_back(at->event);
        }
      }
    }
  }

  const ProfileTrace& p_;
  const Window window_;
  const Communications& comms_;
  std::set<std::string>&assumed_, &missing_;
  GpuWaits out_;
  std::unordered_map<std::int64_t, std::uint32_t> calls_;               // by correlation
  std::map<std::uint32_t, Stream> streams_;                             // by track
  std::map<std::pair<std::int64_t, std::int64_t>, Stream*> by_number_;  // device and stream
};

}  // namespace

GpuWaits FindGpuWaits(const ProfileTrace& profile, const Window& window,
                      const Communications& comms, std::set<std::string>* assumed,
                      std::set<std::string>* missing) {
  return WaitFinder(profile, window, comms, assumed, missing).Find();
}

}  // namespace orrery::workload
