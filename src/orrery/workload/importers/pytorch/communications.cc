#include "orrery/workload/importers/pytorch/communications.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

using formats::ProfileTrace;
using graph::Collective;
using Event = ProfileTrace::Event;
using EventKind = ProfileTrace::Kind;
using Arguments = ProfileTrace::Comm;

bool OnGpu(const Event& e) {
  return e.kind == EventKind::kKernel || e.kind == EventKind::kCopy || e.kind == EventKind::kSet;
}

// "[0, 1, 2]"; nothing where the list is cut ("…").
std::vector<std::uint32_t> RanksOf(std::string_view text) {
  std::vector<std::uint32_t> ranks;
  if (text.find("...") != std::string_view::npos) return ranks;
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p != end) {
    std::uint32_t rank = 0;
    const auto [next, error] = std::from_chars(p, end, rank);
    if (error == std::errc()) {
      ranks.push_back(rank);
      p = next;
    } else {
      ++p;
    }
  }
  return ranks;
}

class CommunicationFinder {
 public:
  CommunicationFinder(const PyTorchRank& rank, const Window& window)
      : rank_(rank), profile_(rank.profile), window_(window) {}

  Result<Communications> Find() {
    for (const auto* groups : {&profile_.groups, &rank_.execution.groups}) {
      for (const ProfileTrace::Group& g : *groups) AddGroup(g);
    }
    ReadOperators();
    const bool gpu =
        std::any_of(profile_.events.begin(), profile_.events.end(),
                    [&](const auto& e) { return OnGpu(e) && IsCommKernel(profile_.name(e)); });
    ORRERY_RETURN_IF_ERROR(gpu ? FindKernels() : FindOperators());
    std::stable_sort(out_.list.begin(), out_.list.end(),
                     [](const auto& a, const auto& b) { return a.post_ns < b.post_ns; });
    return std::move(out_);
  }

 private:
  template <class... Args>
  Status Fault(const Event& e, fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidInput("'{}', byte {}: {}", Printable(rank_.path), e.offset,
                        fmt::format(format, std::forward<Args>(args)...));
  }

  std::uint32_t AddGroup(const ProfileTrace::Group& g) {
    const auto [at, fresh] =
        by_name_.try_emplace(g.name, static_cast<std::uint32_t>(out_.groups.size()));
    if (fresh) {
      out_.groups.push_back({g.name, g.description, g.ranks, g.size});
    }
    NamedGroup& group = out_.groups[at->second];
    if (group.ranks.empty()) group.ranks = g.ranks;
    if (group.size < 0) group.size = g.size;
    if (group.size < 0 && !group.ranks.empty()) {
      group.size = static_cast<std::int64_t>(group.ranks.size());
    }
    return at->second;
  }

  // What the execution trace knows of a record, and the operators by the numbers that lead to them.
  void ReadOperators() {
    for (std::size_t i = 0; i < rank_.execution.nodes.size(); ++i) {
      by_record_.emplace(rank_.execution.nodes[i].record, i);
    }
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      const Event& e = profile_.events[i];
      if (e.detail == ProfileTrace::kNone || OnGpu(e) || e.kind == EventKind::kSync) continue;
      if (e.external >= 0) by_external_[e.external] = i;
    }
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      const Event& e = profile_.events[i];
      if (e.kind == EventKind::kRuntime && e.correlation >= 0) by_correlation_[e.correlation] = i;
    }
  }

  // An event's arguments, with what the execution trace adds.
  Arguments ArgumentsOf(const Event& e) const {
    Arguments a;
    if (e.detail != ProfileTrace::kNone && e.kind != EventKind::kSync) a = profile_.comms[e.detail];
    const auto node = e.record < 0 ? by_record_.end() : by_record_.find(e.record);
    if (node != by_record_.end()) Complete(rank_.execution.nodes[node->second].comm, &a);
    return a;
  }
  static void Complete(const Arguments& from, Arguments* to) {
    const auto text = [](const std::string& f, std::string* t) {
      if (t->empty()) *t = f;
    };
    const auto number = [](std::int64_t f, std::int64_t* t) {
      if (*t < 0) *t = f;
    };
    text(from.collective, &to->collective);
    text(from.dtype, &to->dtype);
    text(from.group, &to->group);
    text(from.description, &to->description);
    text(from.ranks, &to->ranks);
    number(from.in, &to->in);
    number(from.out, &to->out);
    number(from.group_size, &to->group_size);
    number(from.source, &to->source);
    number(from.destination, &to->destination);
    if (to->elements.empty()) to->elements = from.elements;
    if (to->types.empty()) to->types = from.types;
    if (to->values.empty()) to->values = from.values;
  }

  std::uint32_t GroupOf(const Arguments& a) {
    ProfileTrace::Group g{a.group, a.description, RanksOf(a.ranks), a.group_size};
    if (g.name.empty() && g.ranks.empty()) {
      // The only group there is, or else the world's.
      if (out_.groups.empty()) return AddGroup({"", "", {}, profile_.world});
      if (out_.groups.size() > 1) {
        out_.missing.insert("the group of communications, in a profile with several groups");
      }
      return 0;
    }
    return AddGroup(g);
  }
  std::int64_t MembersOf(std::uint32_t group) const {
    const NamedGroup& g = out_.groups[group];
    if (!g.ranks.empty()) return static_cast<std::int64_t>(g.ranks.size());
    return g.size > 0 ? g.size : profile_.world;
  }

  // What is communicated and how much, from the arguments; `named` is what the name says.
  Status Describe(const Event& e, const Arguments& a, const NamedCollective& named,
                  Communication* c) {
    c->collective = named.collective;
    c->group = GroupOf(a);
    std::optional<NamedType> type = FindType(a.dtype);
    for (const std::string& t : a.types) {
      if (type) break;
      std::string_view inner = t;  // "GenericList[Tensor(float)]" of an execution trace
      if (const std::size_t at = inner.find("Tensor("); at != std::string_view::npos) {
        inner = inner.substr(at + 7);
        inner = inner.substr(0, inner.find(')'));
      }
      type = FindType(inner);
    }
    if (!type && e.kind == EventKind::kKernel) type = TypeOfKernel(profile_.name(e));
    const std::int64_t elements = ElementsOf(a, named.size, c->group);
    if (named.collective == Collective::kBarrier) {
      c->bytes = 0;
      return {};
    }
    if (!type) {
      out_.missing.insert(fmt::format("the element type of '{}': 4 bytes", Printable(c->name, 60)));
      type = NamedType{};
    }
    c->type = type->type;
    if (elements < 0) {
      out_.missing.insert(fmt::format("the size of '{}': 0 bytes", Printable(c->name, 60)));
      return {};
    }
    if (__builtin_mul_overflow(elements, type->bytes, &c->bytes)) {
      return Fault(e, "'{}' of {} elements", Printable(c->name, 60), elements);
    }
    return {};
  }
  std::int64_t ElementsOf(const Arguments& a, SizeOf size, std::uint32_t group) const {
    const auto argument = [&](std::size_t i) {
      return i < a.elements.size() ? a.elements[i] : std::int64_t{-1};
    };
    std::int64_t of_one = -1;
    switch (size) {
      case SizeOf::kNone:
        return -1;
      case SizeOf::kIn:
        return a.in;
      case SizeOf::kOut:
        return a.out;
      case SizeOf::kFirst:
        return argument(0);
      case SizeOf::kSecond:
        return argument(1);
      case SizeOf::kFirstOfMember:
        of_one = argument(0);
        break;
      case SizeOf::kSecondOfMember:
        of_one = argument(1);
        break;
    }
    std::int64_t all = -1;
    const std::int64_t members = MembersOf(group);
    return of_one < 0 || members < 1 || __builtin_mul_overflow(of_one, members, &all) ? -1 : all;
  }

  // The collective's name among an operator's arguments, where an older schema has it there.
  static std::string NameIn(const Arguments& a) {
    if (!a.collective.empty()) return a.collective;
    for (const std::string& v : a.values) {
      if (FindCollective(v)) return v;
    }
    return {};
  }

  // On GPUs.
  Status FindKernels() {
    // Messages that were recorded and whose kernel has not come yet, by thread.
    std::map<std::uint32_t, std::vector<std::uint32_t>> recorded;
    std::vector<std::pair<std::int64_t, std::uint32_t>> order;  // by launch
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      const Event& e = profile_.events[i];
      if (OnGpu(e) && IsCommKernel(profile_.name(e))) order.emplace_back(PostOf(e), i);
    }
    std::sort(order.begin(), order.end());
    std::uint32_t at = 0;
    for (const auto& [post, kernel] : order) {
      for (; at < profile_.events.size() && profile_.events[at].start_ns <= post; ++at) {
        const Event& e = profile_.events[at];
        if (OnGpu(e) || e.detail == ProfileTrace::kNone || e.kind == EventKind::kSync) continue;
        if (profile_.name(e) != "record_param_comms") continue;
        const auto named = FindCollective(NameIn(ArgumentsOf(e)));
        if (named && graph::IsPointToPoint(named->collective)) recorded[e.track].push_back(at);
      }
      if (!window_.Has(post)) {
        recorded.clear();
        continue;
      }
      ORRERY_RETURN_IF_ERROR(AddKernel(kernel, post, &recorded));
    }
    return {};
  }
  std::int64_t PostOf(const Event& kernel) const {
    const auto launch = by_correlation_.find(kernel.correlation);
    return launch == by_correlation_.end() ? kernel.start_ns
                                           : profile_.events[launch->second].start_ns;
  }

  Status AddKernel(std::uint32_t number, std::int64_t post,
                   std::map<std::uint32_t, std::vector<std::uint32_t>>* recorded) {
    const Event& e = profile_.events[number];
    Communication c;
    c.kernel = number;
    c.name = profile_.name(e);
    c.post_ns = post;
    c.start_ns = e.start_ns;
    c.end_ns = e.end_ns();
    if (const auto launch = by_correlation_.find(e.correlation); launch != by_correlation_.end()) {
      c.thread = profile_.events[launch->second].track;
    }
    Arguments a = ArgumentsOf(e);
    if (const auto op = by_external_.find(e.external); op != by_external_.end()) {
      const Event& launcher = profile_.events[op->second];
      if (launcher.start_ns <= e.start_ns) Complete(ArgumentsOf(launcher), &a);
    }
    const auto of_kernel = FindCollective(c.name);
    std::optional<NamedCollective> named = FindCollective(NameIn(a));
    if (of_kernel && of_kernel->messages) {
      std::vector<std::uint32_t> ops = std::exchange((*recorded)[c.thread], {});
      if (!ops.empty()) return AddMessages(c, ops);
      // An all-to-all, a gather or a scatter, made of messages.
    }
    if (!named) {
      if (!of_kernel) {
        return Fault(e, "kernel '{}': {}", Printable(c.name, 60),
                     UnknownName("communication", Printable(NameIn(a)), CollectiveNames()));
      }
      if (of_kernel->messages) {
        return Fault(e,
                     "kernel '{}' sends and receives, and the profile does not say what: trace "
                     "with torch 2.2 or later, or join an execution trace",
                     Printable(c.name, 60));
      }
      named = of_kernel;
    }
    ORRERY_RETURN_IF_ERROR(Describe(e, a, *named, &c));
    c.peer = named->collective == Collective::kSend ? a.destination : a.source;
    out_.list.push_back(std::move(c));
    return {};
  }
  // The messages of one kernel: one group call.
  Status AddMessages(const Communication& kernel, const std::vector<std::uint32_t>& ops) {
    const std::uint32_t batch = ops.size() > 1 ? ++batches_ : 0;
    for (const std::uint32_t op : ops) {
      const Event& e = profile_.events[op];
      const Arguments a = ArgumentsOf(e);
      Communication c = kernel;
      c.name = NameIn(a);
      c.op = op;
      c.batch = batch;
      const NamedCollective named = *FindCollective(c.name);
      ORRERY_RETURN_IF_ERROR(Describe(e, a, named, &c));
      c.peer = named.collective == Collective::kSend ? a.destination : a.source;
      if (c.peer < 0) {
        return Fault(e, "'{}' has no '{}'", Printable(c.name, 60),
                     named.collective == Collective::kSend ? "Dst Rank" : "Src Rank");
      }
      out_.list.push_back(std::move(c));
    }
    return {};
  }

  // On CPUs.
  Status FindOperators() {
    std::vector<std::pair<std::int64_t, std::uint32_t>> spans;  // by record
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      const Event& e = profile_.events[i];
      const std::string& name = profile_.name(e);
      const bool span = name.starts_with("gloo:") || name.starts_with("mpi:");
      if (e.kind == EventKind::kAnnotation && span && e.record >= 0)
        spans.emplace_back(e.record, i);
    }
    std::sort(spans.begin(), spans.end());
    std::set<std::int64_t> taken;
    for (std::uint32_t i = 0; i < profile_.events.size(); ++i) {
      const Event& e = profile_.events[i];
      if (e.kind != EventKind::kOperator || !profile_.name(e).starts_with("c10d::")) continue;
      if (!window_.Has(e.start_ns)) continue;
      const auto span = std::upper_bound(spans.begin(), spans.end(), std::make_pair(e.record, ~0u));
      // What comes behind the operator's own record, before any later operator's of its thread.
      const bool found = span != spans.end() && e.record >= 0 &&
                         span->first - e.record <= kNearest && taken.insert(span->first).second;
      ORRERY_RETURN_IF_ERROR(AddOperator(i, found ? &profile_.events[span->second] : nullptr));
    }
    return {};
  }
  Status AddOperator(std::uint32_t number, const Event* span) {
    const Event& e = profile_.events[number];
    Communication c;
    c.op = number;
    c.name = profile_.name(e);
    c.thread = e.track;
    c.post_ns = c.start_ns = e.start_ns;
    c.end_ns = e.end_ns();
    Arguments a = ArgumentsOf(e);
    if (span != nullptr) {
      c.start_ns = std::max(c.post_ns, span->start_ns);
      c.end_ns = std::max(c.start_ns, span->end_ns());
      // An operator on a list of tensors has no element type in a Kineto trace; the span has.
      const Arguments s = ArgumentsOf(*span);
      a.types.insert(a.types.end(), s.types.begin(), s.types.end());
    } else {
      out_.missing.insert(fmt::format(
          "when '{}' was done: no span of its back end; its operator's end was taken", c.name));
    }
    const auto named = FindCollective(c.name);
    if (!named) {
      return Fault(e, "{}", UnknownName("communication", Printable(c.name), CollectiveNames()));
    }
    ORRERY_RETURN_IF_ERROR(Describe(e, a, *named, &c));
    if (graph::IsPointToPoint(named->collective)) {
      // c10d::send(tensors, group, dst, tag), c10d::recv_(tensors, group, src, tag).
      if (a.values.size() > 2) {
        std::from_chars(a.values[2].data(), a.values[2].data() + a.values[2].size(), c.peer);
      }
      if (c.peer < 0) return Fault(e, "'{}' does not say its peer", Printable(c.name, 60));
    }
    // The last argument but one says whether the caller goes on (async_op).
    c.blocking = a.values.size() >= 2 && Lower(a.values[a.values.size() - 2]) == "false";
    out_.list.push_back(std::move(c));
    return {};
  }

  static constexpr std::int64_t kNearest = 64;  // records that an operator's arguments may take

  const PyTorchRank& rank_;
  const ProfileTrace& profile_;
  const Window window_;
  Communications out_;
  std::uint32_t batches_ = 0;
  std::map<std::string, std::uint32_t> by_name_;  // of groups
  std::unordered_map<std::int64_t, std::size_t> by_record_;
  std::unordered_map<std::int64_t, std::uint32_t> by_external_, by_correlation_;
};

}  // namespace

Result<Communications> FindCommunications(const PyTorchRank& rank, const Window& window) {
  return CommunicationFinder(rank, window).Find();
}

}  // namespace orrery::workload
