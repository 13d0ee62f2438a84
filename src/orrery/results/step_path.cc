#include "orrery/results/step_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace orrery::results {

StepPathSink::StepPathSink(const graph::Graph& graph, std::span<const RankId> ranks)
    : graph_(&graph), place_(graph.bindings.size(), kNone), spans_(ranks.size()) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    place_[ranks[i].index()] = static_cast<std::uint32_t>(i);
  }
}

void StepPathSink::Add(const Interval& interval) {
  if (interval.iteration < iteration_ || interval.end <= interval.start) return;
  if (interval.iteration > iteration_) {
    for (std::vector<Span>& spans : spans_) spans.clear();
    iteration_ = interval.iteration;
  }
  spans_[place_[interval.rank.index()]].push_back({.start = interval.start,
                                                   .came = interval.start + interval.waited,
                                                   .end = interval.end,
                                                   .name = interval.name,
                                                   .module = interval.module,
                                                   .communication = interval.stream != 0});
}

// Back along the chain, from a time to an earlier one.
class StepPathSink::Walk {
 public:
  Walk(const graph::Graph& graph, std::vector<std::vector<Span>>* spans)
      : graph_(graph), spans_(*spans) {
    for (std::size_t r = 0; r < spans_.size(); ++r) {
      // Of spans that end together the computation is taken: the last in this order.
      std::sort(spans_[r].begin(), spans_[r].end(), [](const Span& a, const Span& b) {
        return std::tuple(a.end, !a.communication, a.start, a.name.value) <
               std::tuple(b.end, !b.communication, b.start, b.name.value);
      });
      for (std::size_t i = 0; i < spans_[r].size(); ++i) {
        const Span& s = spans_[r][i];
        if (!s.communication || s.came != s.start) continue;
        last_to_come_.push_back({s.start, s.end, {static_cast<std::uint32_t>(r), i}});
      }
    }
    std::sort(last_to_come_.begin(), last_to_come_.end(), [](const Arrival& a, const Arrival& b) {
      return std::tuple(a.start, a.end, a.at.rank, a.at.span) <
             std::tuple(b.start, b.end, b.at.rank, b.at.span);
    });
  }

  StepPath Run(SimTime from, SimTime to) {
    from_ = from;
    At at = Before(to);
    if (at.rank != kNone) ranks_.insert(at.rank);
    while (at.rank != kNone && to > from_) {
      const Span& span = spans_[at.rank][at.span];
      Count("host, launches and waiting for equal ranks", span.end, &to);
      Count(NameOf(span), span.came, &to);
      if (span.came > span.start) {
        const std::uint32_t other = LastToCome(at, span);
        if (other != kNone) {
          at.rank = other;
          ranks_.insert(other);
          ++path_.crossings;
        } else {
          Count(NameOf(span) + ", waiting", span.start, &to);
        }
      } else {
        Count(NameOf(span), span.start, &to);
      }
      at = Before(at.rank, to);
    }
    Count("before the first operation", from_, &to);
    for (auto& [what, part] : parts_) path_.parts.push_back({what, part.count, part.time});
    std::stable_sort(path_.parts.begin(), path_.parts.end(),
                     [](const auto& a, const auto& b) { return a.time > b.time; });
    path_.ranks = static_cast<std::uint32_t>(ranks_.size());
    path_.followed = static_cast<std::uint32_t>(spans_.size());
    return std::move(path_);
  }

 private:
  struct Arrival {
    SimTime start = 0, end = 0;
    At at;
  };

  // The time from `until` to *to, or what of it lies in the step.
  void Count(const std::string& what, SimTime until, SimTime* to) {
    until = std::max(until, from_);
    if (until >= *to) return;
    StepPath::Part& part = parts_[what];
    ++part.count;
    part.time += *to - until;
    *to = until;
  }

  std::string NameOf(const Span& span) const {
    std::string name = span.name.valid() ? graph_.name(span.name) : "unnamed";
    if (!span.module.valid()) return name;
    const std::string& module = graph_.name(span.module);
    if (module.empty()) return name;
    // "layers.mlp.fc1 fc1" says nothing that its module does not.
    return module.ends_with("." + name) ? module : fmt::format("{} {}", module, name);
  }

  // The last of a rank's spans that ends at `time` or before.
  At Before(std::uint32_t rank, SimTime time) const {
    const std::vector<Span>& spans = spans_[rank];
    const auto behind = std::upper_bound(spans.begin(), spans.end(), time,
                                         [](SimTime t, const Span& s) { return t < s.end; });
    if (behind == spans.begin()) return {};
    return {rank, static_cast<std::size_t>(behind - spans.begin()) - 1};
  }
  // The same of all ranks.
  At Before(SimTime time) const {
    At best;
    for (std::uint32_t r = 0; r < spans_.size(); ++r) {
      const At at = Before(r, time);
      if (at.rank == kNone) continue;
      if (best.rank == kNone || End(at) > End(best)) best = at;
    }
    return best;
  }
  SimTime End(At at) const { return spans_[at.rank][at.span].end; }

  // The rank for which a communication waited: it came when all had, and ended with it where it
  // can.
  std::uint32_t LastToCome(At at, const Span& span) const {
    auto i = std::lower_bound(last_to_come_.begin(), last_to_come_.end(), span.came,
                              [](const Arrival& a, SimTime t) { return a.start < t; });
    std::uint32_t found = kNone;
    for (; i != last_to_come_.end() && i->start == span.came; ++i) {
      if (i->at.rank == at.rank) continue;
      if (i->end == span.end) return i->at.rank;
      if (found == kNone) found = i->at.rank;
    }
    return found;
  }

  const graph::Graph& graph_;
  std::vector<std::vector<Span>>& spans_;
  std::vector<Arrival> last_to_come_;
  SimTime from_ = 0;
  std::map<std::string, StepPath::Part> parts_;
  std::set<std::uint32_t> ranks_;
  StepPath path_;
};

StepPath StepPathSink::Path(SimTime from, SimTime to) {
  return Walk(*graph_, &spans_).Run(from, to);
}

}  // namespace orrery::results
