#include "orrery/job/network_setup.h"

#include <algorithm>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/section.h"
#include "orrery/job/describe.h"
#include "orrery/job/reader.h"

namespace orrery::job {

Result<NetworkSetup> ReadNetworkSetup(const std::string& cluster, int nodes,
                                      std::string_view network, const std::vector<std::string>& set,
                                      const constants::Set* constants) {
  formats::Document document;
  document.sources.push_back("--cluster");
  formats::Node named;
  named.kind = formats::Node::Kind::kScalar;
  named.text = cluster;
  document.root.kind = formats::Node::Kind::kMap;
  document.root.fields.push_back({"cluster", 0, 0, std::move(named)});
  for (const std::string& assignment : set) {
    ORRERY_RETURN_IF_ERROR(ApplySet(assignment, &document));
  }
  const std::string_view valid[] = {"cluster", "collective", "nccl", "packet", "perturb"};
  for (const formats::Field& field : document.root.fields) {
    if (std::ranges::find(valid, field.key) == std::end(valid)) {
      return InvalidInput("{}: {}", document.Where(field.value),
                          UnknownName("section", Printable(field.key), valid));
    }
  }
  const Source source{&document, ""};
  Job job;
  job.network = network;
  ORRERY_ASSIGN_OR_RETURN(job.cluster, cluster::Read(source, document.root.Find("cluster"),
                                                     BuiltInData().clusters, &job.assumed));
  constexpr int kUnsaid = 4;
  const int stated = cluster::StatedNodes(job.cluster);
  job.cluster.nodes = nodes > 0 ? nodes : stated > 0 ? stated : kUnsaid;
  if (constants != nullptr) cluster::Calibrate(*constants, &job.cluster);
  ORRERY_RETURN_IF_ERROR(ReadPacket(source, document.root.Find("packet"), &job));
  ORRERY_RETURN_IF_ERROR(ReadCollective(source, document.root.Find("collective"), &job));
  ORRERY_RETURN_IF_ERROR(ReadNccl(source, document.root.Find("nccl"), &job));
  ORRERY_RETURN_IF_ERROR(ReadPerturbations(source, document.root.Find("perturb"), &job));
  ORRERY_ASSIGN_OR_RETURN(cluster::Cluster built, cluster::Cluster::Build(job.cluster));
  for (const LinkPerturbation& link : job.links) {
    ORRERY_RETURN_IF_ERROR(
        built.ChangeLinks(link.link, link.bandwidth, link.from, link.until).In(link.where));
  }
  ORRERY_ASSIGN_OR_RETURN(const collective::Environment environment,
                          collective::ParseEnvironment(job.nccl, job.known().nccl));
  return NetworkSetup{std::move(built),
                      environment,
                      job.pricing,
                      {.loggops = job.loggops, .packet = job.packet},
                      DescribeCluster(job.cluster),
                      std::move(job.assumed)};
}

}  // namespace orrery::job
