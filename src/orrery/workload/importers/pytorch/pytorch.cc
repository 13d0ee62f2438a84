#include "orrery/workload/importers/pytorch/pytorch.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "orrery/base/text.h"
#include "orrery/workload/importers/pytorch/meetings.h"
#include "orrery/workload/importers/pytorch/rank_program.h"

namespace orrery::workload {
namespace {

using formats::ProfileTrace;
using EventKind = ProfileTrace::Kind;

constexpr std::int64_t kMostNanoseconds = kMaxDuration / kNanosecond;
constexpr std::int64_t kMostRanks = 1 << 20;

std::int64_t Picoseconds(std::int64_t ns) {
  return std::clamp<std::int64_t>(ns, 0, kMostNanoseconds) * kNanosecond;
}

// The number behind "ProfilerStep#".
bool StepNumber(std::string_view name, std::int64_t* number) {
  constexpr std::string_view kMark = "ProfilerStep#";
  if (!name.starts_with(kMark)) return false;
  name.remove_prefix(kMark.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), *number);
  return error == std::errc() && end == name.data() + name.size();
}

class Importer {
 public:
  Importer(std::vector<PyTorchRank> files, const PyTorchOptions& options, const std::string& name)
      : files_(std::move(files)), options_(options), name_(name) {}

  Result<PyTorchImport> Import() {
    ORRERY_RETURN_IF_ERROR(OrderRanks());
    ORRERY_RETURN_IF_ERROR(ChooseStep());
    for (MetRank& rank : ranks_) {
      ORRERY_ASSIGN_OR_RETURN(rank.comms, FindCommunications(*rank.files, rank.window));
      CutWorld(&rank.comms);
      Note(rank.comms.assumed, rank.comms.missing);
    }
    ORRERY_ASSIGN_OR_RETURN(meetings_, Meet(ranks_));
    Note(meetings_.assumed, meetings_.missing);
    AddGroups();
    FindStart();
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) AddRank(r);
    Bind();
    if (options_.replicas == 1) out_.measured = Picoseconds(end_ns_ - start_ns_);
    out_.assumed.assign(assumed_.begin(), assumed_.end());
    out_.missing.assign(missing_.begin(), missing_.end());
    return std::move(out_);
  }

 private:
  void Note(const std::set<std::string>& assumed, const std::set<std::string>& missing) {
    assumed_.insert(assumed.begin(), assumed.end());
    missing_.insert(missing.begin(), missing.end());
  }

  // By the numbers that the profiles give, else in the order of the files.
  Status OrderRanks() {
    const auto number = [](const PyTorchRank& f) { return f.profile.rank; };
    if (files_.size() * static_cast<std::size_t>(options_.replicas) > kMostRanks) {
      return InvalidInput("{} ranks, {} times over: more than {}", files_.size(), options_.replicas,
                          kMostRanks);
    }
    const bool named =
        std::all_of(files_.begin(), files_.end(), [&](const auto& f) { return number(f) >= 0; });
    if (named) {
      std::stable_sort(files_.begin(), files_.end(),
                       [&](const auto& a, const auto& b) { return number(a) < number(b); });
      for (std::size_t r = 0; r < files_.size(); ++r) {
        if (number(files_[r]) == static_cast<std::int64_t>(r)) continue;
        if (r > 0 && number(files_[r]) == number(files_[r - 1])) {
          return InvalidInput("'{}' and '{}' are both of rank {}", Printable(files_[r - 1].path),
                              Printable(files_[r].path), number(files_[r]));
        }
        return InvalidInput("rank {} has no profile: '{}' is of rank {} of {}", r,
                            Printable(files_[r].path), number(files_[r]), files_[r].profile.world);
      }
    } else if (files_.size() > 1) {
      missing_.insert("the ranks' numbers (distributedInfo): the files' order");
    }
    const std::int64_t world = files_.front().profile.world;
    const auto given = static_cast<std::int64_t>(files_.size());
    if (world > given && world != given * options_.replicas) {
      const std::string all =
          world % given == 0
              ? fmt::format("; if all replicas do the same, say --set pytorch.replicas={}",
                            world / given)
              : "";
      return InvalidInput("profiles of {} of {} ranks were given{}", given, world, all);
    }
    for (std::size_t r = 0; r < files_.size(); ++r) {
      if (out_.gpu.empty() && !files_[r].profile.gpus.empty()) out_.gpu = files_[r].profile.gpus[0];
      ranks_.push_back({.files = &files_[r], .number = static_cast<std::uint32_t>(r)});
    }
    return {};
  }

  // Where only some of the replicas were traced, the world is theirs; Bind multiplies it.
  void CutWorld(Communications* comms) const {
    const auto world = static_cast<std::size_t>(std::max<std::int64_t>(0, files_[0].profile.world));
    if (world <= files_.size()) return;
    for (NamedGroup& g : comms->groups) {
      if (g.ranks.size() == world) g.ranks.clear();
      if (g.ranks.empty() && g.size == static_cast<std::int64_t>(world)) {
        g.size = static_cast<std::int64_t>(files_.size());
      }
    }
  }

  // The windows of the same step on all ranks.
  Status ChooseStep() {
    std::map<std::int64_t, std::size_t> ranks_with;  // by step
    std::vector<std::map<std::int64_t, Window>> steps(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const ProfileTrace& p = ranks_[r].files->profile;
      for (const ProfileTrace::Event& e : p.events) {
        std::int64_t number = 0;
        if (e.kind != EventKind::kAnnotation || !StepNumber(p.name(e), &number)) continue;
        if (e.duration_ns <= 0 || e.duration_ns > kMostNanoseconds) continue;
        if (steps[r].try_emplace(number, Window{e.start_ns, e.end_ns()}).second) {
          ++ranks_with[number];
        }
      }
    }
    std::erase_if(ranks_with, [&](const auto& s) { return s.second != ranks_.size(); });
    if (ranks_with.empty()) {
      if (options_.step >= 0) {
        return InvalidInput("pytorch.step: no step is marked ('ProfilerStep#{}') on all ranks",
                            options_.step);
      }
      return WholeWindows();
    }
    std::int64_t chosen = ranks_with.rbegin()->first;
    if (options_.step >= 0) {
      chosen = options_.step;
      if (!ranks_with.contains(chosen)) {
        return InvalidInput("pytorch.step: step {} is not on all ranks; those are {} to {}", chosen,
                            ranks_with.begin()->first, ranks_with.rbegin()->first);
      }
    } else if (ranks_with.size() > 1) {
      assumed_.insert(
          fmt::format("step {}, the last of {} (pytorch.step chooses)", chosen, ranks_with.size()));
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].window = steps[r].at(chosen);
    return {};
  }
  Status WholeWindows() {
    for (MetRank& rank : ranks_) {
      const auto& events = rank.files->profile.events;
      if (events.empty()) {
        return InvalidInput("'{}' has no event of a thread or a GPU", Printable(rank.files->path));
      }
      Window& w = rank.window;
      w = {events.front().start_ns, events.front().end_ns()};
      for (const ProfileTrace::Event& e : events) w.end_ns = std::max(w.end_ns, e.end_ns());
      ++w.end_ns;
      if (w.end_ns - w.begin_ns > kMostNanoseconds) {
        return InvalidInput("'{}' spans {:.0f} days", Printable(rank.files->path),
                            static_cast<double>(w.end_ns - w.begin_ns) / 8.64e13);
      }
    }
    missing_.insert("marks of steps (ProfilerStep): the whole profile is one");
    return {};
  }

  void FindStart() {
    start_ns_ = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      start_ns_ = std::min(start_ns_, ranks_[r].window.begin_ns + meetings_.clock_ns[r]);
    }
    end_ns_ = start_ns_;
  }

  // Streams are numbered alike on all ranks: threads by their order, GPUs' streams by CUDA's
  // number.
  std::uint32_t StreamOf(const std::string& label) {
    const auto [at, fresh] =
        streams_.try_emplace(label, static_cast<std::uint32_t>(streams_.size() + 1));
    if (fresh) {
      out_.graph.streams.resize(streams_.size() + 1);
      out_.graph.streams[at->second].name = out_.graph.Intern(label);
    }
    return at->second;
  }
  std::vector<std::uint32_t> StreamsOf(const ProfileTrace& p, const RankSteps& steps) {
    std::vector<bool> used(p.tracks.size() + 1, false);
    for (const RankNode& n : steps.nodes) {
      if (n.track != RankNode::kNone) used[n.track] = true;
    }
    std::vector<std::uint32_t> streams(p.tracks.size() + 1, graph::kNoStream);
    std::set<std::int64_t> devices;
    for (const ProfileTrace::Track& t : p.tracks) {
      if (t.gpu) devices.insert(t.process);
    }
    std::size_t threads = 0;
    const auto thread = [&](std::size_t t) {
      streams[t] = StreamOf(threads == 0 ? "main thread" : fmt::format("thread {}", threads));
      ++threads;
    };
    thread(steps.main);
    for (std::size_t t = 0; t < p.tracks.size(); ++t) {
      if (!used[t] || t == steps.main) continue;
      if (!p.tracks[t].gpu) {
        thread(t);
        continue;
      }
      const auto device = std::distance(devices.begin(), devices.find(p.tracks[t].process));
      streams[t] =
          StreamOf(device == 0 ? fmt::format("stream {}", p.tracks[t].number)
                               : fmt::format("GPU {} stream {}", device, p.tracks[t].number));
    }
    return streams;
  }

  void AddRank(std::uint32_t r) {
    const MetRank& rank = ranks_[r];
    const ProfileTrace& p = rank.files->profile;
    const RankSteps steps = StepsOf(*rank.files, rank.window, rank.comms);
    Note(steps.assumed, steps.missing);
    const std::vector<std::uint32_t> streams = StreamsOf(p, steps);
    std::vector<NameId> names(p.names.size());
    const auto name = [&](std::uint32_t n) {
      if (n == RankNode::kNone) return NameId();
      if (!names[n].valid()) names[n] = out_.graph.Intern(p.names[n]);
      return names[n];
    };
    graph::Block block;
    block.issue = graph::Issue::kFree;
    block.dep_begin = {0};
    const std::int64_t clock = meetings_.clock_ns[r];
    // The rank begins when it did.
    AddHost(streams[steps.main], rank.window.begin_ns + clock - start_ns_, &block);
    end_ns_ = std::max(end_ns_, rank.window.end_ns + clock);
    for (const RankNode& n : steps.nodes) {
      end_ns_ = std::max(end_ns_, n.end_ns() + clock);
      const std::uint32_t stream = n.track == RankNode::kNone ? graph::kNoStream : streams[n.track];
      if (n.deps.empty() && n.track != steps.main) block.deps.push_back({0, 0});
      for (const RankNode::Dep& d : n.deps) {
        block.deps.push_back({d.node + 1, d.on_start ? 1u : 0u});
      }
      if (n.kind == RankNode::Kind::kHost) {
        AddHost(stream, n.duration_ns, &block);
      } else if (n.kind == RankNode::Kind::kWork || IsAlone(r, n.comm)) {
        block.ops.push_back({.kind = graph::OpKind::kTimed,
                             .index = static_cast<std::uint32_t>(block.times.size()),
                             .name = name(n.name),
                             .stream = stream});
        block.times.push_back({Picoseconds(n.duration_ns), -1});
      } else {
        block.ops.push_back({.kind = graph::OpKind::kComm,
                             .index = static_cast<std::uint32_t>(block.comms.size()),
                             .name = name(n.name)});
        block.comms.push_back(CommOf(r, n.comm, stream));
      }
      block.dep_begin.push_back(static_cast<std::uint32_t>(block.deps.size()));
    }
    block.Seal();
    graph::Program program;
    program.name = fmt::format("rank {}", r);
    program.calls.push_back({.block = BlockId(out_.graph.blocks.size())});
    out_.graph.blocks.push_back(std::move(block));
    out_.graph.programs.push_back(std::move(program));
  }
  // The dependencies of the first are closed here, of others by the caller.
  static void AddHost(std::uint32_t stream, std::int64_t ns, graph::Block* block) {
    if (block->ops.empty()) block->dep_begin.push_back(0);
    block->ops.push_back({.kind = graph::OpKind::kHost,
                          .index = static_cast<std::uint32_t>(block->host_ps.size()),
                          .stream = stream});
    block->host_ps.push_back(Picoseconds(ns));
  }

  // A collective that meets nobody else is work of its own.
  bool IsAlone(std::uint32_t r, std::uint32_t comm) const {
    const std::uint32_t group = meetings_.group[r][comm];
    return meetings_.groups[group].members.size() * Copies(group) == 1;
  }
  graph::Comm CommOf(std::uint32_t r, std::uint32_t index, std::uint32_t stream) const {
    const Communication& c = ranks_[r].comms.list[index];
    const std::uint32_t group = meetings_.group[r][index];
    graph::Comm comm;
    comm.collective = c.collective;
    comm.group = static_cast<graph::GroupSlot>(graph::kGroupSlots + slot_of_[r].at(group));
    comm.stream = stream;
    comm.after = graph::kNoStream;
    comm.blocking = false;
    comm.dtype = c.type;
    comm.bytes.value = c.bytes;
    comm.batch = c.batch;
    if (graph::IsPointToPoint(c.collective)) {
      const auto& members = meetings_.groups[group].members;
      const auto at = std::find(members.begin(), members.end(), static_cast<std::uint32_t>(c.peer));
      comm.peer = {graph::PeerKind::kMember, static_cast<std::int32_t>(at - members.begin())};
      if (Copies(group) > 1) {  // of its own copy
        const auto own = std::find(members.begin(), members.end(), r);
        const auto all = static_cast<std::ptrdiff_t>(members.size() * Copies(group));
        comm.peer = {graph::PeerKind::kOffset, static_cast<std::int32_t>((at - own + all) % all)};
      }
    }
    // What a joined group would take, nobody has measured.
    if (Copies(group) == 1) comm.measured.value = Picoseconds(meetings_.measured_ns[r][index]);
    return comm;
  }

  // How many copies of a group are joined.
  std::size_t Copies(std::uint32_t group) const {
    if (options_.replicas == 1) return 1;
    const MetGroup& g = meetings_.groups[group];
    const bool data = RoleOf(g.description) == graph::GroupSlot::kDp ||
                      RoleOf(g.description) == graph::GroupSlot::kReplica;
    const std::string words = Lower(g.description);
    const bool says =
        data && (words.find("dp") != std::string::npos || words.find("data") != std::string::npos ||
                 words.find("replicate") != std::string::npos);
    return says || g.members.size() == ranks_.size() ? static_cast<std::size_t>(options_.replicas)
                                                     : 1;
  }

  // The groups that each rank uses, in the order of their first use.
  void AddGroups() {
    slot_of_.resize(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const std::uint32_t group : meetings_.group[r]) {
        slot_of_[r].try_emplace(group, static_cast<std::uint32_t>(slot_of_[r].size()));
      }
    }
  }

  // Ranks of every copy run the traced rank's program, in groups of their copy or of all.
  void Bind() {
    graph::Graph& graph = out_.graph;
    const std::size_t ranks = ranks_.size();
    const auto copies = static_cast<std::size_t>(options_.replicas);
    graph.jobs.push_back(
        {.name = name_, .ranks = static_cast<std::uint32_t>(ranks * copies), .once = true});
    std::vector<std::vector<GroupId>> ids(meetings_.groups.size());  // by copy
    bool joined = false, kept = false;
    for (std::uint32_t g = 0; g < meetings_.groups.size(); ++g) {
      const bool together = Copies(g) > 1;
      const graph::GroupSlot role = RoleOf(meetings_.groups[g].description);
      (together ? joined : kept) = true;
      std::vector<RankId> members;
      for (std::size_t copy = 0; copy < copies; ++copy) {
        for (const std::uint32_t m : meetings_.groups[g].members) {
          members.emplace_back(m + copy * ranks);
        }
        if (together && copy + 1 < copies) continue;
        ids[g].resize(together ? copies : copy + 1, graph.groups.Add(role, members));
        members.clear();
      }
    }
    for (std::size_t copy = 0; copy < copies; ++copy) {
      for (std::size_t r = 0; r < ranks; ++r) {
        graph::Binding b;
        b.program = ProgramId(r);
        b.job = JobId(std::size_t{0});
        b.logical_rank = static_cast<std::uint32_t>(r + copy * ranks);
        b.more_groups = static_cast<std::uint32_t>(graph.more_groups.size());
        std::vector<GroupId> own(slot_of_[r].size());
        for (const auto& [group, slot] : slot_of_[r]) own[slot] = ids[group][copy];
        graph.more_groups.insert(graph.more_groups.end(), own.begin(), own.end());
        graph.bindings.push_back(b);
      }
    }
    if (copies == 1) return;
    assumed_.insert(fmt::format(
        "{} copies of the traced job: each rank's threads and kernels as traced, with the work of "
        "its own replica; {}; collectives keep the size of their buffers, shards' work too",
        copies,
        joined && kept ? "data-parallel groups are joined across copies, others are not"
        : joined       ? "all groups are joined across copies"
                       : "no group is data-parallel, so that copies never meet"));
  }

  std::vector<PyTorchRank> files_;
  const PyTorchOptions options_;
  const std::string& name_;
  std::vector<MetRank> ranks_;
  Meetings meetings_;
  PyTorchImport out_;
  std::set<std::string> assumed_, missing_;
  std::map<std::string, std::uint32_t> streams_;
  std::vector<std::map<std::uint32_t, std::uint32_t>> slot_of_;  // by rank: of a group
  std::int64_t start_ns_ = 0, end_ns_ = 0;
};

}  // namespace

Result<PyTorchImport> ImportPyTorch(std::vector<PyTorchRank> files, const PyTorchOptions& options,
                                    const std::string& name) {
  if (files.empty()) return InvalidInput("no profile was given");
  return Importer(std::move(files), options, name).Import();
}

}  // namespace orrery::workload
