#include "orrery/job/inspect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/cluster/survey.h"
#include "orrery/formats/tree.h"
#include "orrery/job/describe.h"
#include "orrery/job/job.h"
#include "orrery/job/reader.h"
#include "orrery/workload/families/config.h"

namespace orrery::job {

std::string Count(std::size_t n) { return HumanCount(static_cast<std::int64_t>(n)); }

namespace {

void AddModel(const workload::Model& m, Facts* facts) {
  facts->emplace_back("model", m.name);
  facts->emplace_back("parameters",
                      fmt::format("{:.2f}B ({})", static_cast<double>(m.parameters()) * 1e-9,
                                  HumanCount(m.parameters())));
  facts->emplace_back("shape",
                      fmt::format("{} layers, hidden {}, {} heads ({} key-value) of {}, "
                                  "feed-forward {}, vocabulary {}",
                                  m.layers, HumanCount(m.hidden), m.heads, m.kv_heads, m.head_dim,
                                  HumanCount(m.ffn_hidden), HumanCount(m.vocab)));
}

void AddCluster(const cluster::Spec& spec, bool sized, Facts* facts) {
  facts->emplace_back("cluster", sized ? DescribeCluster(spec) : spec.name);
  facts->emplace_back(
      "node",
      fmt::format("{} × {} ({} memory), {} NICs of {:.0f} Gb/s {}", spec.gpus_per_node,
                  spec.device.name, HumanBytes(spec.device.memory_bytes), spec.nics_per_node,
                  static_cast<double>(spec.nic_Bps) * 8e-9, cluster::Name(spec.fabric)));
  if (spec.peers_over_pcie()) {
    facts->emplace_back("peers", fmt::format("{} GPUs over PCIe, {:.0f} GB/s a GPU and direction",
                                             spec.gpus_per_nvlink_domain,
                                             static_cast<double>(spec.pcie_Bps) * 1e-9));
    if (!spec.pcie_tree.nvlinks.empty()) {
      facts->emplace_back("NVLink",
                          fmt::format("{} (GPUs and links), {:.0f} GB/s and direction of the GPU "
                                      "that has most",
                                      Printable(spec.pcie_tree.nvlinks, 200),
                                      static_cast<double>(spec.nvlink_Bps) * 1e-9));
    }
    for (const std::string& source : spec.sources) facts->emplace_back("source", source);
    return;
  }
  facts->emplace_back("NVLink", fmt::format("domains of {}, {:.0f} GB/s a GPU and direction",
                                            spec.gpus_per_nvlink_domain,
                                            static_cast<double>(spec.nvlink_Bps) * 1e-9));
  for (const std::string& source : spec.sources) facts->emplace_back("source", source);
}

// Which GPU is how far from its NIC, and from the next GPU: "PIX, PXB", each once.
void AddPcieTree(const cluster::Cluster& cluster, Facts* facts) {
  const cluster::PcieTree& tree = cluster.pcie_tree();
  if (!tree.any()) return;
  facts->emplace_back("PCIe tree", tree.text());
  const cluster::Spec& spec = cluster.spec();
  std::string nic, peer;
  const auto add = [](std::string_view what, std::string* list) {
    if (list->find(what) == std::string::npos)
      *list += (list->empty() ? "" : ", ") + std::string(what);
  };
  for (int g = 0; g < spec.gpus_per_node; ++g) {
    const DeviceId gpu(static_cast<std::size_t>(g));
    add(cluster::Name(cluster.nic_distance(gpu)), &nic);
    if (g == 0) continue;
    const DeviceId before(static_cast<std::size_t>(g - 1));
    add(cluster.nvlinks_between(before, gpu) > 0
            ? "NVLink"
            : cluster::Name(cluster.peer_distance(before, gpu)),
        &peer);
  }
  facts->emplace_back("GPU to its NIC", nic);
  if (!peer.empty()) {
    facts->emplace_back(
        "GPU to the next",
        peer + (cluster.peers_over_pcie() ? "; peers go over PCIe" : "; peers go over NVLink"));
  }
}

const Data& Known(const std::shared_ptr<const Data>& data) {
  return data != nullptr ? *data : BuiltInData();
}

}  // namespace

Result<Facts> JobFacts(const std::string& path, const std::shared_ptr<const Data>& data) {
  ORRERY_ASSIGN_OR_RETURN(const Job job, ReadJob(path, {.data = data}));
  Facts facts;
  for (const Workload& workload : job.workloads) {
    facts.emplace_back(job.workloads.size() > 1 ? "job " + workload.name : "job",
                       DescribeWorkload(workload));
    AddModel(workload.model, &facts);
    facts.emplace_back("framework", workload.framework);
  }
  AddCluster(job.cluster, true, &facts);
  facts.emplace_back("network", job.network);
  facts.emplace_back("configuration", fmt::format("{:016x}", job.config_hash));
  for (const std::string& line : job.assumed) facts.emplace_back("assumed", line);
  return facts;
}

Result<cluster::Cluster> InspectedCluster(const std::string& path, int nodes,
                                          const std::shared_ptr<const Data>& data) {
  constexpr int kUnsaid = 16;
  cluster::Spec spec;
  bool sized = false;
  if (!LooksLikeFile(path) && access(path.c_str(), R_OK) != 0) {
    ORRERY_ASSIGN_OR_RETURN(spec, Known(data).clusters.Find(Printable(path)));
    sized = spec.nodes > 1;
  } else {
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, cluster::kTopologyBytes));
    if (cluster::SniffTopology(text) != cluster::TopologyFile::kUnknown) {
      ORRERY_ASSIGN_OR_RETURN(const std::string preset, cluster::PresetOf(text, path));
      ORRERY_ASSIGN_OR_RETURN(spec, cluster::FindPreset(preset));
      spec.name = path;
      const Status status = cluster::ApplyTopology(text, path, &spec);
      if (!status.ok()) return status;
    } else {
      ORRERY_ASSIGN_OR_RETURN(const formats::Document document, formats::ReadDocument(path));
      std::vector<std::string> assumed;
      const std::string folder = FolderOf(path);
      if (document.root.Find("training") != nullptr || document.root.Find("jobs") != nullptr) {
        ORRERY_ASSIGN_OR_RETURN(Job job, ReadJob(path, {.data = data}));
        spec = std::move(job.cluster);
      } else {  // a definition, or a file with nothing but one
        const formats::Node* inner = document.root.Find("cluster");
        ORRERY_ASSIGN_OR_RETURN(spec, cluster::Read(Source{&document, folder},
                                                    inner != nullptr ? inner : &document.root,
                                                    Known(data).clusters, &assumed));
      }
    }
    sized = spec.nodes > 1 || spec.topology.name == "file";
  }
  if (nodes > 0) spec.nodes = nodes;
  if (nodes == 0 && !sized) {
    spec.nodes = kUnsaid;
    std::int64_t points = 1;
    for (const cluster::Dimension& d : spec.topology.dimensions) points *= d.size;
    const bool gpus = spec.topology.name == "astra-sim";
    if (points > 1) spec.nodes = static_cast<int>(gpus ? points / spec.gpus_per_node : points);
  }
  constexpr std::int64_t kMostNics = 1 << 18;  // half a minute
  if (const std::int64_t nics = std::int64_t{spec.nodes} * spec.nics_per_node; nics > kMostNics) {
    return InvalidInput(
        "nodes = {}: paths and cuts of {} NICs would be counted, {} are the most; --nodes takes "
        "part of the cluster",
        spec.nodes, HumanCount(nics), HumanCount(kMostNics));
  }
  return cluster::Cluster::Build(spec);
}

Facts ClusterFacts(const cluster::Cluster& cluster) {
  const cluster::Spec& spec = cluster.spec();
  const auto gigabits = [](std::int64_t bytes) {
    return fmt::format("{:.0f} Gb/s", static_cast<double>(bytes) * 8e-9);
  };
  Facts facts;
  AddCluster(spec, true, &facts);
  AddPcieTree(cluster, &facts);
  const cluster::Survey survey = cluster::SurveyOf(cluster);
  facts.emplace_back("topology", spec.topology.name.empty()
                                     ? (spec.rail_optimised ? "rail-optimised" : "fat-tree-2")
                                     : spec.topology.name);
  facts.emplace_back("routing", std::string(cluster::Name(spec.topology.routing)));
  facts.emplace_back("vertices",
                     fmt::format("{}: {} GPUs, {} switches of the network", Count(survey.vertices),
                                 Count(cluster.devices()), Count(cluster.switches())));
  for (const cluster::Survey::Kind& kind : survey.kinds) {
    std::string rate = gigabits(kind.most_Bps);
    if (kind.least_Bps != kind.most_Bps)
      rate = fmt::format("{} to {}", gigabits(kind.least_Bps), rate);
    facts.emplace_back(fmt::format("links, {}", cluster::Name(kind.kind)),
                       fmt::format("{} directions of {}", Count(kind.links), rate));
  }
  if (survey.bisection_Bps >= 0) {
    facts.emplace_back(
        "bisection",
        fmt::format("{}, {:.0f} % of what half of the hosts can send",
                    gigabits(survey.bisection_Bps),
                    100.0 * static_cast<double>(survey.bisection_Bps) /
                        static_cast<double>(std::max<std::int64_t>(1, survey.injection_Bps))));
  }
  facts.emplace_back("diameter",
                     fmt::format("{}{} links from end to end",
                                 survey.diameter_exact ? "" : "at least ", survey.diameter_links));
  facts.emplace_back("diversity", fmt::format("{} shortest paths from {} to {}", survey.far_paths,
                                              cluster.vertex_name(survey.far_from),
                                              cluster.vertex_name(survey.far_to)));
  return facts;
}

Result<Facts> ModelFacts(const std::string& path, const std::shared_ptr<const Data>& data) {
  std::vector<std::string> notes;
  ORRERY_ASSIGN_OR_RETURN(const workload::Model model,
                          workload::ReadConfig(path, Known(data).models.families(), &notes));
  Facts facts;
  AddModel(model, &facts);
  for (std::size_t i = 0; i < notes.size(); ++i) {
    facts.emplace_back(fmt::format("note {}", i + 1), std::move(notes[i]));
  }
  return facts;
}

Facts GoalFacts(const formats::GoalSchedule& schedule) {
  using Kind = formats::GoalSchedule::Kind;
  std::size_t sends = 0, receives = 0, wild = 0;
  std::int64_t bytes = 0, longest = 0;
  for (std::size_t i = 0; i < schedule.operations(); ++i) {
    const formats::GoalSchedule::Op& op = schedule.ops[i];
    if (op.kind == Kind::kSend) {
      ++sends;
      bytes += op.size;
      longest = std::max(longest, op.size);
    } else if (op.kind == Kind::kRecv) {
      ++receives;
      constexpr std::uint32_t kAny = formats::GoalSchedule::kAny;
      if (op.peer == kAny || op.tag == kAny) ++wild;
    }
  }
  return {
      {"ranks", Count(schedule.ranks())},
      {"operations",
       fmt::format("{} sends, {} receives ({} of any source or tag), {} calc", Count(sends),
                   Count(receives), Count(wild), Count(schedule.operations() - sends - receives))},
      {"dependencies", Count(schedule.edges.size())},
      {"sent", fmt::format("{}, the longest message {}", HumanBytes(bytes), HumanBytes(longest))},
      {"processors, interfaces", fmt::format("{}, {} a rank", schedule.cpus, schedule.nics)}};
}

Result<Facts> ResultFacts(std::string_view text, const std::string& name) {
  const formats::Limits limits{.bytes = 64 << 20, .depth = 64, .values = 5'000'000};
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, formats::ParseJson(text, name, limits));
  Facts facts;
  const auto add = [&](const formats::Node& node, std::string_view key) {
    const formats::Node* value = node.Find(key);
    if (value != nullptr && value->kind == formats::Node::Kind::kScalar) {
      facts.emplace_back(std::string(key), value->text);
    }
  };
  for (const char* key : {"schema", "description", "cluster", "ranks", "step_time_s",
                          "tokens_per_s", "model_tflops_per_gpu", "mfu"}) {
    add(document.root, key);
  }
  if (const formats::Node* jobs = document.root.Find("jobs")) {
    for (const formats::Node& job : jobs->items) {
      for (const char* key : {"name", "step_time_s"}) add(job, key);
    }
  }
  if (const formats::Node* simulation = document.root.Find("simulation")) {
    for (const char* key : {"version", "config_hash", "seed", "fingerprint"}) add(*simulation, key);
  }
  return facts;
}

}  // namespace orrery::job
