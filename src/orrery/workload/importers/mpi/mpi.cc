#include "orrery/workload/importers/mpi/mpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include "orrery/base/in_order.h"
#include "orrery/workload/importers/goal/goal.h"
#include "orrery/workload/importers/mpi/collectives.h"
#include "orrery/workload/importers/mpi/communicators.h"
#include "orrery/workload/importers/mpi/trace.h"

namespace orrery::workload {
namespace {

using Kind = formats::GoalSchedule::Kind;
using Op = ScheduleWriter::Op;
constexpr Op kNone = ScheduleWriter::kNone;

constexpr std::string_view kCollectiveNames[] = {
    "barrier",  "bcast",     "reduce",     "allreduce", "gather",    "gatherv",        "scatter",
    "scatterv", "allgather", "allgatherv", "alltoall",  "alltoallv", "reduce_scatter", "scan"};
static_assert(std::size(kCollectiveNames) == CollectiveChoices::kCollectives);

std::vector<Option> MakeOptions() {
  std::vector<Option> options = {
      {.name = "compute",
       .type = OptionType::kNumber,
       .fallback = "1",
       .max = 1e6,
       .doc = "Times the work between a program's calls: 0.5 is a processor twice as fast."},
      {.name = "combine",
       .type = OptionType::kBandwidth,
       .unit = "GB/s",
       .min = 1e-3,
       .doc = "How fast a rank combines vectors in a reduction; in no time when left out."},
      {.name = "library",
       .type = OptionType::kChoice,
       .fallback = "auto",
       .choices = "auto|mpich|openmpi",
       .doc = "Whose choice of algorithms, and whose MPI_ANY_SOURCE (-2 or -1); auto: MPICH where "
              "MPI_COMM_WORLD is 1140850688, else Open MPI."},
      {.name = "rank",
       .type = OptionType::kText,
       .fallback = "gpu",
       .doc = "What a rank is on a cluster: gpu, or node (a host's first GPU)."},
  };
  for (std::size_t i = 0; i < CollectiveChoices::kCollectives; ++i) {
    const auto call = static_cast<MpiCall>(static_cast<std::size_t>(MpiCall::kBarrier) + i);
    options.push_back({.name = kCollectiveNames[i],
                       .type = OptionType::kChoice,
                       .fallback = "auto",
                       .choices = AlgorithmNames(call),
                       .doc = "Its algorithm; auto: as the library chooses by ranks and size."});
  }
  return options;
}

// What all ranks share; none changes it during a pass.
struct Shared {
  MpiCommunicators communicators;
  CollectiveChoices choices;
  MpiLibrary library;
  double compute = 1;
  double combine_Bps = 0;           // 0: in no time
  std::set<std::uint32_t> any_tag;  // contexts with receives of any tag, as a pass found
};

// Numbers of tags. Of a communicator's messages with a tag, or of one of its collectives.
class Tags {
 public:
  static std::uint64_t KeyOf(std::uint32_t context, bool collective, std::int64_t number) {
    return std::uint64_t{context} << 33 | std::uint64_t{collective} << 32 |
           static_cast<std::uint32_t>(number);
  }
  std::uint32_t Of(std::uint64_t key) {
    const auto [at, fresh] = numbers_.try_emplace(key, static_cast<std::uint32_t>(keys_.size()));
    if (fresh) keys_.push_back(key);
    return at->second;
  }
  const std::vector<std::uint64_t>& keys() const { return keys_; }  // by number

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
  std::vector<std::uint64_t> keys_;
};

// A rank's operations, and what its calls tell of others'.
struct RankPart {
  Status status;
  formats::GoalSchedule schedule;  // tags by number in `tags`
  std::vector<std::uint64_t> tags;
  std::set<std::uint32_t> any_tag;
  std::vector<std::pair<std::size_t, std::size_t>> seen;  // RankHandles::TakeSeen
  std::set<std::string> notes;
  bool guessed = false;
};

class RankImport {
 public:
  RankImport(const Shared* shared, std::uint32_t rank)
      : s_(*shared),
        rank_(rank),
        builder_(rank),
        writer_(&builder_, Posting::kInSteps),
        handles_(&shared->communicators, rank) {
    builder_.BeginRank();
  }

  Status Add(const MpiRecord& r) {
    if (ended_ >= 0 && r.start_ns > ended_) Work(r.start_ns - ended_);
    if (r.end_ns >= 0) ended_ = r.end_ns;
    switch (r.call) {
      case MpiCall::kLocal:
        return {};
      case MpiCall::kTest:
        part_.notes.insert(
            "what MPI_Test found, or MPI_Probe, is not in the trace: nothing waits for it");
        return {};
      case MpiCall::kSend:
      case MpiCall::kRecv:
        return Message(r);
      case MpiCall::kSendInit:
      case MpiCall::kRecvInit:
        requests_[r.request] = {kNone, ++posted_, r};
        return {};
      case MpiCall::kSendrecv:
        return SendAndReceive(r);
      case MpiCall::kStart:
        return Start(r);
      case MpiCall::kWait:
      case MpiCall::kWaitOne:
        return Wait(r);
      default:
        return Collective(r);
    }
  }

  // What was read, or why that failed.
  RankPart Take(Status status) {
    part_.status = std::move(status);
    part_.guessed = handles_.guessed();
    part_.seen = handles_.TakeSeen();
    part_.tags = tags_.keys();
    if (!part_.status.ok()) return std::move(part_);
    Result<formats::GoalSchedule> schedule = builder_.Take(false);
    if (!schedule.ok()) {
      part_.status = schedule.status();
    } else {
      part_.schedule = *std::move(schedule);
    }
    return std::move(part_);
  }

 private:
  struct Request {
    Op op = kNone;
    std::uint64_t posted = 0;             // counts requests
    std::optional<MpiRecord> persistent;  // of MPI_Send_init and MPI_Recv_init
  };

  void Work(std::int64_t ns) {
    const double scaled = static_cast<double>(ns) * s_.compute + 0.5;
    constexpr double kMost = 4e18;
    const auto whole = static_cast<std::int64_t>(std::min(scaled, kMost));
    if (whole > 0) GoOn(After(builder_.Add(Kind::kCalc, whole)));
  }
  // The program's next call begins once `op` is over, or has started.
  void GoOn(Op op, bool started = false) {
    last_ = op;
    started_ = started;
  }
  // `op` begins once the program has come to it.
  Op After(Op op) {
    if (last_ != kNone) builder_.Require(op, last_, started_);
    return op;
  }

  Result<std::uint32_t> Peer(std::uint32_t comm, std::int64_t number, std::string_view what) const {
    const std::size_t size = s_.communicators.size_of(comm);
    if (number < 0 || number >= static_cast<std::int64_t>(size)) {
      return InvalidInput("{} {}: the communicator has {}", what, number, size);
    }
    if (comm == MpiCommunicators::kAlone) return rank_;
    const auto& members = s_.communicators.at(comm).members;
    return members.empty() ? static_cast<std::uint32_t>(number)
                           : members[static_cast<std::size_t>(number)];
  }
  std::int64_t AnySource() const { return s_.library == MpiLibrary::kMpich ? -2 : -1; }

  // kNone where the other end is MPI_PROC_NULL.
  Result<Op> Send(const MpiRecord& r, std::uint32_t comm) {
    if (r.dest == -1 || r.dest == -2) return kNone;
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t to, Peer(comm, r.dest, "destination"));
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t tag, Tag(comm, r.tag, false));
    return After(builder_.Add(Kind::kSend, r.bytes, to, tag));
  }
  Result<Op> Receive(const MpiRecord& r, std::uint32_t comm, std::int64_t bytes) {
    std::uint32_t from = formats::GoalSchedule::kAny;
    if (r.source == MpiRecord::kNobody) return kNone;
    if (r.source == -1 || r.source == -2 || r.source == MpiRecord::kAnySource) {
      if (r.source != AnySource() && r.source != MpiRecord::kAnySource) return kNone;
      if (comm != MpiCommunicators::kWorld && s_.communicators.size_of(comm) == 1) from = rank_;
    } else {
      ORRERY_ASSIGN_OR_RETURN(from, Peer(comm, r.source, "source"));
    }
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t tag, Tag(comm, r.source_tag, true));
    return After(builder_.Add(Kind::kRecv, bytes, from, tag));
  }
  Result<std::uint32_t> Tag(std::uint32_t comm, std::int64_t tag, bool receive) {
    const std::uint32_t context = s_.communicators.at(comm).context;
    constexpr std::int64_t kMostTag = INT32_MAX;
    if (receive && tag == -1) {
      part_.any_tag.insert(context);
    } else if (tag < 0 || tag > kMostTag) {
      return InvalidInput("tag {}: a tag is 0 to {}", tag, kMostTag);
    }
    return tags_.Of(Tags::KeyOf(context, false, s_.any_tag.contains(context) ? 0 : tag));
  }

  Status Message(const MpiRecord& r) {
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t comm, handles_.Find(r.comm));
    Op op = kNone;
    if (r.call == MpiCall::kSend || r.call == MpiCall::kSendInit) {
      ORRERY_ASSIGN_OR_RETURN(op, Send(r, comm));
    } else {
      ORRERY_ASSIGN_OR_RETURN(op, Receive(r, comm, r.received_bytes));
    }
    if (r.has_request) {
      Request& request = requests_[r.request];
      request.op = op;
      request.posted = ++posted_;
      // A send holds the processor before the program goes on; a receive takes no time.
      if (op != kNone && (r.call == MpiCall::kSend || r.call == MpiCall::kSendInit)) {
        GoOn(op, true);
      }
    } else if (op != kNone) {
      GoOn(op);
    }
    return {};
  }

  Status SendAndReceive(const MpiRecord& r) {
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t comm, handles_.Find(r.comm));
    ORRERY_ASSIGN_OR_RETURN(const Op sent, Send(r, comm));
    const bool replaces = r.name == "MPI_Sendrecv_replace";
    ORRERY_ASSIGN_OR_RETURN(const Op received,
                            Receive(r, comm, replaces ? r.bytes : r.received_bytes));
    Join({sent, received});
    return {};
  }

  // The program goes on once all of these are over.
  void Join(std::vector<Op> ops) {
    std::erase(ops, kNone);
    if (ops.empty()) return;
    const Op join = After(builder_.Add(Kind::kCalc, 0));
    for (const Op op : ops) builder_.Require(join, op);
    GoOn(join);
  }

  // The known ones of an array of requests, which lie 8 bytes apart where they are addresses, 4
  // where they are numbers. O(fewer of the array's and the rank's).
  std::vector<std::uint64_t> Addresses(const MpiRecord& r) const {
    if (!r.listed.empty()) {
      std::vector<std::uint64_t> known = r.listed;
      std::erase_if(known, [&](std::uint64_t request) { return !requests_.contains(request); });
      return known;
    }
    const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(r.requests, 0));
    const auto known = [&](std::uint64_t apart) {
      std::vector<std::uint64_t> addresses;
      if (n <= requests_.size()) {
        for (std::uint64_t i = 0; i < n; ++i) {
          const std::uint64_t address = r.request + i * apart;
          if (requests_.contains(address)) addresses.push_back(address);
        }
        return addresses;
      }
      for (const auto& [address, request] : requests_) {
        const std::uint64_t from = address - r.request;
        if (from % apart == 0 && from / apart < n) addresses.push_back(address);
      }
      std::ranges::sort(addresses);
      return addresses;
    };
    std::vector<std::uint64_t> wide = known(8);
    if (wide.size() == n || n < 2) return wide;
    std::vector<std::uint64_t> narrow = known(4);
    return narrow.size() > wide.size() ? narrow : wide;
  }

  Status Wait(const MpiRecord& r) {
    std::vector<std::uint64_t> addresses = Addresses(r);
    if (r.call == MpiCall::kWaitOne) {
      part_.notes.insert(
          "which request MPI_Waitany and MPI_Waitsome found is not in the trace: the oldest of "
          "theirs is taken");
      std::erase_if(addresses, [&](std::uint64_t a) { return requests_.at(a).op == kNone; });
      const auto oldest = std::ranges::min_element(
          addresses, {}, [&](std::uint64_t a) { return requests_.at(a).posted; });
      if (oldest == addresses.end()) return {};
      addresses = {*oldest};
    }
    std::vector<Op> ops;
    for (const std::uint64_t address : addresses) {
      Request& request = requests_.at(address);
      ops.push_back(request.op);
      request.op = kNone;
      if (!request.persistent) requests_.erase(address);
    }
    Join(std::move(ops));
    return {};
  }

  Status Start(const MpiRecord& r) {
    for (const std::uint64_t address : Addresses(r)) {
      Request& request = requests_.at(address);
      if (!request.persistent) {
        return InvalidInput("request {} is not one of MPI_Send_init or MPI_Recv_init", address);
      }
      ORRERY_RETURN_IF_ERROR(Message(MpiRecord(*request.persistent)));
    }
    return {};
  }

  Status Collective(const MpiRecord& r) {
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t comm, handles_.Find(r.comm));
    const bool makes = r.call < MpiCall::kBarrier;
    if (makes) handles_.Created(r.made);
    Op end = kNone;
    const std::size_t size = s_.communicators.size_of(comm);
    if (size > 1) {
      const Communicator& c = s_.communicators.at(comm);
      const MpiComm own = s_.communicators.Numbered(comm, r.comm, rank_);
      CollectiveRun run{{own.rank, own.size}, static_cast<int>(r.root)};
      if (r.root < 0 || r.root >= own.size) {
        return InvalidInput("root {}: the communicator has {}", r.root, size);
      }
      ORRERY_RETURN_IF_ERROR(SetSizes(r, own, &run));
      writer_.Begin(tags_.Of(Tags::KeyOf(c.context, true, turns_[comm]++)), last_, c.members,
                    started_);
      // Whoever makes a communicator agrees on a number first.
      constexpr std::int64_t kAgreement = 8;
      if (makes) run.bytes = run.elements = kAgreement;
      ORRERY_RETURN_IF_ERROR(s_.choices.Write(makes ? MpiCall::kAllreduce : r.call, run, &writer_));
      end = writer_.End();
    }
    if (!r.has_request) {
      if (end != kNone) GoOn(end);
      return {};
    }
    requests_[r.request] = {end, ++posted_, std::nullopt};
    return {};
  }

  static Status CheckCounts(const std::vector<std::int64_t>& list, const MpiComm& own,
                            const char* what) {
    if (static_cast<std::int64_t>(list.size()) == own.size) return {};
    return InvalidInput("{} {} counts for {} ranks", list.size(), what, own.size);
  }
  // `own`: the call's communicator.
  Status SetSizes(const MpiRecord& r, const MpiComm& own, CollectiveRun* run) const {
    const bool root = r.root == own.rank;
    run->elements = r.count;
    run->bytes = r.bytes;
    switch (r.call) {
      case MpiCall::kScatter:
        if (!root) run->bytes = r.received_bytes;
        break;
      case MpiCall::kGatherv:
        run->in = r.in;
        if (root) return CheckCounts(r.in, own, "received");
        break;
      case MpiCall::kScatterv:
        run->bytes = r.received_bytes;
        run->out = r.out;
        if (root) return CheckCounts(r.out, own, "sent");
        break;
      case MpiCall::kAllgather:
      case MpiCall::kAlltoall:
        run->bytes = std::max(r.bytes, r.received_bytes);  // MPI_IN_PLACE leaves one out
        break;
      case MpiCall::kAllgatherv:
        run->in = r.in;
        return CheckCounts(r.in, own, "received");
      case MpiCall::kAlltoallv:
        run->out = r.out;
        run->in = r.in;
        ORRERY_RETURN_IF_ERROR(CheckCounts(r.out, own, "sent"));
        return CheckCounts(r.in, own, "received");
      case MpiCall::kReduceScatter:
        if (r.name.ends_with("_block")) run->bytes *= own.size;
        break;
      default:
        break;
    }
    if (s_.combine_Bps > 0) {
      run->reduce_ns =
          static_cast<std::int64_t>(static_cast<double>(run->bytes) / s_.combine_Bps * 1e9 + 0.5);
    }
    return {};
  }

  const Shared& s_;
  std::uint32_t rank_;
  RankPart part_;
  Tags tags_;
  formats::GoalBuilder builder_;
  ScheduleWriter writer_;
  RankHandles handles_;
  Op last_ = kNone;       // what the program's next call begins after
  bool started_ = false;  // once it has started
  std::int64_t ended_ = MpiRecord::kUnknown;
  std::uint64_t posted_ = 0;
  std::unordered_map<std::uint64_t, Request> requests_;
  std::unordered_map<std::uint32_t, std::int64_t> turns_;  // collectives by communicator
};

// The calls that make communicators, of all ranks, and the library that the first one shows.
Result<MpiCommunicators> Survey(const std::vector<std::string>& names, const MpiText& text) {
  std::vector<std::vector<MpiCommunicators::Creation>> creations(names.size());
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    ORRERY_RETURN_IF_ERROR(text(rank, [&](std::string_view bytes) -> Status {
      MpiTraceReader reader(bytes, names[rank]);
      for (MpiRecord record;;) {
        ORRERY_ASSIGN_OR_RETURN(const bool more, reader.NextCreation(&record));
        if (!more) return {};
        record.name = {};  // of the text, which goes
        creations[rank].push_back({record});
      }
    }));
  }
  return MpiCommunicators::Make(std::move(creations), names);
}

// MPICH's MPI_COMM_WORLD is a constant: 0x44000000.
Result<MpiLibrary> LibraryOf(const std::vector<std::string>& names, const MpiText& text,
                             const std::string& said) {
  if (said != "auto") return said == "mpich" ? MpiLibrary::kMpich : MpiLibrary::kOpenMpi;
  MpiLibrary library = MpiLibrary::kOpenMpi;
  constexpr std::uint64_t kMpichWorld = 0x44000000;
  ORRERY_RETURN_IF_ERROR(text(0, [&](std::string_view bytes) -> Status {
    MpiTraceReader reader(bytes, names[0]);
    if (reader.dumpi()) return {};  // its handles are its own
    for (MpiRecord record;;) {
      ORRERY_ASSIGN_OR_RETURN(const bool more, reader.Next(&record));
      if (!more) return {};
      if (!record.has_comm || record.comm.size != static_cast<int>(names.size())) continue;
      if (record.comm.id == kMpichWorld) library = MpiLibrary::kMpich;
      return {};
    }
  }));
  return library;
}

RankPart ImportRank(std::uint32_t rank, const std::string& name, const MpiText& text,
                    const Shared& shared) {
  RankImport import(&shared, rank);
  return import.Take(text(rank, [&](std::string_view bytes) -> Status {
    MpiTraceReader reader(bytes, name);
    for (MpiRecord record;;) {
      ORRERY_ASSIGN_OR_RETURN(const bool more, reader.Next(&record));
      if (!more) return {};
      const Status added = import.Add(record);
      if (!added.ok()) {
        return Status(added).In(fmt::format("{}: {}", reader.Where(record.line), record.name));
      }
    }
  }));
}

// What a pass over all ranks has made.
struct Pass {
  GoalImporter importer;
  Tags tags;
  std::set<std::uint32_t> any_tag;
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  std::set<std::string> notes;
  bool guessed = false;

  void Add(RankPart part, std::uint32_t ranks) {
    any_tag.merge(part.any_tag);
    notes.merge(part.notes);
    seen.insert(seen.end(), part.seen.begin(), part.seen.end());
    guessed |= part.guessed;
    std::vector<std::uint32_t> numbers;
    for (const std::uint64_t key : part.tags) numbers.push_back(tags.Of(key));
    for (formats::GoalSchedule::Op& op : part.schedule.ops) {
      if (op.kind != Kind::kCalc) op.tag = numbers[op.tag];
    }
    importer.Add(part.schedule, ranks);
  }
};

// Ranks are read beside each other and added in their order, so that numbers of tags are the same
// for any threads.
Status ImportRanks(const std::vector<std::string>& names, const MpiText& text, const Shared& shared,
                   Pass* pass) {
  constexpr std::size_t kFew = 32;
  constexpr unsigned kMostThreads = 8;
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  const auto ranks = static_cast<std::uint32_t>(names.size());
  Status status;
  InOrder<RankPart>(
      names.size(), names.size() < kFew ? 0 : threads - 1,
      [&](std::size_t rank) {
        return ImportRank(static_cast<std::uint32_t>(rank), names[rank], text, shared);
      },
      [&](std::size_t, RankPart part) {
        status = std::move(part.status);
        if (status.ok()) pass->Add(std::move(part), ranks);
        return status.ok();
      });
  return status;
}

}  // namespace

const OptionTable& MpiOptions() {
  static const std::vector<Option> options = MakeOptions();
  static const OptionTable table{
      .path = "mpi", .doc = "How a trace of an MPI program runs.", .options = options};
  return table;
}

Result<MpiImport> ImportMpi(const std::vector<std::string>& names, const MpiText& text,
                            const formats::Section& options, const std::string& name) {
  std::array<std::string, CollectiveChoices::kCollectives> fixed;
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    const std::string choice = options.Text(kCollectiveNames[i]);
    if (choice != "auto") fixed[i] = choice;
  }
  ORRERY_ASSIGN_OR_RETURN(MpiCommunicators communicators, Survey(names, text));
  ORRERY_ASSIGN_OR_RETURN(const MpiLibrary library,
                          LibraryOf(names, text, options.Text("library")));
  Shared shared{std::move(communicators), CollectiveChoices(library, std::move(fixed)), library,
                options.Real("compute")};
  if (options.Has("combine")) shared.combine_Bps = static_cast<double>(options.Integer("combine"));
  MpiImport import;
  // A second pass where the first has learnt what it would have needed: which communicators have
  // receives of any tag, in which order handles are used.
  bool guessed = false;
  for (int number = 0; number < 2; ++number) {
    Pass pass;
    ORRERY_RETURN_IF_ERROR(ImportRanks(names, text, shared, &pass));
    const bool differ = pass.any_tag != shared.any_tag;
    shared.any_tag = pass.any_tag;
    for (const auto& [first, second] : pass.seen) shared.communicators.Saw(first, second);
    guessed = pass.guessed;
    if (number == 0 && (differ || (guessed && shared.communicators.saw_any()))) continue;
    import.graph = pass.importer.Take(name);
    import.warnings.assign(pass.notes.begin(), pass.notes.end());
    break;
  }
  import.assumed.push_back(
      fmt::format("collectives as {} chooses them (data/mpi/algorithms.csv; --set mpi.library, "
                  "mpi.allreduce=…)",
                  library == MpiLibrary::kMpich ? "MPICH" : "Open MPI"));
  if (shared.combine_Bps == 0) {
    import.assumed.push_back("reductions combine vectors in no time (--set mpi.combine=…)");
  }
  if (!shared.any_tag.empty()) {
    import.warnings.push_back(
        "communicators with receives of any tag: their messages meet in order, whatever their "
        "tags");
  }
  if (guessed && !shared.communicators.saw_any()) {
    import.warnings.push_back(
        "two communicators of equal size that no rank tells apart: the older one is taken first");
  }
  return import;
}

}  // namespace orrery::workload
