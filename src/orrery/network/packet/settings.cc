#include "orrery/network/packet/settings.h"

#include <algorithm>
#include <bit>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/network/packet/packet.h"

namespace orrery::network::packet {
namespace {

// ATLAHS's 1 MiB a port; Tomahawk 4 has 1.8 MB a port of 400 Gb/s, Spectrum-4 1.3 MB.
constexpr std::int64_t kBufferPerPort = 1 << 20;
constexpr int kMostPaths = 256;

// Rate, round trip and BDP of the way between the first and the last GPU.
void Measure(const cluster::Cluster& cluster, Settings* s) {
  std::vector<LinkId> route;
  const DeviceId first(0), last(cluster.devices() - 1);
  cluster.Route(first, last, 0, &route);
  for (const LinkId id : route) {
    const cluster::Link& link = cluster.links()[id.index()];
    if (!cluster.direct() && cluster::IsLocal(link.kind)) continue;
    if (s->nic_Bps == 0) s->nic_Bps = link.bandwidth_Bps;
    s->base_rtt += 2 * link.latency + TransferTime(s->packet_bytes(), link.bandwidth_Bps) +
                   TransferTime(kControlBytes, link.bandwidth_Bps);
  }
  // One host: no packet will be sent; any rate does.
  if (s->nic_Bps == 0) s->nic_Bps = std::max<std::int64_t>(cluster.spec().nic_Bps, 1'000'000'000);
  s->bdp = static_cast<std::int64_t>(ToSeconds(s->base_rtt) * static_cast<double>(s->nic_Bps));
}

Result<Balance> FindBalance(std::string_view name) {
  std::vector<std::string_view> valid;
  for (std::size_t i = 0; i < LoadBalancers().size(); ++i) {
    if (LoadBalancers()[i].name == name) return static_cast<Balance>(i);
    valid.push_back(LoadBalancers()[i].name);
  }
  return InvalidInput("packet.load_balancing: {}",
                      UnknownName("load balancing", Printable(name), valid));
}

void SetEcn(const PacketParameters& p, Settings* s) {
  Thresholds t;
  if (s->control->ecn != nullptr) {
    t = s->control->ecn(static_cast<double>(s->nic_Bps), static_cast<double>(s->bdp));
  }
  s->ecn_min = p.ecn_min > 0 ? p.ecn_min : static_cast<std::int64_t>(t.min);
  s->ecn_max = p.ecn_max > 0 ? p.ecn_max : std::max(static_cast<std::int64_t>(t.max), s->ecn_min);
  s->ecn_most = p.ecn_most.value_or(s->control->ecn != nullptr ? t.most : 1.0);
  s->ecn = s->control->ecn != nullptr || p.ecn_min > 0 || p.ecn_max > 0;
}

// Whether the load balancing hears of each packet.
bool AsksForEach(Balance balance) { return balance == Balance::kReps || balance == Balance::kPlb; }

Status Check(const PacketParameters& p, const Settings& s) {
  if (s.pfc && s.trimming) {
    return InvalidInput(
        "packet: pfc and trimming exclude each other: with PFC nothing is lost that could be "
        "trimmed; turn one of them off");
  }
  if (!std::has_single_bit(static_cast<unsigned>(p.paths)) || p.paths > kMostPaths) {
    return InvalidInput("packet.paths: {} is not a power of two of at most {}", p.paths,
                        kMostPaths);
  }
  if (s.ecn && s.ecn_max < s.ecn_min) {
    return InvalidInput("packet.ecn_max: {} is less than ecn_min, {}", HumanBytes(s.ecn_max),
                        HumanBytes(s.ecn_min));
  }
  if (s.pfc_xoff > 0 && s.pfc_xon > s.pfc_xoff) {
    return InvalidInput("packet.pfc_xon: {} is more than pfc_xoff, {}", HumanBytes(s.pfc_xon),
                        HumanBytes(s.pfc_xoff));
  }
  if (s.queue > 0 && s.queue < s.packet_bytes()) {
    return InvalidInput("packet.queue: {} holds no packet; one has {} bytes", HumanBytes(s.queue),
                        s.packet_bytes());
  }
  const bool window = p.window > 0 || s.rate_window;
  const bool asks = AsksForEach(s.balance);
  if (s.ack_every == 0 && (!s.pfc || !s.control->only_marks || window || asks)) {
    return InvalidInput(
        "packet.ack_every: 0: '{}'{} needs acknowledgements; only none, dcqcn and dcqcn-mellanox "
        "do without, with pfc",
        s.control->name,
        !s.pfc   ? " without pfc"
        : window ? " with a window"
        : asks   ? " with load balancing that hears of each packet"
                 : "");
  }
  if (s.rate_window && (s.control->credit || p.window > 0)) {
    return InvalidInput("packet.rate_window: {} says already what may be under way",
                        s.control->credit ? s.control->name : "packet.window");
  }
  if (s.control->credit && !s.selective) {
    return InvalidInput("packet.recovery: {} repeats single packets; take selective-repeat",
                        s.control->name);
  }
  if (s.trimming && !s.selective) {
    return InvalidInput(
        "packet.recovery: trimming names the packets that are missing; take selective-repeat");
  }
  const bool reorders = s.balance == Balance::kSpray || s.balance == Balance::kAdaptive ||
                        s.balance == Balance::kReps;
  if (reorders && !s.selective) {
    return InvalidInput(
        "packet.recovery: go-back-n loses what comes out of order, and this load balancing "
        "reorders; take selective-repeat");
  }
  return {};
}

// A parameter that the control does not read would have no effect.
Status CheckParameters(const ControlParameters& p, const ControlInfo& control) {
  const std::pair<std::string_view, bool> given[] = {
      {"rate_ai", p.rate_ai_Bps.has_value()},
      {"rate_hai", p.rate_hai_Bps.has_value()},
      {"min_rate", p.min_rate_Bps.has_value()},
      {"gain", p.gain.has_value()},
      {"utilisation_target", p.utilisation_target.has_value()},
      {"fast_recovery", p.fast_recovery.has_value()},
      {"additive_stages", p.additive_stages.has_value()},
      {"clamp_target", p.clamp_target.has_value()},
      {"alpha_interval", p.alpha_interval > 0},
      {"decrease_interval", p.decrease_interval > 0},
      {"increase_interval", p.increase_interval > 0}};
  for (const auto& [name, is] : given) {
    if (!is || ReadsParameter(control, name)) continue;
    return InvalidInput("packet.{}: '{}' does not read it; it reads {}", name, control.name,
                        control.parameters.empty() ? "none" : control.parameters);
  }
  return {};
}

}  // namespace

Result<Settings> Resolve(const PacketParameters& p, const cluster::Cluster& cluster) {
  Settings s;
  ORRERY_ASSIGN_OR_RETURN(s.control, FindControl(p.congestion_control));
  const ControlInfo& control = *s.control;
  const std::string own = control.sprays ? "spray" : "ecmp";
  ORRERY_ASSIGN_OR_RETURN(s.balance,
                          FindBalance(p.load_balancing.empty() ? own : p.load_balancing));
  s.payload = cluster.spec().nic_mtu_bytes;
  s.header = cluster.spec().nic_header_bytes;
  Measure(cluster, &s);
  s.paths = p.paths;
  s.cut_through = p.cut_through;
  s.control_first = p.control_first;
  s.trimming = p.trimming.value_or(control.trimming && !p.pfc.value_or(false));
  s.pfc = p.pfc.value_or(control.pfc && !s.trimming);
  s.pfc_xoff = p.pfc_xoff;
  s.pfc_xon = p.pfc_xon > 0 ? p.pfc_xon : p.pfc_xoff;
  const double packets = s.packet_bytes(), bdp = static_cast<double>(s.bdp);
  const auto bytes = [&](double n_packets, double n_bdp) {
    return static_cast<std::int64_t>(n_packets * packets + n_bdp * bdp);
  };
  s.queue = p.queue;
  if (s.queue == 0 && !s.pfc) s.queue = bytes(control.queue_packets, control.queue_bdp);
  const std::int64_t room = 4 * s.bdp + 16 * std::int64_t{s.packet_bytes()};
  s.buffer_per_port =
      p.buffer_per_port > 0 ? p.buffer_per_port : std::max({kBufferPerPort, room, 4 * s.queue});
  s.buffer = p.buffer;
  SetEcn(p, &s);
  const bool reorders =
      s.balance != Balance::kEcmp && s.balance != Balance::kPlb && s.balance != Balance::kFlowlet;
  s.selective = control.selective || reorders || s.trimming;
  if (!p.recovery.empty()) s.selective = p.recovery == "selective-repeat";
  s.window = p.window > 0 ? p.window : bytes(control.window_packets, control.window_bdp);
  if (control.credit) s.window = std::max<std::int64_t>(s.window, s.packet_bytes());
  s.rate_window = !p.rate_window.empty() && p.rate_window != "none";
  s.rate_window_varies = p.rate_window == "varying";
  s.parameters = p.control;
  // With PFC and no window nobody needs to know what has arrived.
  const bool asks = AsksForEach(s.balance);
  const bool silent = control.only_marks && s.pfc && p.window == 0 && !s.rate_window && !asks;
  s.ack_every = p.ack_every.value_or(silent ? 0 : control.ack_every);
  // With PFC nothing is lost, but a window that shrinks may wait for an acknowledgement that its
  // receiver keeps back. Else well above what a full buffer delays.
  if (!s.pfc || p.rto > 0 || s.ack_every > 1) {
    s.rto = p.rto > 0 ? p.rto : std::max(kMillisecond, 8 * s.base_rtt);
  }
  if (s.ack_every == 0) s.rto = 0;
  s.flowlet_gap = p.flowlet_gap > 0 ? p.flowlet_gap : s.base_rtt;
  ORRERY_RETURN_IF_ERROR(Check(p, s));
  ORRERY_RETURN_IF_ERROR(CheckParameters(p.control, control));
  return s;
}

}  // namespace orrery::network::packet
