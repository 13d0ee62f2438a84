#include "orrery/workload/importers/nsys/join_calls.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "orrery/base/text.h"
#include "orrery/workload/importers/pytorch/collective_names.h"

namespace orrery::workload {
namespace {

using formats::NcclCalls;
using formats::ProfileTrace;

// c10's names of ncclDataType_t (data/traces/dtypes.csv has both).
constexpr const char* kTypes[] = {"Char", "Byte",  "Int",    "Int",      "Long", "Long",
                                  "Half", "Float", "Double", "BFloat16", "Byte", "Byte"};
constexpr std::int64_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

// The process's number in "host:pid [device]"; -1: there is none.
std::int64_t NumberOf(const std::string& process) {
  const std::size_t colon = process.find(':');
  std::int64_t number = -1;
  if (colon != std::string::npos) {
    std::from_chars(process.data() + colon + 1, process.data() + process.size(), number);
  }
  return number;
}

class Joiner {
 public:
  Joiner(const NcclCalls& calls, const std::string& log, std::vector<ProfileTrace>* profiles)
      : calls_(calls), log_(log), profiles_(*profiles) {}

  Status Run() {
    FindGroups();
    for (ProfileTrace& p : profiles_) {
      std::vector<std::vector<const NcclCalls::Call*>> launches;
      for (const NcclCalls::Call& call : calls_.calls) {
        if (NumberOf(calls_.communicators[call.communicator].process) != p.process) continue;
        const bool message = call.name == "Send" || call.name == "Recv";
        const NcclCalls::Call* last = launches.empty() ? nullptr : launches.back().back();
        if (message && last != nullptr && (last->name == "Send" || last->name == "Recv") &&
            last->communicator == call.communicator && last->group == call.group) {
          launches.back().push_back(&call);
        } else {
          launches.push_back({&call});
        }
      }
      ORRERY_RETURN_IF_ERROR(Join(launches, &p));
    }
    std::stable_sort(profiles_.begin(), profiles_.end(),
                     [](const auto& a, const auto& b) { return a.rank < b.rank; });
    return {};
  }

 private:
  void FindGroups() {
    std::int64_t most = 0;
    std::string world;
    for (const NcclCalls::Communicator& c : calls_.communicators) {
      if (c.ranks > most) world = c.id;
      most = std::max(most, c.ranks);
    }
    for (const NcclCalls::Communicator& c : calls_.communicators) {
      if (c.id == world) rank_of_[c.process] = c.rank;
    }
    for (const NcclCalls::Communicator& c : calls_.communicators) {
      const auto rank = rank_of_.find(c.process);
      if (rank != rank_of_.end()) members_[c.id][c.rank] = rank->second;
    }
    for (ProfileTrace& p : profiles_) {
      for (const auto& [process, rank] : rank_of_) {
        if (NumberOf(process) != p.process) continue;
        p.rank = rank;
        p.world = most;
      }
    }
  }

  Status Join(const std::vector<std::vector<const NcclCalls::Call*>>& launches, ProfileTrace* p) {
    std::unordered_map<std::int64_t, std::uint32_t> by_correlation;
    for (std::uint32_t i = 0; i < p->events.size(); ++i) {
      const ProfileTrace::Event& e = p->events[i];
      if (e.kind == ProfileTrace::Kind::kRuntime) by_correlation[e.correlation] = i;
    }
    std::vector<std::pair<std::int64_t, std::uint32_t>> kernels;
    for (std::uint32_t i = 0; i < p->events.size(); ++i) {
      const ProfileTrace::Event& e = p->events[i];
      if (e.kind != ProfileTrace::Kind::kKernel || !IsCommKernel(p->name(e))) continue;
      const auto launch = by_correlation.find(e.correlation);
      kernels.emplace_back(
          launch == by_correlation.end() ? e.start_ns : p->events[launch->second].start_ns, i);
    }
    std::sort(kernels.begin(), kernels.end());
    if (kernels.size() != launches.size()) {
      return InvalidInput(
          "'{}': process {} launched {} kernels of NCCL's in the report, and the log has {} calls: "
          "take both over the same span",
          Printable(log_), p->process, kernels.size(), launches.size());
    }
    const auto record = static_cast<std::uint32_t>(p->names.size());
    p->names.emplace_back("record_param_comms");
    std::vector<ProfileTrace::Event> records;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      ProfileTrace::Event& kernel = p->events[kernels[k].second];
      const NcclCalls::Call& first = *launches[k].front();
      if (first.name != "Send" && first.name != "Recv") {
        kernel.detail = static_cast<std::uint32_t>(p->comms.size());
        p->comms.push_back(ArgumentsOf(first));
        continue;
      }
      const auto launch = by_correlation.find(kernel.correlation);
      for (const NcclCalls::Call* call : launches[k]) {
        ProfileTrace::Event e;
        e.start_ns = kernels[k].first;
        e.name = record;
        e.track = launch == by_correlation.end() ? kernel.track : p->events[launch->second].track;
        e.detail = static_cast<std::uint32_t>(p->comms.size());
        p->comms.push_back(ArgumentsOf(*call));
        records.push_back(e);
      }
    }
    p->events.insert(p->events.end(), records.begin(), records.end());
    std::stable_sort(p->events.begin(), p->events.end(), [](const auto& a, const auto& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
    });
    return {};
  }

  // As Kineto has them.
  ProfileTrace::Comm ArgumentsOf(const NcclCalls::Call& call) const {
    struct Named {
      std::string_view call, name;
      bool of_each;
    };
    static constexpr Named kNames[] = {{"AllReduce", "allreduce", false},
                                       {"AllGather", "all_gather", true},
                                       {"ReduceScatter", "reduce_scatter", true},
                                       {"Broadcast", "broadcast", false},
                                       {"Reduce", "reduce", false},
                                       {"AlltoAll", "all_to_all", true},
                                       {"Gather", "gather", true},
                                       {"Scatter", "scatter", true},
                                       {"Send", "send", false},
                                       {"Recv", "recv", false}};
    const NcclCalls::Communicator& c = calls_.communicators[call.communicator];
    ProfileTrace::Comm a;
    a.collective = call.name;
    std::int64_t elements = call.type < 0 ? call.bytes : call.bytes / kBytes[call.type];
    for (const Named& n : kNames) {
      if (n.call != call.name) continue;
      a.collective = n.name;
      if (n.of_each && __builtin_mul_overflow(elements, c.ranks, &elements)) elements = -1;
    }
    a.in = a.out = elements;
    a.dtype = call.type < 0 ? "Byte" : kTypes[call.type];
    a.group = c.id;
    a.group_size = c.ranks;
    const auto members = members_.find(c.id);
    if (members != members_.end()) {
      for (const auto& [place, rank] : members->second) a.ranks += fmt::format("{},", rank);
      const auto peer = members->second.find(call.root);
      if (peer != members->second.end()) a.source = a.destination = peer->second;
    }
    return a;
  }

  const NcclCalls& calls_;
  const std::string& log_;
  std::vector<ProfileTrace>& profiles_;
  std::map<std::string, std::int64_t> rank_of_;                          // by process
  std::map<std::string, std::map<std::int64_t, std::int64_t>> members_;  // by communicator, place
};

}  // namespace

Status JoinCalls(const NcclCalls& calls, const std::string& log,
                 std::vector<ProfileTrace>* profiles) {
  return Joiner(calls, log, profiles).Run();
}

}  // namespace orrery::workload
