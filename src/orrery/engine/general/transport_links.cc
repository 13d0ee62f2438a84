// Communications as fluids over the cluster's links.
#include <algorithm>
#include <unordered_map>

#include "orrery/base/hash.h"
#include "orrery/engine/flow_grain.h"
#include "orrery/engine/general/transport.h"
#include "orrery/engine/message_paths.h"

namespace orrery::engine::general {
namespace {

class LinkFluidTransport final : public Transport {
 public:
  LinkFluidTransport(const TransportInputs& in, std::unique_ptr<network::Network> network)
      : in_(in), network_(std::move(network)), paths_(*in.inputs, network_.get()) {
    loop_.inputs = in_.inputs;
    loop_.options = in_.options;
    loop_.layout = in_.layout;
    loop_.prices = in_.prices;
    grain_ = std::make_unique<FlowGrain>(loop_, network_.get());
  }

  bool Join(SimTime now, std::uint32_t id, const Meeting& m, std::uint32_t, bool last) override {
    if (!last) return false;
    if (m.raw) {
      loads_.clear();
      batch_.assign(1, paths_.Of(m.members[0].rank, m.members[1].rank, m.bytes));
    } else {
      grain_->FluidsOf(BindingOf(m), m.price.cost, &batch_, &loads_);
    }
    if (pending_.size() <= id) pending_.resize(std::size_t{id} + 1, 0);
    pending_[id] = static_cast<std::uint32_t>(batch_.size());
    for (network::LinkFluid& fluid : batch_) fluid.id = NewFlight(id);
    network_->Start(now, batch_, loads_);
    return false;
  }
  SimTime next_time() override { return network_->next_time(); }
  SimTime AdvanceUntil(SimTime t, std::vector<Ended>* ended) override {
    done_.clear();
    const SimTime now = network_->AdvanceUntil(t, &done_);
    for (const network::Completion& c : done_) {
      const std::uint32_t id = meeting_of_[c.id];
      free_.push_back(c.id);
      if (--pending_[id] == 0) ended->push_back({id, kNobody});
    }
    // Which flight carried it says nothing of a meeting.
    std::sort(ended->begin(), ended->end(),
              [](const Ended& a, const Ended& b) { return a.meeting < b.meeting; });
    events_ += done_.size();
    return now;
  }
  Status status() const override { return network_->status(); }
  std::uint64_t events() const override { return events_; }
  std::vector<network::PortStatistics> statistics() const override {
    const auto s = network_->statistics();
    return {s.begin(), s.end()};
  }
  network::UseLog* use_log() override { return network_->use_log(); }

 private:
  const FlowGrain::Binding& BindingOf(const Meeting& m) {
    Hasher key;
    key.Add(m.price.plan).Add(m.group);
    if (m.group == kNobody) key.Add(m.members[0].rank).Add(m.members[1].rank);
    const auto [it, fresh] = bindings_.try_emplace(key.value());
    if (!fresh) return it->second;
    std::vector<DeviceId> devices;
    for (const Participant& p : m.members) {
      devices.push_back(in_.inputs->placement->device[p.rank]);
    }
    it->second = grain_->MakeBinding(in_.prices->plan(m.price.plan), devices);
    return it->second;
  }
  network::FlightId NewFlight(std::uint32_t meeting) {
    if (free_.empty()) {
      free_.push_back(static_cast<network::FlightId>(meeting_of_.size()));
      meeting_of_.push_back(0);
    }
    const network::FlightId id = free_.back();
    free_.pop_back();
    meeting_of_[id] = meeting;
    return id;
  }

  const TransportInputs in_;
  std::unique_ptr<network::Network> network_;
  MessagePaths paths_;
  LoopInputs loop_;
  std::unique_ptr<FlowGrain> grain_;
  std::unordered_map<std::uint64_t, FlowGrain::Binding> bindings_;  // by plan and members
  std::vector<std::uint32_t> pending_;                              // fluids, by meeting
  std::vector<std::uint32_t> meeting_of_;                           // by flight
  std::vector<network::FlightId> free_;
  std::vector<network::LinkFluid> batch_;
  std::vector<network::LinkLoad> loads_;
  std::vector<network::Completion> done_;
  std::uint64_t events_ = 0;
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeLinkFluidTransport(const TransportInputs& in) {
  ORRERY_ASSIGN_OR_RETURN(auto network, SetUpFluidLinks(*in.inputs));
  if (in.options->link_steps > 0) {
    network->KeepUseLog(static_cast<std::size_t>(in.options->link_steps));
  }
  return std::unique_ptr<Transport>(new LinkFluidTransport(in, std::move(network)));
}

}  // namespace orrery::engine::general
