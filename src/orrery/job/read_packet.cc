// Reads the section `packet`: what network packet takes beside the cluster.
#include "orrery/base/text.h"
#include "orrery/formats/section.h"
#include "orrery/job/reader.h"
#include "orrery/network/options.h"

namespace orrery::job {

Status ReadPacket(const Source& source, const formats::Node* node, Job* job) {
  if (node == nullptr) return {};
  if (job->network != "packet") {
    return InvalidInput("{}: packet is for network: packet; this job runs on '{}'",
                        source.Where(*node), job->network);
  }
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, *node, network::PacketOptions()));
  network::PacketParameters& p = job->packet;
  p.congestion_control = section.Text("congestion_control");
  if (section.Has("load_balancing")) p.load_balancing = section.Text("load_balancing");
  p.paths = static_cast<int>(section.Integer("paths"));
  p.cut_through = section.Text("switching") == "cut-through";
  p.control_first = section.Bool("control_first");
  if (section.Has("pfc")) p.pfc = section.Bool("pfc");
  if (section.Has("trimming")) p.trimming = section.Bool("trimming");
  const auto integer = [&](std::string_view name, std::int64_t* value) {
    if (section.Has(name)) *value = section.Integer(name);
  };
  integer("buffer_per_port", &p.buffer_per_port);
  integer("pfc_xoff", &p.pfc_xoff);
  integer("pfc_xon", &p.pfc_xon);
  integer("queue", &p.queue);
  integer("ecn_min", &p.ecn_min);
  integer("ecn_max", &p.ecn_max);
  if (section.Has("ecn_most")) p.ecn_most = section.Real("ecn_most");
  if (section.Has("recovery")) p.recovery = section.Text("recovery");
  integer("rto", &p.rto);
  integer("window", &p.window);
  if (section.Has("ack_every")) p.ack_every = static_cast<int>(section.Integer("ack_every"));
  integer("flowlet_gap", &p.flowlet_gap);
  return {};
}

}  // namespace orrery::job
