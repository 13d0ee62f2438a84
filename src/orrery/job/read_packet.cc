// Reads the section `packet`: what network packet takes beside the cluster.
#include <fmt/format.h>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/formats/section.h"
#include "orrery/job/ns3_config.h"
#include "orrery/job/reader.h"
#include "orrery/network/options.h"

namespace orrery::job {
namespace {

constexpr std::int64_t kLargestConfig = 1 << 20;

// Keys of the section, and below them those of the configuration that it names.
class Keys {
 public:
  Keys(const Section& own, const Section& config) : own_(own), config_(config) {}
  bool Has(std::string_view name) const { return own_.Has(name) || config_.Has(name); }
  const Section& Of(std::string_view name) const {
    return !own_.Has(name) && config_.Has(name) ? config_ : own_;
  }

  void Get(std::string_view name, std::string* value) const {
    if (Has(name)) *value = Of(name).Text(name);
  }
  void Get(std::string_view name, std::int64_t* value) const {
    if (Has(name)) *value = Of(name).Integer(name);
  }
  void Get(std::string_view name, std::optional<bool>* value) const {
    if (Has(name)) *value = Of(name).Bool(name);
  }
  void Get(std::string_view name, std::optional<int>* value) const {
    if (Has(name)) *value = static_cast<int>(Of(name).Integer(name));
  }
  void Get(std::string_view name, std::optional<double>* value) const {
    if (Has(name)) *value = Of(name).Real(name);
  }
  void GetRate(std::string_view name, std::optional<double>* value) const {
    if (Has(name)) *value = static_cast<double>(Of(name).Integer(name));
  }

 private:
  const Section& own_;
  const Section& config_;
};

void ReadControl(const Keys& keys, network::ControlParameters* p) {
  keys.GetRate("rate_ai", &p->rate_ai_Bps);
  keys.GetRate("rate_hai", &p->rate_hai_Bps);
  keys.GetRate("min_rate", &p->min_rate_Bps);
  keys.Get("gain", &p->gain);
  keys.Get("utilisation_target", &p->utilisation_target);
  keys.Get("fast_recovery", &p->fast_recovery);
  keys.Get("additive_stages", &p->additive_stages);
  keys.Get("clamp_target", &p->clamp_target);
  keys.Get("alpha_interval", &p->alpha_interval);
  keys.Get("decrease_interval", &p->decrease_interval);
  keys.Get("increase_interval", &p->increase_interval);
}

void ReadKeys(const Keys& keys, network::PacketParameters* p) {
  p->congestion_control = keys.Of("congestion_control").Text("congestion_control");
  keys.Get("load_balancing", &p->load_balancing);
  p->paths = static_cast<int>(keys.Of("paths").Integer("paths"));
  p->cut_through = keys.Of("switching").Text("switching") == "cut-through";
  p->control_first = keys.Of("control_first").Bool("control_first");
  keys.Get("pfc", &p->pfc);
  keys.Get("trimming", &p->trimming);
  keys.Get("buffer_per_port", &p->buffer_per_port);
  keys.Get("buffer", &p->buffer);
  keys.Get("pfc_xoff", &p->pfc_xoff);
  keys.Get("pfc_xon", &p->pfc_xon);
  keys.Get("queue", &p->queue);
  keys.Get("ecn_min", &p->ecn_min);
  keys.Get("ecn_max", &p->ecn_max);
  keys.Get("ecn_most", &p->ecn_most);
  keys.Get("recovery", &p->recovery);
  keys.Get("rto", &p->rto);
  keys.Get("window", &p->window);
  keys.Get("ack_every", &p->ack_every);
  keys.Get("flowlet_gap", &p->flowlet_gap);
  keys.Get("rate_window", &p->rate_window);
  ReadControl(keys, &p->control);
}

}  // namespace

Status ReadPacket(const Source& source, const formats::Node* node, Job* job) {
  if (node == nullptr) return {};
  if (job->network != "packet") {
    return InvalidInput("{}: packet is for network: packet; this job runs on '{}'",
                        source.Where(*node), job->network);
  }
  ORRERY_ASSIGN_OR_RETURN(const Section own,
                          Section::Read(*source.document, *node, network::PacketOptions()));
  if (!own.Has("config")) {
    ReadKeys(Keys(own, own), &job->packet);
    return {};
  }
  const std::string path = source.Path(own.Text("config"));
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestConfig));
  ORRERY_ASSIGN_OR_RETURN(const Ns3Config config,
                          ReadNs3Config(text, Printable(path), job->cluster.nic_Bps));
  ORRERY_ASSIGN_OR_RETURN(const Section keys, Section::Read(config.document, config.document.root,
                                                            network::PacketOptions()));
  ReadKeys(Keys(own, keys), &job->packet);
  if (config.payload_bytes > 0) {
    job->cluster.nic_mtu_bytes = static_cast<int>(config.payload_bytes);
    job->assumed.push_back(
        fmt::format("{}: packets of {} bytes", Printable(path), config.payload_bytes));
  }
  job->assumed.insert(job->assumed.end(), config.notes.begin(), config.notes.end());
  return {};
}

}  // namespace orrery::job
