#include "orrery/workload/importers/storage/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "orrery/base/rng.h"
#include "orrery/base/text.h"
#include "orrery/workload/importers/storage/host_program.h"

namespace orrery::workload {
namespace {

using Op = HostProgram::Op;
constexpr Op kNone = HostProgram::kNone;
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

class Writer {
 public:
  Writer(const StorageLoad& load, const DirectDriveSettings& settings)
      : load_(load), s_(settings), hosts_(load.clients, settings), lanes_(load.clients) {
    for (std::uint32_t rank = 0; rank < hosts_.size(); ++rank) {
      programs_.emplace_back(rank, hosts_.size());
    }
    written_.resize(hosts_.size(), 0);
    for (auto& lane : lanes_) lane.last.resize(s_.open ? 1 : static_cast<std::size_t>(s_.depth));
  }

  Status Write() {
    out_.requests.kinds = {"read", "write"};
    out_.requests.served = kMount;
    if (s_.mount) out_.requests.kinds.emplace_back("mount");
    out_.requests.all.reserve(load_.requests.size() + load_.clients);
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
        std::move(programs_[ranks[i]]).Finish(fmt::format("{} {}", kKindNames[kind], i), &graph);
      }
    }
    return std::move(out_);
  }

 private:
  // What a client's requests wait for.
  struct Last {
    Op op = kNone;
    std::uint32_t request = graph::Request::kNone;
  };
  struct Client {
    std::vector<Last> last;  // by lane
    Op arrival = kNone;      // open loop: the latest time that was written
    SimTime at = 0;          // it
    Op mounted = kNone;
    std::size_t made = 0;
  };
  struct Slice {
    std::uint64_t key = 0;
    std::uint32_t coordinator = 0;  // number and rank
    std::uint32_t rank = 0;
    std::size_t first = 0;  // the store of its first replica, of the coordinator's
  };

  HostProgram& at(std::uint32_t rank) { return programs_[rank]; }

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

  void Mount(std::uint32_t client) {
    const auto turn = [&](Kind kind) { return hosts_.of(kind)[client % hosts_.of(kind).size()]; };
    const std::array<std::uint32_t, 4> way = {hosts_.of(kClient)[client], turn(kBalancer),
                                              turn(kGateway), turn(kMetadata)};
    const std::int32_t tag = next_tag_++;
    Op last = kNone;
    for (std::size_t i = 0; i + 1 < way.size(); ++i) {
      const Op sent = at(way[i]).Send(way[i + 1], s_.reply_size, tag, {last});
      if (i == 0) lanes_[client].mounted = sent;
      last = at(way[i + 1]).Receive(way[i], s_.reply_size, tag, {});
    }
    last = at(way.back()).Work(s_.lookup_time, {last});
    for (std::size_t i = way.size() - 1; i > 0; --i) {
      at(way[i]).Send(way[i - 1], s_.reply_size, tag, {last});
      last = at(way[i - 1])
                 .Receive(way[i], s_.reply_size, tag, {i == 1 ? lanes_[client].mounted : kNone});
    }
    Client& c = lanes_[client];
    c.mounted = at(way[0]).Done({last});
    const Last mounted{c.mounted, static_cast<std::uint32_t>(out_.requests.all.size())};
    out_.requests.all.push_back({.rank = way[0], .op = c.mounted, .kind = kMount});
    if (!s_.open) c.last.assign(c.last.size(), mounted);
  }

  Status Request(const StorageRequest& r) {
    Client& client = lanes_[r.client];
    HostProgram& own = at(hosts_.of(kClient)[r.client]);
    graph::Request out;
    out.rank = hosts_.of(kClient)[r.client];
    out.bytes = r.bytes;
    out.kind = r.write ? kWrite : kRead;
    Last& lane = client.last[client.made++ % client.last.size()];
    Op begin = kNone;
    if (s_.open) {
      begin = Arrival(r.at, &client, &own);
      out.begin = r.at;
    } else {
      begin = lane.op;
      out.after = lane.request;
      if (lane.request != graph::Request::kNone && s_.think > 0) {
        begin = own.Delay(s_.think, {begin});
        out.begin = s_.think;
      }
    }
    const Op mounted = s_.open ? client.mounted : kNone;
    parts_.clear();
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
      const Slice slice = SliceOf(r.disk, number);
      parts_.push_back(r.write ? Write(&own, slice, bytes, begin, mounted)
                               : Read(&own, slice, r.client, bytes, begin, mounted));
    }
    out.op = own.Done(parts_);
    if (!s_.open) lane = {out.op, static_cast<std::uint32_t>(out_.requests.all.size())};
    out_.requests.all.push_back(out);
    return {};
  }

  // The operation that is over at a time of an open loop; none at time 0.
  static Op Arrival(SimTime time, Client* client, HostProgram* own) {
    if (time > client->at) {
      client->arrival = own->Delay(time - client->at, {client->arrival});
      client->at = time;
    }
    return client->arrival;
  }

  // Both return the client's operation that ends the part.
  Op Read(HostProgram* own, const Slice& slice, std::uint32_t client, std::int64_t bytes, Op begin,
          Op mounted) {
    const std::int32_t tag = next_tag_++;
    Op asked = begin;
    const bool lookup =
        s_.lookup == Lookup::kAlways ||
        (s_.lookup == Lookup::kFirst && known_.insert(HashCombine(slice.key, client)).second);
    if (lookup) {
      HostProgram& coordinator = at(slice.rank);
      const Op sent = own->Send(slice.rank, s_.request_size, tag, {begin, mounted});
      const Op came = coordinator.Receive(own->rank(), s_.request_size, tag, {});
      const Op found = coordinator.Work(s_.lookup_time, {came});
      coordinator.Send(own->rank(), s_.reply_size, tag, {found});
      asked = own->Receive(slice.rank, s_.reply_size, tag, {sent});
      mounted = kNone;
    }
    const std::size_t replica = s_.replicas == 1 ? 0 : reads_[slice.key]++ % Replicas();
    HostProgram& store = at(StoreRank(slice, replica));
    const Op sent = own->Send(store.rank(), s_.request_size, tag, {asked, mounted});
    const Op came = store.Receive(own->rank(), s_.request_size, tag, {});
    const Op read = store.Work(s_.read_latency + TransferTime(bytes, s_.read_Bps), {came});
    store.Send(own->rank(), bytes, tag, {read});
    return own->Receive(store.rank(), bytes, tag, {sent});
  }

  Op Write(HostProgram* own, const Slice& slice, std::int64_t bytes, Op begin, Op mounted) {
    const std::int32_t tag = next_tag_++;
    HostProgram& coordinator = at(slice.rank);
    const Op sent = own->Send(slice.rank, bytes, tag, {begin, mounted});
    const Op came = coordinator.Receive(own->rank(), bytes, tag, {});
    const Op kept = coordinator.Work(TransferTime(bytes, s_.journal_Bps), {came});
    acknowledged_.clear();
    for (std::size_t replica = 0; replica < Replicas(); ++replica) {
      HostProgram& store = at(StoreRank(slice, replica));
      const Op copied = coordinator.Send(store.rank(), bytes, tag, {kept});
      const Op arrived = store.Receive(slice.rank, bytes, tag, {});
      const Op written =
          store.Work(s_.write_latency + TransferTime(bytes, s_.write_Bps), {arrived});
      store.Send(slice.rank, s_.request_size, tag, {written});
      Collect(&store, bytes, written);
      acknowledged_.push_back(coordinator.Receive(store.rank(), s_.request_size, tag, {copied}));
    }
    coordinator.Send(own->rank(), s_.reply_size, tag, acknowledged_);
    return own->Receive(slice.rank, s_.reply_size, tag, {sent});
  }

  // Garbage of what a store has written, in the order of the requests.
  void Collect(HostProgram* store, std::int64_t bytes, Op written) {
    if (s_.collect_after == 0) return;
    std::int64_t& since = written_[store->rank()];
    for (since += bytes; since >= s_.collect_after; since -= s_.collect_after) {
      written = store->Work(s_.collect_time, {written});
    }
  }

  std::size_t Replicas() const { return static_cast<std::size_t>(s_.replicas); }

  const StorageLoad& load_;
  const DirectDriveSettings& s_;
  const Hosts hosts_;
  std::vector<HostProgram> programs_;                       // by rank
  std::vector<Client> lanes_;                               // by client
  std::vector<std::int64_t> written_;                       // by rank, since the last collection
  std::unordered_map<std::uint64_t, std::uint32_t> reads_;  // by slice
  std::unordered_set<std::uint64_t> known_;                 // slices, by client
  std::vector<Op> parts_, acknowledged_;
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
