#include "orrery/workload/importers/storage/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_set>
#include <utility>

#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/workload/importers/rank_programs.h"
#include "orrery/workload/importers/storage/host_program.h"
#include "orrery/workload/importers/storage/shape_maker.h"

namespace orrery::workload {
namespace {

constexpr std::uint32_t kNoRequest = graph::Request::kNone;
using Lookup = DirectDriveSettings::Lookup;

constexpr std::int64_t kMostParts = 50'000'000;

enum Kind : std::size_t { kClient, kBalancer, kGateway, kMetadata, kCoordinator, kStore, kKinds };
constexpr std::array<std::string_view, kKinds> kKindNames = {"client",   "balancer",    "gateway",
                                                             "metadata", "coordinator", "store"};
enum RequestKind : std::uint32_t { kRead, kWrite, kMount };

// Who is which rank.
class Hosts {
 public:
  Hosts(std::uint32_t clients, const DirectDriveSettings& s) {
    const std::array<int, kKinds> count = {
        static_cast<int>(clients), s.balancers, s.gateways, s.metadata, s.coordinators, s.stores};
    std::vector<std::pair<double, std::pair<std::size_t, std::size_t>>> order;
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const auto n = static_cast<std::size_t>(count[kind]);
      ranks_[kind].resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(n);
        order.push_back({s.spread ? place : 0, {kind, i}});
      }
    }
    std::ranges::sort(order);
    for (const auto& [place, host] : order) ranks_[host.first][host.second] = size_++;
  }
  std::uint32_t size() const { return size_; }
  const std::vector<std::uint32_t>& of(Kind kind) const { return ranks_[kind]; }

 private:
  std::array<std::vector<std::uint32_t>, kKinds> ranks_;
  std::uint32_t size_ = 0;
};

// How often each slice was read: open addressing, one look at memory a read.
class Reads {
 public:
  // The number before this one.
  std::uint32_t Count(std::uint64_t slice) {
    if (2 * ++used_ > slots_.size()) Grow();
    Slot& slot = slots_[Find(slice)];
    used_ -= slot.reads > 0 ? 1 : 0;
    slot.slice = slice;
    return slot.reads++;
  }

 private:
  struct Slot {
    std::uint64_t slice = 0;
    std::uint32_t reads = 0;  // 0: free
  };
  std::size_t Find(std::uint64_t slice) const {
    std::size_t at = slice & (slots_.size() - 1);
    while (slots_[at].reads > 0 && slots_[at].slice != slice) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void Grow() {
    std::vector<Slot> old(std::max<std::size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.reads > 0) slots_[Find(slot.slice)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

class Writer {
 public:
  Writer(const StorageLoad& load, const DirectDriveSettings& settings)
      : load_(load), s_(settings), hosts_(load.clients, settings), clients_(load.clients) {
    out_.services.ranks = hosts_.size();
    ops_.resize(hosts_.size(), 0);
    delays_.resize(hosts_.size(), 0);
    written_.resize(hosts_.size(), 0);
    const std::size_t lanes = s_.open ? 1 : static_cast<std::size_t>(s_.depth);
    for (Client& client : clients_) client.last.resize(lanes, kNoRequest);
  }

  Status Write() {
    out_.requests.kinds = {"read", "write"};
    out_.requests.served = kMount;
    if (s_.mount) out_.requests.kinds.emplace_back("mount");
    const std::size_t all = load_.requests.size() + (s_.mount ? load_.clients : 0);
    out_.requests.all.reserve(all);
    out_.services.all.reserve(all);
    for (std::uint32_t client = 0; s_.mount && client < load_.clients; ++client) Mount(client);
    for (const StorageRequest& r : load_.requests) ORRERY_RETURN_IF_ERROR(Request(r));
    return {};
  }

  StorageImport Take(const std::string& name) {
    graph::Graph& graph = out_.graph;
    AddWorld(name, hosts_.size(), &graph);
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const auto& ranks = hosts_.of(static_cast<Kind>(kind));
      if (ranks.empty()) continue;
      out_.requests.hosts.push_back({std::string(kKindNames[kind]), ranks});
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const std::string host = fmt::format("{} {}", kKindNames[kind], i);
        const std::uint32_t rank[] = {ranks[i]};
        AddRankProgram(HostProgram::Empty(graph.Intern(host)), {}, rank, &graph);
        graph.programs.back().name = host;
      }
    }
    for (const std::uint64_t count : ops_) out_.services.operations += count;
    return std::move(out_);
  }

 private:
  struct Client {
    std::vector<std::uint32_t> last;  // request, by lane
    std::uint32_t mount = kNoRequest;
    std::size_t made = 0;
  };
  struct Slice {
    std::uint64_t key = 0;
    std::uint32_t coordinator = 0;  // number and rank
    std::uint32_t rank = 0;
    std::size_t first = 0;  // the store of its first replica, of the coordinator's
  };

  Slice SliceOf(std::uint32_t disk, std::int64_t number) const {
    const std::uint64_t place = disk + static_cast<std::uint64_t>(number);
    const auto n = static_cast<std::uint64_t>(s_.coordinators);
    Slice slice;
    slice.key = HashCombine(disk, static_cast<std::uint64_t>(number));
    slice.coordinator = static_cast<std::uint32_t>(place % n);
    slice.rank = hosts_.of(kCoordinator)[slice.coordinator];
    slice.first = place / n % StoresOf(slice.coordinator);
    return slice;
  }
  // Coordinator c has the stores c, c + coordinators, …
  std::size_t StoresOf(std::uint32_t coordinator) const {
    return static_cast<std::size_t>(
        (s_.stores - static_cast<int>(coordinator) - 1) / s_.coordinators + 1);
  }
  std::uint32_t StoreRank(const Slice& slice, std::size_t replica) const {
    const std::size_t own = (slice.first + replica) % StoresOf(slice.coordinator);
    return hosts_.of(kStore)[slice.coordinator + own * static_cast<std::size_t>(s_.coordinators)];
  }

  // Adds a request of the shape that `key_` names, on the hosts from `first_host` on.
  void Add(graph::Request request, graph::Services::One one) {
    const auto [known, fresh] = shapes_.try_emplace(key_, out_.services.shapes.size());
    if (fresh) out_.services.shapes.push_back(ShapeMaker(s_).Make(key_));
    one.shape = static_cast<std::uint32_t>(known->second);
    const std::uint32_t* const hosts = &out_.services.hosts[one.first_host];
    request.rank = hosts[0];
    if (graph::DelayBefore(request, &delays_[request.rank]) > 0) ++ops_[request.rank];
    for (const graph::Shape::Node& node : out_.services.shapes[one.shape].nodes) {
      ++ops_[hosts[node.host]];
    }
    request.op = ops_[request.rank] - 1;
    out_.requests.all.push_back(request);
    out_.services.all.push_back(one);
  }
  graph::Services::One Begin(std::uint32_t client) {
    key_.clear();
    graph::Services::One one;
    one.first_host = static_cast<std::uint32_t>(out_.services.hosts.size());
    one.first_tag = next_tag_;
    out_.services.hosts.push_back(hosts_.of(kClient)[client]);
    return one;
  }

  void Mount(std::uint32_t client) {
    const graph::Services::One one = Begin(client);
    for (const Kind kind : {kBalancer, kGateway, kMetadata}) {
      out_.services.hosts.push_back(hosts_.of(kind)[client % hosts_.of(kind).size()]);
    }
    key_.push_back(ShapeMaker::kMount);
    ++next_tag_;
    Client& c = clients_[client];
    const auto number = static_cast<std::uint32_t>(out_.requests.all.size());
    c.mount = number;
    if (!s_.open) c.last.assign(c.last.size(), number);
    Add({.kind = kMount}, one);
  }

  Status Request(const StorageRequest& r) {
    Client& client = clients_[r.client];
    graph::Services::One one = Begin(r.client);
    graph::Request out;
    out.bytes = r.bytes;
    out.kind = r.write ? kWrite : kRead;
    std::uint32_t& lane = client.last[client.made++ % client.last.size()];
    if (s_.open) {
      out.begin = r.at;
      one.mount = client.mount;
    } else {
      out.after = std::exchange(lane, static_cast<std::uint32_t>(out_.requests.all.size()));
      if (out.after != kNoRequest) out.begin = s_.think;
    }
    const std::int64_t end = r.offset + std::max<std::int64_t>(1, r.bytes);
    for (std::int64_t number = r.offset / s_.slice; number * s_.slice < end; ++number) {
      const std::int64_t from = std::max(r.offset, number * s_.slice);
      const std::int64_t until = std::min(end, (number + 1) * s_.slice);
      const std::int64_t bytes = r.bytes == 0 ? 0 : until - from;
      if (next_tag_ >= kMostParts) {
        return InvalidInput(
            "the requests are more than {} pieces of slices: take fewer (storage.requests) or "
            "larger slices (storage.slice)",
            HumanCount(kMostParts));
      }
      ++next_tag_;
      const Slice slice = SliceOf(r.disk, number);
      r.write ? Write(slice, bytes) : Read(slice, r.client, bytes);
    }
    Add(out, one);
    return {};
  }

  void Read(const Slice& slice, std::uint32_t client, std::int64_t bytes) {
    const bool lookup =
        s_.lookup == Lookup::kAlways ||
        (s_.lookup == Lookup::kFirst && known_.insert(HashCombine(slice.key, client)).second);
    key_.push_back(lookup ? ShapeMaker::kLookupAndRead : ShapeMaker::kRead);
    key_.push_back(bytes);
    if (lookup) out_.services.hosts.push_back(slice.rank);
    const std::size_t replica = s_.replicas == 1 ? 0 : reads_.Count(slice.key) % Replicas();
    out_.services.hosts.push_back(StoreRank(slice, replica));
  }

  void Write(const Slice& slice, std::int64_t bytes) {
    key_.push_back(ShapeMaker::kWrite);
    key_.push_back(bytes);
    out_.services.hosts.push_back(slice.rank);
    for (std::size_t replica = 0; replica < Replicas(); ++replica) {
      const std::uint32_t store = StoreRank(slice, replica);
      out_.services.hosts.push_back(store);
      key_.push_back(Collections(store, bytes));
    }
  }

  // How often a store collects garbage behind this write: of what it has written, in the order of
  // the requests.
  std::int64_t Collections(std::uint32_t store, std::int64_t bytes) {
    if (s_.collect_after == 0) return 0;
    std::int64_t& since = written_[store];
    since += bytes;
    const std::int64_t times = since / s_.collect_after;
    since -= times * s_.collect_after;
    return times;
  }

  std::size_t Replicas() const { return static_cast<std::size_t>(s_.replicas); }

  const StorageLoad& load_;
  const DirectDriveSettings& s_;
  const Hosts hosts_;
  std::vector<Client> clients_;
  std::vector<std::uint32_t> ops_;     // written so far, by rank
  std::vector<SimTime> delays_;        // by rank
  std::vector<std::int64_t> written_;  // by rank, since the last collection
  Reads reads_;
  std::unordered_set<std::uint64_t> known_;  // slices, by client
  ShapeMaker::Key key_;                      // of the request under way
  std::map<ShapeMaker::Key, std::size_t> shapes_;
  std::int32_t next_tag_ = 0;
  StorageImport out_;
};

}  // namespace

Result<StorageImport> ImportStorage(const StorageLoad& load, const DirectDriveSettings& settings,
                                    const std::string& name) {
  Writer writer(load, settings);
  ORRERY_RETURN_IF_ERROR(writer.Write());
  return writer.Take(name);
}

}  // namespace orrery::workload
