// `packet` behind network.h: transfers between hosts are packets, those inside a host `links`'.
//
// Assumptions. What stays inside a host or an NVLink domain meets only its like: its links are a
// `links` of their own. One partition, whose switches may have several threads. Links that change
// during the run and reduction in switches are refused. Messages of a connection share one queue
// pair (hosts.h).
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/text.h"
#include "orrery/cluster/salts.h"
#include "orrery/network/backends.h"
#include "orrery/network/owners.h"
#include "orrery/network/packet/hosts.h"
#include "orrery/network/path_cache.h"

namespace orrery::network {
namespace {

using packet::Event;

constexpr std::uint32_t kUnknown = 0xFFFFFFFFu, kLocal = 0xFFFFFFFEu;
constexpr std::uint32_t kPatience = 6;  // timeouts in a row after which a deadlock is looked for

class PacketNetwork final : public Network {
 public:
  explicit PacketNetwork(PacketParameters parameters) : parameters_(std::move(parameters)) {}
  std::string_view name() const override { return "packet"; }

  Status SetupLinks(const cluster::Cluster& cluster,
                    std::span<const std::uint32_t> partition_of_domain,
                    std::uint32_t partition) override {
    if (!OnePartition(partition_of_domain)) {
      return InvalidInput("network packet runs in one partition (--threads 1)");
    }
    if (!cluster.link_changes().empty()) {
      return InvalidInput(
          "perturb.links: network packet knows no links that change during the run; slow ones for "
          "the whole run it does; take flow or links");
    }
    cluster_ = &cluster;
    ORRERY_ASSIGN_OR_RETURN(settings_, packet::Resolve(parameters_, cluster));
    ORRERY_RETURN_IF_ERROR(ways_.Setup(cluster));
    ORRERY_RETURN_IF_ERROR(fabric_.Setup(cluster, settings_, &ways_));
    hosts_.Setup(cluster, settings_, &fabric_, &ways_);
    local_ = MakeLinks();
    return local_->SetupLinks(cluster, partition_of_domain, partition);
  }

  void Start(SimTime now, std::span<const Transfer> transfers) override {
    now_ = now;
    // Queue pairs are numbered as they come, and draws are keyed by their numbers: by sender, so
    // that the order of a batch does not count.
    if (!std::ranges::is_sorted(transfers, {}, &Transfer::creator)) {
      batch_.assign(transfers.begin(), transfers.end());
      std::ranges::stable_sort(batch_, {}, &Transfer::creator);
      transfers = batch_;
    }
    for (const Transfer& t : transfers) {
      const std::uint32_t flow = FlowOf(t);
      if (flow == kUnknown) continue;
      if (flow == kLocal) {
        local_->Start(now, {&t, 1});
      } else if (hosts_.Numbers(flow, t.bytes)) {
        hosts_.Post(now, flow, t);
      } else if (status_.ok()) {
        status_ = InvalidInput(
            "network packet: more than 4,294,967,295 packets from {} to {}, which it cannot "
            "number; raise cluster.nic_mtu_bytes, or take links or flow",
            cluster_->vertex_name(t.from.value), cluster_->vertex_name(t.to.value));
      }
    }
  }

  SimTime next_time() const override {
    return std::min({fabric_.NextSwitches(), fabric_.host_events.NextTime(),
                     hosts_.timers.NextTime(), hosts_.NextLanding(), hosts_.done.NextTime(),
                     local_->next_time()});
  }

  SimTime AdvanceUntil(SimTime t, std::vector<Completion>* done) override {
    const std::size_t before = done->size();
    for (;;) {
      const SimTime next = next_time();
      if (next > t || next == kNever) break;
      if (next > now_ && done->size() > before) return now_;
      now_ = next;
      if (fabric_.NextSwitches() == next) {
        fabric_.RunSwitches(next);
      } else if (fabric_.host_events.NextTime() == next) {
        const Event event = fabric_.host_events.Top();
        fabric_.host_events.Pop();
        TakeTurn(event, t);
      } else if (hosts_.timers.NextTime() == next) {
        const Event timer = hosts_.timers.Top();
        hosts_.timers.Pop();
        TakeTimer(timer);
      } else if (hosts_.NextLanding() == next) {
        hosts_.TakeLanding();
      } else if (hosts_.done.NextTime() == next) {
        done->push_back({now_, hosts_.done.Top().id});
        hosts_.done.Pop();
      } else {
        local_->AdvanceUntil(next, done);
      }
    }
    if (done->size() == before) now_ = std::max(now_, t);
    return now_;
  }

  void TakeRemote(std::vector<RemoteHop>*) override {}
  void Deliver(const RemoteHop&) override { ORRERY_CHECK(false, "packet has one partition"); }
  SimTime lookahead() const override { return kNever; }

  std::span<const PortStatistics> statistics() override {
    End();
    statistics_.clear();
    for (const packet::Port& port : fabric_.ports()) statistics_.push_back(port.use);
    const auto inside = local_->statistics();
    for (std::size_t l = 0; l < inside.size(); ++l) {
      statistics_[l].bytes += inside[l].bytes;
      statistics_[l].busy += inside[l].busy;
    }
    return statistics_;
  }

  void KeepUseLog(std::size_t steps) override {
    fabric_.log() = UseLog(cluster_->links().size(), steps);
    local_->KeepUseLog(steps);
  }
  UseLog* use_log() override {
    if (local_->use_log()->on()) {
      fabric_.log().Merge(std::move(*local_->use_log()));
      local_->KeepUseLog(0);
    }
    return &fabric_.log();
  }
  void KeepQueueLog(std::size_t steps) override {
    fabric_.queues() = QueueLog(cluster_->links().size(), steps);
  }
  const PacketCounts* packet_counts() override {
    End();
    return &fabric_.Count(now_);
  }
  const QueueLog* queue_log() const override { return &fabric_.queues(); }

  // Lanes see into switches at any time, and logs are one for all links.
  int UseThreads(int threads, bool always) override {
    const bool one = cluster_->direct() || hosts_.has_lanes() || fabric_.log().on() ||
                     local_->use_log()->on() || fabric_.queues().on();
    if (one || threads < 2) return 1;
    fabric_.UseThreads(threads, always);
    return threads;
  }

  Status status() const override {
    if (!status_.ok()) return status_;
    if (hosts_.unfinished() > 0 && next_time() == kNever) return Stuck();
    return {};
  }

 private:
  // How far each node has come when the caller stops depends on the order of work: before anything
  // is counted all go on to the same time.
  void End() {
    if (ended_) return;
    ended_ = true;
    fabric_.Settle();
    const SimTime end = fabric_.EndAfter(now_);
    std::vector<Completion> more;
    while (next_time() < end) AdvanceUntil(end - 1, &more);
  }

  void TakeTimer(const Event& timer) {
    hosts_.OnTimer(timer.target, now_);
    if (hosts_.patience() < kPatience || !status_.ok()) return;
    fabric_.Settle();
    if (!fabric_.PauseCycle().empty()) {
      status_ = Stuck();
      fabric_.switch_events.Clear();
      fabric_.host_events.Clear();
      hosts_.timers.Clear();
    }
  }

  // Nothing starts before `t`, unless something ends.
  void TakeTurn(const Event& event, SimTime t) {
    if (!fabric_.TakeWake(event)) return;
    const SimTime limit = std::min(t, local_->next_time());
    hosts_.Run(event.target, now_,
               hosts_.RunsAhead(event.target, now_, limit < kNever ? limit + 1 : kNever));
  }

  // The queue pair of the transfer's connection.
  std::uint32_t FlowOf(const Transfer& t) {
    const std::uint32_t known = connections_.Find(*cluster_, t.from, t.to, t.salt);
    if (known >= flow_of_.size()) flow_of_.resize(known + 1, kUnknown);
    std::uint32_t& flow = flow_of_[known];
    if (flow != kUnknown) return flow;
    if (cluster::InFabric(t.salt)) {
      if (status_.ok()) {
        status_ = InvalidInput(
            "network packet has no reduction in switches (CollNet); take links or flow, or "
            "nccl: {{NCCL_ALGO: Ring}}");
      }
      return kUnknown;
    }
    const auto fabric = [&](LinkId l) {
      return cluster_->direct() || !cluster::IsLocal(cluster_->links()[l.index()].kind);
    };
    const std::span<const LinkId> path = connections_.path(known);
    if (path.size() > packet::Paths::kMostHops) {
      if (status_.ok()) {
        status_ = InvalidInput(
            "network packet: a path of {} links from {} to {}; it counts up to {}: take links or "
            "flow, or a topology with shorter paths",
            path.size(), cluster_->vertex_name(t.from.value), cluster_->vertex_name(t.to.value),
            packet::Paths::kMostHops);
      }
      return kUnknown;
    }
    flow = std::ranges::any_of(path, fabric) ? hosts_.AddFlow(t.from, t.to, t.salt) : kLocal;
    return flow;
  }

  Status Stuck() const {
    const std::vector<std::uint32_t> cycle = fabric_.PauseCycle();
    if (cycle.empty()) {
      return Infeasible(
          "network packet: {} messages never end: packets of theirs are lost and no "
          "timer repeats them; give packet.rto",
          hosts_.unfinished());
    }
    std::string text;
    constexpr std::size_t kShown = 16;
    for (std::size_t i = 0; i < std::min(cycle.size(), kShown); ++i) {
      text += cluster_->link_name(LinkId(cycle[i])) + " waits for ";
    }
    text += cycle.size() > kShown ? "…" : cluster_->link_name(LinkId(cycle.front()));
    return Infeasible(
        "network packet: a PFC deadlock at {}: {} messages never end. Each link is "
        "paused by packets that wait for the next: {}",
        HumanTime(now_), hosts_.unfinished(), text);
  }

  PacketParameters parameters_;
  packet::Settings settings_;
  const cluster::Cluster* cluster_ = nullptr;
  SimTime now_ = 0;
  bool ended_ = false;
  PathCache connections_;
  std::vector<std::uint32_t> flow_of_;  // by connection
  packet::Paths ways_;
  packet::Fabric fabric_;
  packet::Hosts hosts_;
  std::unique_ptr<Network> local_;
  std::vector<Transfer> batch_;  // scratch
  Status status_;
  std::vector<PortStatistics> statistics_;
};

}  // namespace

std::unique_ptr<Network> MakePacket(const Parameters& parameters) {
  return std::make_unique<PacketNetwork>(parameters.packet);
}

}  // namespace orrery::network
