
#include <array>

#include "orrery/engine/options.h"
#include "orrery/job/reader.h"
#include "orrery/network/network.h"

namespace orrery::job {
namespace {

using formats::Node;

Status CheckList(const Source& source, const Node& node, std::string_view name) {
  if (node.kind == Node::Kind::kList || node.kind == Node::Kind::kNull) return {};
  return InvalidInput("{}: {} takes a list of entries in braces", source.Where(node), name);
}

Status ReadRank(const Source& source, const Node& item, Job* job) {
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, item, engine::PerturbRankOptions()));
  if (!section.Has("rank")) {
    return InvalidInput("{}: perturb.ranks: an entry needs its rank", source.Where(item));
  }
  const std::int64_t rank = section.Integer("rank");
  if (static_cast<std::size_t>(rank) >= job->ranks()) {
    return InvalidInput("{}: there is no rank {}; the run has ranks 0 to {}", section.Where("rank"),
                        rank, job->ranks() - 1);
  }
  engine::RankPerturbation perturbation;
  perturbation.rank = RankId(static_cast<std::size_t>(rank));
  perturbation.speed = section.Real("speed");
  perturbation.delay = section.Integer("delay");
  for (const engine::RankPerturbation& other : job->engine.ranks) {
    if (other.rank == perturbation.rank) {
      return InvalidInput("{}: rank {} stands here twice; keep one", section.Where("rank"), rank);
    }
  }
  job->engine.ranks.push_back(perturbation);
  return {};
}

Status ReadLink(const Source& source, const Node& item, Job* job) {
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, item, engine::PerturbLinkOptions()));
  if (!section.Has("link")) {
    return InvalidInput("{}: perturb.links: an entry needs its link", source.Where(item));
  }
  LinkPerturbation link;
  link.link = section.Text("link");
  link.bandwidth = section.Real("bandwidth");
  link.from = section.Integer("from");
  if (section.Has("until")) link.until = section.Integer("until");
  if (link.until <= link.from) {
    return InvalidInput("{}: until must come after from", section.Where("until"));
  }
  link.where = section.Where("link");
  job->links.push_back(std::move(link));
  return {};
}

// Names are checked against the cluster when it is built.
Status CheckLinks(const Source& source, const Node& links, const Job& job) {
  if (job.links.empty()) return {};
  for (const network::BackendInfo& backend : network::Backends()) {
    if (backend.name != job.network || backend.sees_links) continue;
    return InvalidInput(
        "{}: perturb.links: the network '{}' does not see single links; choose one that does "
        "(flow, links), lower cluster.nic_bandwidth instead, or slow ranks with perturb.ranks",
        source.Where(links), job.network);
  }
  return {};
}

}  // namespace

Status ReadPerturbations(const Source& source, const Node* node, Job* job) {
  if (node == nullptr) return {};
  constexpr std::array<std::string_view, 2> kLists = {"ranks", "links"};
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, *node, engine::PerturbOptions(), kLists));
  job->engine.jitter = section.Real("jitter");
  if (const Node* ranks = node->Find("ranks")) {
    ORRERY_RETURN_IF_ERROR(CheckList(source, *ranks, "perturb.ranks"));
    for (const Node& item : ranks->items) ORRERY_RETURN_IF_ERROR(ReadRank(source, item, job));
  }
  if (const Node* links = node->Find("links")) {
    ORRERY_RETURN_IF_ERROR(CheckList(source, *links, "perturb.links"));
    for (const Node& item : links->items) ORRERY_RETURN_IF_ERROR(ReadLink(source, item, job));
    ORRERY_RETURN_IF_ERROR(CheckLinks(source, *links, *job));
  }
  return {};
}

}  // namespace orrery::job
