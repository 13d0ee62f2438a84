#include "orrery/workload/importers/pytorch/rank_program.h"

#include <algorithm>
#include <map>

#include "orrery/workload/importers/pytorch/gpu_waits.h"

namespace orrery::workload {
namespace {

using formats::ProfileTrace;
using Event = ProfileTrace::Event;
using EventKind = ProfileTrace::Kind;
using NodeKind = RankNode::Kind;

constexpr std::uint32_t kNoNode = RankNode::kNone;
constexpr std::int64_t kPauseNs = 100'000;  // of a thread, after which it may go on by another's
constexpr std::int64_t kIdleNs = 20'000;    // of a thread, to be taken for a wait

// A thread's operators: those that no other encloses, and who runs when.
struct Activity {
  struct Change {
    std::int64_t ns = 0;
    std::uint32_t inner = kNoNode;  // the innermost operator from here on
  };
  std::vector<std::uint32_t> outer;
  std::vector<Change> changes;

  // The change at or before `ns`, and the first after it.
  std::pair<const Change*, const Change*> Around(std::int64_t ns) const {
    const auto after =
        std::upper_bound(changes.begin(), changes.end(), ns,
                         [](std::int64_t t, const Change& change) { return t < change.ns; });
    return {after == changes.begin() ? nullptr : &*(after - 1),
            after == changes.end() ? nullptr : &*after};
  }
};

struct Thread {
  std::uint32_t track = kNoNode;
  std::int64_t cursor_ns = 0;
  std::uint32_t last = kNoNode;  // node
  std::size_t next_outer = 0;
  Activity activity;
};

// What happens next, in the order of time.
struct Point {
  enum class Type : std::uint8_t { kLaunch, kPost, kGpu, kSync, kResume };
  std::int64_t ns = 0;
  Type type = Type::kLaunch;
  std::uint32_t thread = kNoNode;  // of the track
  std::uint32_t index = 0;         // an event; kPost: a communication; kResume: of `resumes`
};

// A thread goes on after communication.
struct Resume {
  std::int64_t from_ns = 0, to_ns = 0;
  std::vector<std::uint32_t> comms;
};

class Builder {
 public:
  Builder(const PyTorchRank& rank, const Window& window, const Communications& comms)
      : profile_(rank.profile), window_(window), comms_(comms) {
    for (const ProfileTrace::Track& t : profile_.tracks) gpu_ = gpu_ || t.gpu;
    node_of_event_.assign(profile_.events.size(), kNoNode);
    node_of_comm_.assign(comms.list.size(), kNoNode);
  }

  RankSteps Build() {
    FindMain();
    FindThreads();
    if (gpu_) {
      waits_ = FindGpuWaits(profile_, window_, comms_, &out_.assumed, &out_.missing);
      AddGpuPoints();
    } else {
      AddCpuPoints();
    }
    std::stable_sort(points_.begin(), points_.end(), [](const Point& a, const Point& b) {
      return a.ns != b.ns ? a.ns < b.ns : a.type < b.type;
    });
    for (const Point& p : points_) Handle(p);
    Thread& main = threads_.at(out_.main);
    HostUntil(&main, window_.end_ns);
    WaitForTheRest(&main);
    return std::move(out_);
  }

 private:
  const Event& event(std::uint32_t i) const { return profile_.events[i]; }

  // The thread of the step's mark, else the one with most operators in the window.
  void FindMain() {
    std::map<std::uint32_t, std::size_t> operators;
    for (const Event& e : profile_.events) {
      if (e.start_ns == window_.begin_ns && e.kind == EventKind::kAnnotation &&
          profile_.name(e).starts_with("ProfilerStep")) {
        out_.main = e.track;
        return;
      }
      const bool counts = e.kind == EventKind::kOperator || e.kind == EventKind::kRuntime;
      if (counts && window_.Has(e.start_ns)) ++operators[e.track];
    }
    std::size_t most = 0;
    for (const auto& [track, count] : operators) {
      if (count > most) out_.main = track;
      most = std::max(most, count);
    }
    if (out_.main == kNoNode) out_.main = static_cast<std::uint32_t>(profile_.tracks.size());
  }

  // Threads that matter: the main one, those that launch or wait, those that post communication.
  void FindThreads() {
    threads_[out_.main].cursor_ns = window_.begin_ns;
    for (const Event& e : profile_.events) {
      if (e.kind == EventKind::kRuntime && window_.Has(e.start_ns)) threads_[e.track];
    }
    for (const Communication& c : comms_.list) {
      if (c.thread != Communication::kNone) threads_[c.thread];
    }
    for (auto& [track, thread] : threads_) thread.track = track;
    std::map<std::uint32_t, std::vector<std::uint32_t>> open;  // operators, outermost first
    const auto close = [&](std::uint32_t track, std::int64_t until) {
      std::vector<std::uint32_t>& stack = open[track];
      while (!stack.empty() && event(stack.back()).end_ns() <= until) {
        const std::int64_t end = event(stack.back()).end_ns();
        stack.pop_back();
        threads_.at(track).activity.changes.push_back(
            {end, stack.empty() ? kNoNode : stack.back()});
      }
    };
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      const Event& e = event(i);
      if (e.kind != EventKind::kOperator || !threads_.contains(e.track)) continue;
      if (e.end_ns() < window_.begin_ns || e.start_ns >= window_.end_ns) continue;
      close(e.track, e.start_ns);
      Activity& activity = threads_.at(e.track).activity;
      if (open[e.track].empty()) activity.outer.push_back(i);
      open[e.track].push_back(i);
      activity.changes.push_back({e.start_ns, i});
    }
    for (auto& [track, thread] : threads_) close(track, window_.end_ns);
  }

  void AddGpuPoints() {
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      if (waits_.used[i]) {
        points_.push_back({event(i).start_ns, Point::Type::kGpu, kNoNode, i});
        const std::uint32_t launch = waits_.launch[i];
        if (launch == kNoNode || node_of_event_[launch] == kPlanned) continue;
        node_of_event_[launch] = kPlanned;
        points_.push_back(
            {event(launch).start_ns, Point::Type::kLaunch, event(launch).track, launch});
      }
      if (waits_.host.contains(i)) {
        points_.push_back({event(i).end_ns(), Point::Type::kSync, event(i).track, i});
      }
    }
  }

  void AddCpuPoints() {
    std::vector<std::uint32_t> loose;
    for (std::uint32_t i = 0; i < comms_.list.size(); ++i) {
      const Communication& c = comms_.list[i];
      points_.push_back({c.post_ns, Point::Type::kPost, c.thread, i});
      if (!AddResume(i)) loose.push_back(i);
    }
    // Those that had ended while their thread was busy: at its next wait.
    std::size_t until_end = 0;
    for (const std::uint32_t i : loose) {
      const Communication& c = comms_.list[i];
      const auto next = resume_at_.lower_bound({c.thread, c.end_ns});
      if (next != resume_at_.end() && next->first.first == c.thread) {
        resumes_[next->second].comms.push_back(i);
      } else {
        ++until_end;
      }
    }
    if (until_end > 0) {
      out_.assumed.insert(
          "communication that ended while its thread was busy is waited for at the step's end");
    }
  }
  // Where the thread of a communication goes on after it; false if it is nowhere seen to wait.
  bool AddResume(std::uint32_t index) {
    const Communication& c = comms_.list[index];
    const Activity& activity = threads_.at(c.thread).activity;
    const std::int64_t op_end = event(c.op).end_ns();
    std::int64_t from = 0, to = 0;
    if (c.blocking && c.end_ns <= op_end) {
      from = c.post_ns;
      to = op_end;
    } else {
      const auto [before, after] = activity.Around(c.end_ns);
      from = before == nullptr ? window_.begin_ns : before->ns;
      to = after == nullptr ? window_.end_ns : after->ns;
      const bool idle = before == nullptr || before->inner == kNoNode ||
                        profile_.name(event(before->inner)).starts_with("autograd::");
      if (!c.blocking && (!idle || to - from < kIdleNs)) return false;
      if (!c.blocking) {
        out_.assumed.insert("a thread that is idle when communication ends was waiting for it");
      }
      from = std::max(from, c.blocking ? op_end : c.post_ns);
    }
    to = std::min(std::max(to, from), window_.end_ns);
    if (c.end_ns > window_.end_ns) return false;
    const auto [at, fresh] =
        resume_at_.try_emplace({c.thread, to}, static_cast<std::uint32_t>(resumes_.size()));
    if (!fresh) {
      resumes_[at->second].comms.push_back(index);
      return true;
    }
    points_.push_back({to, Point::Type::kResume, c.thread, at->second});
    resumes_.push_back({from, to, {index}});
    return true;
  }

  std::uint32_t Add(NodeKind kind, std::uint32_t track, std::int64_t start, std::int64_t duration,
                    std::uint32_t name) {
    RankNode node;
    node.kind = kind;
    node.track = track;
    node.start_ns = start;
    node.duration_ns = duration;
    node.name = name;
    out_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(out_.nodes.size() - 1);
  }
  void Lead(std::uint32_t from, std::uint32_t to, bool on_start = false) {
    if (from == kNoNode) return;
    auto& deps = out_.nodes[to].deps;
    if (!deps.empty() && deps.back().node == from && deps.back().on_start == on_start) return;
    deps.push_back({from, on_start});
  }

  // The thread's own time until `ns`.
  void HostUntil(Thread* t, std::int64_t ns) {
    const Activity& activity = t->activity;
    while (t->cursor_ns < ns) {
      std::int64_t end = ns;
      std::uint32_t op = kNoNode;
      while (!gpu_ && t->next_outer < activity.outer.size()) {
        const Event& e = event(activity.outer[t->next_outer]);
        if (e.end_ns() <= t->cursor_ns) {
          ++t->next_outer;
          continue;
        }
        if (e.start_ns <= t->cursor_ns) {
          op = activity.outer[t->next_outer];
          end = std::min(end, e.end_ns());
        } else {
          end = std::min(end, e.start_ns);
        }
        break;
      }
      const bool own = op != kNoNode && !profile_.name(event(op)).starts_with("c10d::");
      t->last = Add(own ? NodeKind::kWork : NodeKind::kHost, t->track, t->cursor_ns,
                    end - t->cursor_ns, op == kNoNode ? kNoNode : event(op).name);
      t->cursor_ns = end;
    }
  }
  // Brings a thread to `ns`; where it has paused while another was at work, by that.
  void Reach(Thread* t, std::int64_t ns) {
    const bool first = t->last == kNoNode && t->cursor_ns == 0;
    const std::int64_t from = first ? window_.begin_ns : t->cursor_ns;
    const auto* before = t->activity.Around(last_ns_).first;
    const bool works = before != nullptr && before->inner != kNoNode;
    const bool paused = first || (ns - from > kPauseNs && !works);
    if (paused && last_thread_ != kNoNode && last_thread_ != t->track && last_ns_ >= from &&
        last_ns_ <= ns) {
      const std::uint32_t node = Add(NodeKind::kHost, t->track, last_ns_, ns - last_ns_, kNoNode);
      Lead(last_node_, node);
      t->last = node;
      t->cursor_ns = ns;
      out_.assumed.insert("a thread that pauses while another works goes on after it");
    } else {
      if (first) t->cursor_ns = window_.begin_ns;
      HostUntil(t, ns);
    }
    last_thread_ = t->track;
    last_ns_ = ns;
    last_node_ = t->last;
  }

  void Handle(const Point& p) {
    switch (p.type) {
      case Point::Type::kLaunch: {
        Thread& t = threads_.at(p.thread);
        Reach(&t, p.ns);
        node_of_event_[p.index] = t.last;
        return;
      }
      case Point::Type::kGpu:
        return AddGpu(p.index);
      case Point::Type::kSync: {
        std::vector<std::uint32_t> nodes;
        for (const std::uint32_t target : waits_.host.at(p.index)) {
          if (node_of_event_[target] < kPlanned) nodes.push_back(node_of_event_[target]);
        }
        return GoOn(&threads_.at(p.thread), event(p.index).start_ns, p.ns, nodes);
      }
      case Point::Type::kPost:
        return Post(p.index);
      case Point::Type::kResume: {
        const Resume& r = resumes_[p.index];
        std::vector<std::uint32_t> nodes;
        for (const std::uint32_t c : r.comms) nodes.push_back(node_of_comm_[c]);
        return GoOn(&threads_.at(p.thread), r.from_ns, r.to_ns, nodes);
      }
    }
  }

  // The thread waits from `from` on for nodes, and goes on at `to`.
  void GoOn(Thread* t, std::int64_t from, std::int64_t to,
            const std::vector<std::uint32_t>& nodes) {
    Reach(t, std::max(from, t->cursor_ns));
    std::int64_t ready = t->cursor_ns;
    for (const std::uint32_t n : nodes) ready = std::max(ready, out_.nodes[n].end_ns());
    if (to <= t->cursor_ns && nodes.empty()) return;
    const std::uint32_t node = Add(NodeKind::kHost, t->track, std::min(ready, to),
                                   std::max<std::int64_t>(0, to - ready), kNoNode);
    for (const std::uint32_t n : nodes) Lead(n, node);
    t->last = last_node_ = node;
    t->cursor_ns = last_ns_ = std::max(to, t->cursor_ns);
  }

  // A delay that ends at `ns`, behind what is ready at `ready`; what leads to it, leads here.
  std::uint32_t Delay(const std::vector<std::uint32_t>& after, std::int64_t ready,
                      std::int64_t ns) {
    const std::uint32_t node = Add(NodeKind::kHost, kNoNode, ready, ns - ready, kNoNode);
    for (const std::uint32_t n : after) Lead(n, node);
    return node;
  }

  void AddGpu(std::uint32_t index) {
    const Event& e = event(index);
    std::vector<std::uint32_t> after;
    std::int64_t ready = window_.begin_ns;
    // The clocks of host and GPU differ a little: what ends that much later was waited for, too.
    const auto wait_for = [&](std::uint32_t node, std::int64_t ns) {
      if (node >= kPlanned || ns > e.start_ns + kClockNs) return;
      after.push_back(node);
      ready = std::max(ready, std::min(ns, e.start_ns));
    };
    if (waits_.launch[index] != kNoNode) {
      wait_for(node_of_event_[waits_.launch[index]], event(waits_.launch[index]).start_ns);
    }
    if (const auto targets = waits_.stream.find(index); targets != waits_.stream.end()) {
      for (const std::uint32_t target : targets->second) {
        wait_for(node_of_event_[target], event(target).end_ns());
      }
    }
    std::uint32_t& before = last_on_stream_[e.track];
    const bool first = before == 0;  // one above the node
    const bool overlaps = !first && out_.nodes[before - 1].end_ns() > e.start_ns;
    if (!first && !overlaps) wait_for(before - 1, out_.nodes[before - 1].end_ns());
    std::uint32_t delay = kNoNode;
    if (e.start_ns > ready) delay = Delay(after, ready, e.start_ns);
    const auto comms = waits_.comms.find(index);
    const std::size_t count = comms == waits_.comms.end() ? 1 : comms->second.size();
    std::uint32_t node = kNoNode;
    for (std::size_t k = 0; k < count; ++k) {
      const bool comm = comms != waits_.comms.end();
      node = Add(comm ? NodeKind::kComm : NodeKind::kWork, overlaps ? kNoNode : e.track, e.start_ns,
                 e.duration_ns, e.name);
      if (comm) {
        out_.nodes[node].comm = comms->second[k];
        node_of_comm_[comms->second[k]] = node;
        KeepOrder(comms->second[k], node);
      }
      if (delay != kNoNode) {
        Lead(delay, node);
      } else {
        for (const std::uint32_t n : after) Lead(n, node);
      }
      if (overlaps) Lead(before - 1, node, true);
    }
    node_of_event_[index] = node;
    if (first || out_.nodes[before - 1].end_ns() <= e.end_ns()) before = node + 1;
  }

  void Post(std::uint32_t index) {
    const Communication& c = comms_.list[index];
    Thread& t = threads_.at(c.thread);
    Reach(&t, std::max(c.post_ns, t.cursor_ns));
    std::vector<std::uint32_t> after;
    if (t.last != kNoNode) after.push_back(t.last);
    std::uint32_t delay = kNoNode;
    if (c.start_ns > t.cursor_ns) delay = Delay(after, t.cursor_ns, c.start_ns);
    const std::uint32_t node =
        Add(NodeKind::kComm, kNoNode, c.start_ns, c.end_ns - c.start_ns, event(c.op).name);
    out_.nodes[node].comm = index;
    node_of_comm_[index] = node;
    if (delay != kNoNode) {
      Lead(delay, node);
    } else {
      for (const std::uint32_t n : after) Lead(n, node);
    }
    KeepOrder(index, node);
  }
  // Members meet in the order in which each began: the one before it on its group comes first.
  void KeepOrder(std::uint32_t index, std::uint32_t node) {
    const Communication& c = comms_.list[index];
    if (graph::IsPointToPoint(c.collective)) return;
    const auto [before, fresh] = last_of_group_.try_emplace(c.group, node);
    if (!fresh) Lead(std::exchange(before->second, node), node, true);
  }

  // The step ends once everything in it has.
  void WaitForTheRest(Thread* main) {
    if (gpu_) return;
    std::vector<bool> awaited(comms_.list.size(), false);
    for (const Resume& r : resumes_) {
      for (const std::uint32_t c : r.comms) awaited[c] = true;
    }
    const std::uint32_t node = Add(NodeKind::kHost, main->track, window_.end_ns, 0, kNoNode);
    for (std::uint32_t c = 0; c < awaited.size(); ++c) {
      if (!awaited[c]) Lead(node_of_comm_[c], node);
    }
    main->last = node;
  }

  static constexpr std::uint32_t kPlanned = kNoNode - 1;

  const ProfileTrace& profile_;
  const Window window_;
  const Communications& comms_;
  RankSteps out_;
  bool gpu_ = false;
  std::map<std::uint32_t, Thread> threads_;  // by track
  std::vector<Point> points_;
  std::vector<Resume> resumes_;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> resume_at_;  // thread, time
  GpuWaits waits_;
  std::vector<std::uint32_t> node_of_event_, node_of_comm_;
  std::map<std::uint32_t, std::uint32_t> last_on_stream_, last_of_group_;
  std::uint32_t last_thread_ = kNoNode, last_node_ = kNoNode;
  std::int64_t last_ns_ = 0;
};

}  // namespace

RankSteps StepsOf(const PyTorchRank& rank, const Window& window, const Communications& comms) {
  return Builder(rank, window, comms).Build();
}

}  // namespace orrery::workload
