#include "orrery/engine/general/transport.h"

#include <algorithm>
#include <array>

#include "orrery/network/connections.h"

namespace orrery::engine::general {
namespace {

// One fluid over the members' ports.
class FluidTransport final : public Transport {
 public:
  FluidTransport(const TransportInputs& in, std::unique_ptr<network::Network> network)
      : in_(in), network_(std::move(network)) {}

  bool Join(SimTime now, std::uint32_t id, const Meeting& m, std::uint32_t, bool last) override {
    if (!last) return false;
    loads_.clear();
    network::Fluid fluid;
    fluid.id = id;
    if (m.raw) {
      AddMessage(m, &fluid);
    } else {
      fluid.fixed = m.price.cost.fixed;
      fluid.transfer = m.price.cost.transfer;
      const collective::PortBytes& b = m.price.cost.member;
      for (std::size_t i = 0; i < m.members.size(); ++i) {
        const bool out = m.group != kNobody || i == 0, into = m.group != kNobody || i == 1;
        AddLoads(m.members[i].rank, out ? b.nvlink_out : 0, into ? b.nvlink_in : 0,
                 out ? b.nic_out : 0, into ? b.nic_in : 0);
      }
    }
    fluid.loads = static_cast<std::uint32_t>(loads_.size());
    if (m.raw && !IsNext(now, m, fluid)) return false;
    network_->Start(now, {&fluid, 1}, loads_);
    return false;
  }
  SimTime next_time() override { return network_->next_time(); }
  SimTime AdvanceUntil(SimTime t, std::vector<Ended>* ended) override {
    done_.clear();
    const SimTime now = network_->AdvanceUntil(t, &done_);
    for (const network::Completion& c : done_) {
      ended->push_back({c.id, kNobody});
      StartNext(now, c.id);
    }
    events_ += done_.size();
    return now;
  }
  std::uint64_t events() const override { return events_; }
  std::vector<network::PortStatistics> statistics() const override {
    const auto s = network_->statistics();
    return {s.begin(), s.end()};
  }

 private:
  // As long as its path takes it alone; its bytes load the ports of both ends.
  void AddMessage(const Meeting& m, network::Fluid* fluid) {
    const cluster::Cluster& cluster = *in_.inputs->cluster;
    const DeviceId from = in_.inputs->placement->device[m.members[0].rank];
    const DeviceId to = in_.inputs->placement->device[m.members[1].rank];
    if (from == to) return;
    const SimTime whole = network::Uncontended(
        cluster, {.from = from, .to = to, .bytes = m.bytes, .creator = 0, .salt = 0});
    const SimTime nothing = network::Uncontended(
        cluster, {.from = from, .to = to, .bytes = 0, .creator = 0, .salt = 0});
    fluid->fixed = nothing;
    fluid->transfer = whole - nothing;
    const bool near = cluster.nvlink_domain(from) == cluster.nvlink_domain(to);
    AddLoads(m.members[0].rank, near ? m.bytes : 0, 0, near ? 0 : m.bytes, 0);
    AddLoads(m.members[1].rank, 0, near ? m.bytes : 0, 0, near ? 0 : m.bytes);
  }
  void AddLoads(std::uint32_t rank, std::int64_t nvlink_out, std::int64_t nvlink_in,
                std::int64_t nic_out, std::int64_t nic_in) {
    const SimRank& r = in_.layout->ranks[rank];
    if (nvlink_out > 0) loads_.push_back({r.nvlink_port, 1, nvlink_out});
    if (nvlink_in > 0) loads_.push_back({r.nvlink_port + 1, 1, nvlink_in});
    if (nic_out > 0) loads_.push_back({r.nic_port, 1, nic_out});
    if (nic_in > 0) loads_.push_back({r.nic_port + 1, 1, nic_in});
  }

  // Raw messages of a pair of ranks go in order: one waits for those before it, while what it takes
  // before its bytes goes on.
  bool IsNext(SimTime now, const Meeting& m, const network::Fluid& fluid) {
    order_.Add(network::ConnectionOf(m.members[0].rank, m.members[1].rank), fluid.id);
    if (order_.MayEnter(fluid.id)) return true;
    if (held_.size() <= fluid.id) held_.resize(std::size_t{fluid.id} + 1);
    Held& held = held_[fluid.id];
    held.fluid = fluid;
    held.posted = now;
    std::ranges::copy(loads_, held.loads.begin());
    return false;
  }
  void StartNext(SimTime now, std::uint32_t id) {
    order_.Leave(id, now);
    for (network::FlightId next = 0; order_.TakeFreed(&next);) {
      Held& held = held_[next];
      held.fluid.fixed = std::max<SimTime>(held.posted + held.fluid.fixed - now, 0);
      network_->Start(now, {&held.fluid, 1}, {held.loads.data(), held.fluid.loads});
    }
  }

  struct Held {
    network::Fluid fluid;
    SimTime posted = 0;
    std::array<network::PortLoad, 2> loads;  // of its sender and its receiver
  };
  const TransportInputs in_;
  std::unique_ptr<network::Network> network_;
  network::Connections order_;
  std::vector<Held> held_;  // by meeting
  std::vector<network::PortLoad> loads_;
  std::vector<network::Completion> done_;
  std::uint64_t events_ = 0;
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeFluidTransport(const TransportInputs& in) {
  if (in.layout->first_pcie_port != kNobody) {
    return InvalidInput(
        "network 'analytic': a graph of this kind on hosts whose GPUs share a PCIe tree is not "
        "served; use --network flow or links");
  }
  ORRERY_ASSIGN_OR_RETURN(auto network,
                          network::Create(in.inputs->network, in.inputs->network_parameters));
  ORRERY_RETURN_IF_ERROR(network->SetupPorts(in.layout->port_capacity_Bps));
  return std::unique_ptr<Transport>(new FluidTransport(in, std::move(network)));
}

Result<std::unique_ptr<Transport>> MakeTransport(const TransportInputs& in,
                                                 const network::BackendInfo& backend) {
  if (backend.link_fluids) return MakeLinkFluidTransport(in);
  if (backend.fluids) return MakeFluidTransport(in);
  return MakeChunkTransport(in);
}

}  // namespace orrery::engine::general
