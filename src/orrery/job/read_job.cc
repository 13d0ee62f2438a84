#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/file.h"
#include "orrery/base/hash.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/collective/choice/inert_variables.h"
#include "orrery/collective/choice/releases.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/formula/moye.h"
#include "orrery/constants/constants.h"
#include "orrery/engine/options.h"
#include "orrery/formats/section.h"
#include "orrery/job/apply_constants.h"
#include "orrery/job/campaign.h"
#include "orrery/job/inert_keys.h"
#include "orrery/job/job.h"
#include "orrery/job/plan_keys.h"
#include "orrery/job/read_slowdown.h"
#include "orrery/job/reader.h"
#include "orrery/job/tables.h"
#include "orrery/memory/allocator_conf.h"
#include "orrery/memory/options.h"
#include "orrery/network/network.h"
#include "orrery/network/options.h"

namespace orrery::job {

using formats::Document;
using formats::Field;
using formats::Node;

namespace {

bool IsTopKey(std::string_view key) {
  return std::ranges::find(TopKeys(), key) != TopKeys().end() ||
         FindOption(TopOptions().options, key) != nullptr;
}

const OptionTable* SectionAt(std::string_view path) {
  const std::vector<const OptionTable*> tables = Tables();
  const auto at = std::ranges::find(tables, path, &OptionTable::path);
  return at == tables.end() ? nullptr : *at;
}

// "parallel.tp", where a section has the key 'tp'; else empty.
std::string PlaceOf(std::string_view key) {
  for (const OptionTable* table : Tables()) {
    if (table->path.empty() || FindOption(table->options, key) == nullptr) continue;
    return FullName(*table, key);
  }
  return {};
}

// A key that stands in another section than its own: "nodes" of cluster is a key of the job.
Status CheckSectionKeys(const Source& source, const Field& section) {
  const OptionTable* table = SectionAt(section.key);
  if (table == nullptr || section.key == "model") return {};  // a model takes others' words as well
  for (const Field& field : section.value.fields) {
    if (FindOption(table->options, field.key) != nullptr ||
        SectionAt(fmt::format("{}.{}", section.key, field.key)) != nullptr) {
      continue;
    }
    const std::string where = source.document->Where(field);
    if (IsTopKey(field.key)) {
      return InvalidInput("{}: the key '{}' belongs to the top level, not into {}", where,
                          field.key, section.key);
    }
    const std::string place = PlaceOf(field.key);
    if (place.empty()) continue;  // the section's reader says what is valid
    return InvalidInput("{}: the key '{}' belongs into another section: {}", where, field.key,
                        place);
  }
  return {};
}

}  // namespace

// A key that stands at another level than its own: "tp" at the top is parallel.tp.
Status CheckTopKeys(const Source& source, const Node& root) {
  if (root.kind == Node::Kind::kNull) {
    return InvalidInput("{}: the file is empty; it needs model, cluster and training",
                        source.name());
  }
  if (root.kind != Node::Kind::kMap) {
    return InvalidInput("{}: a job file is made of keys with values, such as 'model: llama3-70b'",
                        source.Where(root));
  }
  const bool names_cluster =
      root.Find("preset") != nullptr || root.Find("nic_bandwidth") != nullptr;
  if (names_cluster && root.Find("model") == nullptr && root.Find("jobs") == nullptr) {
    return InvalidInput(
        "{}: a cluster definition, not a job file; a job file names it: 'cluster: {}'",
        source.name(), source.name());
  }
  for (const Field& field : root.fields) {
    if (IsTopKey(field.key)) {
      ORRERY_RETURN_IF_ERROR(CheckSectionKeys(source, field));
      continue;
    }
    const std::string where = source.document->Where(field);
    const std::string place = PlaceOf(field.key);
    if (!place.empty()) {
      return InvalidInput("{}: the key '{}' belongs into a section: {}", where, field.key, place);
    }
    std::vector<std::string_view> valid(TopKeys().begin(), TopKeys().end());
    for (const Option& option : TopOptions().options) valid.push_back(option.name);
    return InvalidInput("{}: {}", where, UnknownName("key", Printable(field.key), valid));
  }
  return {};
}

Status ReadAssume(const Source& source, const Node* node, std::vector<std::string>* assumed) {
  if (node == nullptr || node->kind == Node::Kind::kNull) return {};
  if (node->kind == Node::Kind::kScalar) {
    assumed->push_back(node->text);
    return {};
  }
  for (const Node& item : node->items) {
    if (item.kind != Node::Kind::kScalar) {
      return InvalidInput("{}: assume takes texts", source.Where(item));
    }
    assumed->push_back(item.text);
  }
  if (node->kind == Node::Kind::kMap) {
    return InvalidInput("{}: assume takes a list of texts", source.Where(*node));
  }
  return {};
}

namespace {

// The tables of the folders under `data`, on top of `data`; null: what is built in.
Result<std::shared_ptr<const Data>> ReadDataKey(const Source& source,
                                                std::shared_ptr<const Data> data) {
  const Node* node = source.document->root.Find("data");
  if (node == nullptr || node->kind == Node::Kind::kNull) return data;
  std::vector<const Node*> folders;
  for (const Node& item : node->items) folders.push_back(&item);
  if (node->kind == Node::Kind::kScalar) folders.push_back(node);
  const auto named = [](const Node* folder) { return folder->kind == Node::Kind::kScalar; };
  if (folders.empty() || !std::ranges::all_of(folders, named)) {
    return InvalidInput("{}: data takes a folder of tables, or a list of folders",
                        source.Where(*node));
  }
  for (const Node* folder : folders) {
    const Data& base = data != nullptr ? *data : BuiltInData();
    Result<std::shared_ptr<const Data>> more = ReadData(base, source.Path(folder->text));
    if (!more.ok()) return std::move(more).TakeStatus().In(source.Where(*folder));
    data = *std::move(more);
  }
  return data;
}

Status ReadLogGops(const Source& source, const Node* node, Job* job) {
  if (node == nullptr) return {};
  if (job->network != "loggops") {
    return InvalidInput("{}: loggops is for network: loggops; this job runs on '{}'",
                        source.Where(*node), job->network);
  }
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, *node, network::JobLogGopsOptions()));
  network::LogGopsParameters& loggops = job->loggops;
  if (section.Has("L")) loggops.L = section.Integer("L");
  if (section.Has("G")) loggops.G_as = network::Attoseconds(section.Real("G"));
  loggops.o = section.Integer("o");
  loggops.g = section.Integer("g");
  loggops.O_as = network::Attoseconds(section.Real("O"));
  return {};
}

Status ReadSimulation(const Source& source, const Node& root, const ReadOptions& options,
                      Job* job) {
  Section section(engine::SimulationOptions());
  if (const Node* node = root.Find("simulation")) {
    ORRERY_ASSIGN_OR_RETURN(section,
                            Section::Read(*source.document, *node, engine::SimulationOptions()));
  }
  if (section.Has("iterations")) {
    job->engine.iterations = static_cast<int>(section.Integer("iterations"));
  }
  ORRERY_ASSIGN_OR_RETURN(job->engine.link_steps, ReadLinkSteps(section, job->network));
  job->engine.seed =
      options.seed ? *options.seed : static_cast<std::uint64_t>(section.Integer("seed"));
  if (section.Has("slowdown")) {
    job->slowdown = source.Path(section.Text("slowdown"));
    auto learned = ReadSlowdown(job->slowdown);
    if (!learned.ok()) return std::move(learned).TakeStatus().In(section.Where("slowdown"));
    job->engine.slowdown = *std::move(learned);
  }
  job->engine.fold = options.fold;
  job->engine.threads = options.threads;
  return {};
}

Status ReadMemory(const Source& source, const Node& root, Job* job) {
  const Node* node = root.Find("memory");
  if (node == nullptr) return {};
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, *node, memory::MemoryOptions()));
  job->memory.timeline = section.Bool("timeline");
  if (!section.Has("allocator")) return {};
  job->allocator = section.Text("allocator");
  Result<memory::AllocatorSettings> settings = memory::ParseAllocatorConf(job->allocator);
  if (!settings.ok()) return std::move(settings).TakeStatus().In(section.Where("allocator"));
  job->memory.allocator = *settings;
  return {};
}

Status ReadNetwork(const Section& top, const ReadOptions& options, Job* job) {
  const std::string name = options.network ? *options.network : top.Text("network");
  const std::string where = options.network ? "--network" : top.Where("network");
  Result<std::unique_ptr<network::Network>> found = network::Create(Printable(name));
  if (!found.ok()) return std::move(found).TakeStatus().In(where);
  job->network = name;
  if (job->cluster.topology.routing == cluster::Routing::kAdaptive && !network::SeesLinks(name)) {
    return InvalidInput(
        "cluster.topology.routing: adaptive: the network '{}' does not see load; choose ecmp, "
        "static or rail-local, or network flow or links",
        name);
  }
  return {};
}

std::string Counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", HumanCount(count), what, count == 1 ? "" : "s");
}

// Kernels that no run on this device was compared with.
void SayTransfer(Job* job) {
  const cluster::DeviceSpec& device = job->cluster.device;
  if (device.transfer_spread <= 0) return;
  constexpr std::array<std::string_view, 4> kNames = {"Volta", "Ampere", "Hopper", "Blackwell"};
  job->assumed.push_back(
      fmt::format("kernels of {} are priced as on {}, at shares of its own peaks: no run on it was "
                  "measured, and others were off by half or more, so the interval is wide",
                  device.name, kNames[static_cast<std::size_t>(device.arch)]));
}

// Enough hosts for all ranks, or the ones given if they suffice.
Status SizeCluster(const Source& source, const Section& top, Job* job) {
  const auto per_node = static_cast<std::int64_t>(job->cluster.gpus_per_node);
  for (Workload& w : job->workloads) {
    w.plan.parallel.ranks_per_host = std::min(job->cluster.gpus_per_node, w.plan.ranks());
    w.plan.parallel.nvlink_ranks = job->cluster.gpus_per_nvlink_domain;
  }
  const auto ranks = static_cast<std::int64_t>(job->gpus());
  const std::int64_t needed = (ranks + per_node - 1) / per_node;
  const std::string& topology = job->cluster.topology.name;
  const bool fixed = !job->cluster.topology.file.empty() &&
                     (topology == "file" || topology == "astra-sim") &&
                     needed <= job->cluster.nodes;
  if (!top.Has("nodes") && fixed) {
    job->assumed.push_back(fmt::format("nodes: {}, what {} holds", HumanCount(job->cluster.nodes),
                                       Printable(job->cluster.topology.file, 80)));
    return cluster::Validate(job->cluster).In(source.name());
  }
  if (!top.Has("nodes")) {
    job->cluster.nodes = static_cast<int>(needed);
    job->assumed.push_back(fmt::format("nodes: {}, what the plan's {} GPUs need",
                                       HumanCount(needed), HumanCount(ranks)));
    return cluster::Validate(job->cluster).In(source.name());
  }
  job->cluster.nodes = static_cast<int>(top.Integer("nodes"));
  if (needed > job->cluster.nodes) {
    const std::size_t jobs = std::max(job->workloads.size(), job->tenants.size());
    std::string sum = fmt::format("the {} jobs need", jobs);
    if (jobs == 1) {
      const workload::Plan& plan = job->workloads.front().plan;
      sum = fmt::format("the plan needs tp {} · pp {} · dp {}{} =", plan.parallel.tp,
                        plan.parallel.pp, plan.parallel.dp,
                        plan.parallel.cp > 1 ? fmt::format(" · cp {}", plan.parallel.cp) : "");
    }
    return InvalidInput(
        "{}: {} {} GPUs, but {} with {} each {} {}; use nodes: {} or a smaller plan",
        top.Where("nodes"), sum, HumanCount(ranks), Counted(job->cluster.nodes, "node"), per_node,
        job->cluster.nodes == 1 ? "has" : "have", HumanCount(per_node * job->cluster.nodes),
        needed);
  }
  if (ranks < per_node * job->cluster.nodes) {
    job->assumed.push_back(fmt::format("{} of the cluster's {} GPUs stay idle",
                                       HumanCount(per_node * job->cluster.nodes - ranks),
                                       HumanCount(per_node * job->cluster.nodes)));
  }
  return cluster::Validate(job->cluster).In(top.Where("nodes"));
}

Result<Job> ReadDocumentAsJob(const Document& document, const std::string& folder,
                              const ReadOptions& options) {
  const Source source{&document, folder};
  const Node& root = document.root;
  ORRERY_RETURN_IF_ERROR(CheckTopKeys(source, root));
  ORRERY_ASSIGN_OR_RETURN(const Section top,
                          Section::Read(document, root, TopOptions(), TopKeys()));
  Job job;
  job.source = source.name();
  ORRERY_ASSIGN_OR_RETURN(job.data, ReadDataKey(source, options.data));
  ORRERY_RETURN_IF_ERROR(ReadAssume(source, root.Find("assume"), &job.assumed));
  if (root.Find("cluster") == nullptr && root.Find("jobs") == nullptr &&
      root.Find("model") == nullptr) {
    return InvalidInput("{}: model is missing; is this a job file?", source.name());
  }
  if (const Node* jobs = root.Find("jobs")) {
    ORRERY_ASSIGN_OR_RETURN(job.cluster, cluster::Read(source, root.Find("cluster"),
                                                       job.known().clusters, &job.assumed));
    ORRERY_RETURN_IF_ERROR(ReadJobs(source, root, *jobs, options, &job));
  } else {
    // The model first: of several things missing it is the one a newcomer looks for.
    std::vector<std::string> ignored;
    ORRERY_RETURN_IF_ERROR(
        workload::ReadModel(source, root.Find("model"), job.known().models, &ignored).status());
    ORRERY_ASSIGN_OR_RETURN(job.cluster, cluster::Read(source, root.Find("cluster"),
                                                       job.known().clusters, &job.assumed));
    std::optional<std::size_t> gpus;
    if (top.Has("nodes")) {
      gpus = static_cast<std::size_t>(top.Integer("nodes")) *
             static_cast<std::size_t>(job.cluster.gpus_per_node);
    }
    ORRERY_ASSIGN_OR_RETURN(Workload workload, ReadWorkload(source, root, job.cluster.device, gpus,
                                                            job.known(), &job.assumed));
    job.workloads.push_back(std::move(workload));
  }
  ORRERY_RETURN_IF_ERROR(SizeCluster(source, top, &job));
  SayTransfer(&job);
  job.ignored = InertClusterKeys(root.Find("cluster"), root.Find("cost") != nullptr, job.cluster);
  job.measured_kernels = options.measured_kernels || top.Text("kernels") == "measured";
  ORRERY_RETURN_IF_ERROR(ReadNetwork(top, options, &job));
  ORRERY_RETURN_IF_ERROR(ReadLogGops(source, root.Find(network::JobLogGopsOptions().path), &job));
  ORRERY_RETURN_IF_ERROR(ReadPacket(source, root.Find(network::PacketOptions().path), &job));
  ORRERY_RETURN_IF_ERROR(ReadCollective(source, root.Find("collective"), &job));
  ORRERY_RETURN_IF_ERROR(ReadNccl(source, root.Find("nccl"), &job));
  ORRERY_RETURN_IF_ERROR(ReadSimulation(source, root, options, &job));
  ORRERY_RETURN_IF_ERROR(ReadMemory(source, root, &job));
  for (const Workload& workload : job.workloads) {
    job.memory.libraries.push_back(workload.libraries);
  }
  ORRERY_RETURN_IF_ERROR(ReadPerturbations(source, root.Find("perturb"), &job));
  ORRERY_RETURN_IF_ERROR(CheckJobs(source, root, &job));
  ORRERY_RETURN_IF_ERROR(ReadCampaign(source, root, &job));
  ApplyConstants(options.constants, &job);
  if (options.save_configuration) SaveConfiguration(&job);
  return job;
}

}  // namespace

void ApplyConstants(const constants::Set& constants, Job* job) {
  cluster::Calibrate(constants, &job->cluster);
  job->engine.rank_noise = constants[constants::kRankNoise];
  for (Workload& workload : job->workloads) {
    workload.plan.framework.host = workload::HostOf(workload.host, workload.plan, constants);
    if (workload.plan.batch.object_store) {
      workload.plan.batch.sample_read =
          RoundToPs(constants[constants::kSampleReadObjectStore] * static_cast<double>(kSecond));
    }
  }
}

Result<int> ReadLinkSteps(const Section& simulation, std::string_view network) {
  const std::int64_t steps = simulation.Integer("link_steps");
  if (steps % 2 != 0) {
    return InvalidInput("{}: link_steps takes an even number; {} is odd",
                        simulation.Where("link_steps"), steps);
  }
  if (steps > 0 && !network::SeesLinks(network)) {
    return InvalidInput(
        "{}: the network '{}' does not see single links; choose one that does (flow, links)",
        simulation.Where("link_steps"), network);
  }
  return static_cast<int>(steps);
}

Status ReadCollective(const Source& source, const Node* node, Job* job) {
  if (node == nullptr) return {};
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, *node, collective::CollectiveOptions()));
  if (section.Text("model") != "moye") {
    for (const char* key : {"otherwise", "setup"}) {
      if (section.Has(key)) {
        return InvalidInput("{}: only collective.model moye has it", section.Where(key));
      }
    }
    return {};
  }
  if (job->network != "analytic") {
    return InvalidInput(
        "{}: moye prices whole collectives, '{}' moves their chunks; take network analytic",
        section.Where("model"), job->network);
  }
  job->pricing.model = collective::PriceModel::kMoye;
  job->pricing.otherwise_orrery = section.Text("otherwise") == "orrery";
  job->pricing.setup = section.Integer("setup");
  job->assumed.push_back(
      fmt::format("collective.model: Moye's equations 2 to 5 with Table 5 (Tree LL128 on 4 x 8 "
                  "H800), here for {} "
                  "(docs/moye.md)",
                  job->cluster.device.name));
  if (!section.Has("setup")) {
    job->assumed.push_back("collective.setup: 0us (Moye's alpha is not printed for H800)");
  }
  return {};
}

namespace {

constexpr std::string_view kTunerFile = "NCCL_TUNER_CONFIG_FILE", kGraphFile = "NCCL_GRAPH_FILE";

// What the file holds is part of the job.
std::uint64_t HashOf(std::span<const collective::TunerRow> rows) {
  Hasher hash;
  for (const collective::TunerRow& row : rows) {
    hash.Add(row.collective.has_value())
        .Add(row.collective.value_or(graph::Collective::kAllReduce))
        .Add(row.min_bytes)
        .Add(row.max_bytes)
        .Add(row.name)
        .Add(row.protocol)
        .Add(row.channels)
        .Add(row.nodes)
        .Add(row.ranks)
        .Add(row.pipe_ops)
        .Add(row.registered);
  }
  return rows.empty() ? 0 : hash.value();
}

// Variables that choose a way which the cluster must have.
Status CheckWays(const Job& job, const collective::Environment& nccl) {
  const cluster::Spec& spec = job.cluster;
  const bool peers_off =
      std::ranges::find(job.nccl, std::pair<std::string, std::string>("NCCL_P2P_DISABLE", "1")) !=
      job.nccl.end();
  if (peers_off && spec.gpus_per_nvlink_domain > 1) {
    return InvalidInput(
        "NCCL_P2P_DISABLE: 1 sends through host memory what the GPUs of {} send each other, which "
        "is not built (but for GPUs that have no other way, as RTX 3090's, where that is what runs "
        "without the variable): leave it out",
        spec.name);
  }
  const bool tcp = spec.fabric == cluster::Fabric::kTcp;
  if (nccl.sockets && !tcp) {
    return InvalidInput(
        "NCCL_NET, NCCL_IB_DISABLE: NCCL's socket transport, but cluster.fabric is {}; set "
        "cluster.fabric: tcp, or leave them out",
        cluster::Name(spec.fabric));
  }
  if (nccl.verbs && tcp) {
    return InvalidInput(
        "NCCL_NET: IB, but cluster.fabric: tcp is NCCL's socket transport; leave one of them out");
  }
  if (nccl.peer_level && (spec.pcie_tree.peers || spec.peers_over_pcie())) {
    return InvalidInput(
        "NCCL_P2P_LEVEL: GPUs of {} meet over PCIe at NCCL's own level; others would send through "
        "host memory, which is not built: leave it out",
        spec.name);
  }
  if (nccl.tuner_plugin && nccl.tuner.empty()) {
    return InvalidInput(
        "NCCL_TUNER_PLUGIN: a plugin's code is not run; give its choices as "
        "NCCL_TUNER_CONFIG_FILE, or leave it out");
  }
  return {};
}

}  // namespace

Status ReadNccl(const Source& source, const Node* node, Job* job) {
  if (node != nullptr && node->kind != Node::Kind::kMap && node->kind != Node::Kind::kNull) {
    return InvalidInput("{}: nccl takes variables with values, such as NCCL_ALGO: Ring",
                        source.Where(*node));
  }
  if (node != nullptr) {
    for (const Field& field : node->fields) {
      if (field.value.kind != Node::Kind::kScalar) {
        return InvalidInput("{}: nccl.{} takes one value", source.Where(field.value),
                            Printable(field.key));
      }
      job->nccl.emplace_back(field.key, field.value.text);
      std::string& value = job->nccl.back().second;
      if (field.key == kTunerFile || field.key == kGraphFile) value = source.Path(value);
      const std::span<const std::pair<std::string, std::string>> one(&job->nccl.back(), 1);
      Result<collective::Environment> parsed = collective::ParseEnvironment(one);
      if (!parsed.ok()) {
        return std::move(parsed).TakeStatus().In(source.document->Where(field) + ": nccl");
      }
    }
  }
  Result<collective::Environment> all = collective::ParseEnvironment(job->nccl, job->known().nccl);
  if (!all.ok()) return std::move(all).TakeStatus().In(source.name() + ": nccl");
  if (Status ways = CheckWays(*job, *all); !ways.ok()) {
    return std::move(ways).In(source.name() + ": nccl");
  }
  const bool versioned = std::any_of(job->nccl.begin(), job->nccl.end(), [](const auto& variable) {
    return variable.first == "NCCL_VERSION";
  });
  if (!versioned) {
    const int release = collective::ReleaseOn(job->cluster.device.arch, *all);
    job->assumed.push_back(
        fmt::format("nccl: version {}.{}.{}", release / 10000, release / 100 % 100, release % 100));
  }
  const collective::nccl::Release& newest = collective::nccl::ReleasesOf(*all).newest();
  if (all->version / 100 > newest.version / 100) {
    job->assumed.push_back(fmt::format(
        "nccl.NCCL_VERSION: later than the tables, those of {} stand for it", newest.name));
  }
  job->tuner_hash = HashOf(all->tuner) ^ all->graphs.hash;
  if (all->graphs.given()) {
    job->assumed.push_back(fmt::format(
        "nccl.{}: {} rings, {} trees of {} GPUs, in domains that hold them{}", kGraphFile,
        all->graphs.ring.channels.size(), all->graphs.tree.channels.size(), all->graphs.gpus(),
        all->graphs.others ? "; its graphs of CollNet and NVLS are not used" : ""));
  }
  if (!all->tuner.empty()) {
    job->assumed.push_back(
        fmt::format("nccl.{}: {} rows; buffers not registered, one collective at a time (regBuff "
                    "0, numPipeOps 1)",
                    kTunerFile, all->tuner.size()));
  }
  cluster::Spec& spec = job->cluster;
  if (!all->domains_of_hosts && spec.gpus_per_nvlink_domain > spec.gpus_per_node) {
    spec.gpus_per_nvlink_domain = spec.gpus_per_node;
    job->assumed.push_back(
        fmt::format("nccl.NCCL_MNNVL_ENABLE: NVLink domains are hosts of {} GPUs, for everything",
                    spec.gpus_per_node));
  }
  for (const std::string& name : all->noted) {
    job->ignored.push_back(
        fmt::format("nccl.{}: without effect: {}", name, collective::FindInert(name)->why));
    job->assumed.push_back(job->ignored.back());
  }
  return {};
}

std::size_t Job::ranks() const {
  std::size_t sum = 0;
  for (const Tenant& tenant : tenants) sum += tenant.ranks;
  if (!tenants.empty()) return sum;
  for (const Workload& workload : workloads) sum += static_cast<std::size_t>(workload.plan.ranks());
  return sum;
}

std::size_t Job::gpus() const {
  std::size_t sum = 0;
  for (const Tenant& tenant : tenants) {
    const bool hosts = tenant.placement.whole_nodes;
    sum += tenant.ranks * static_cast<std::size_t>(hosts ? cluster.gpus_per_node : 1);
  }
  return tenants.empty() ? ranks() : sum;
}

Result<Document> ParseJob(std::string_view text, const std::string& name) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json =
      first != std::string_view::npos && text[first] == '{' &&
      text.find_first_not_of(" \t\r\n", first + 1) != std::string_view::npos &&
      (text[text.find_first_not_of(" \t\r\n", first + 1)] == '"' || name.ends_with(".json"));
  return json ? formats::ParseJson(text, name) : formats::ParseYaml(text, name);
}

Result<workload::Model> ReadModelTree(const Document& document, const std::string& folder) {
  const Source source{&document, folder};
  ORRERY_ASSIGN_OR_RETURN(const std::shared_ptr<const Data> data, ReadDataKey(source, nullptr));
  std::vector<std::string> ignored;
  return workload::ReadModel(source, document.root.Find("model"),
                             (data != nullptr ? *data : BuiltInData()).models, &ignored);
}

Result<cluster::Spec> ReadClusterTree(const Document& document, const std::string& folder) {
  const Source source{&document, folder};
  ORRERY_ASSIGN_OR_RETURN(const std::shared_ptr<const Data> data, ReadDataKey(source, nullptr));
  std::vector<std::string> ignored;
  return cluster::Read(source, document.root.Find("cluster"),
                       (data != nullptr ? *data : BuiltInData()).clusters, &ignored);
}

Result<Job> ReadJobTree(Document document, const std::string& folder, const ReadOptions& options) {
  for (const std::string& assignment : options.set) {
    ORRERY_RETURN_IF_ERROR(ApplySet(assignment, &document));
  }
  return ReadDocumentAsJob(document, folder, options);
}

Result<Job> ReadJobText(std::string_view text, const std::string& name, const std::string& folder,
                        const ReadOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(Document document, ParseJob(text, name));
  return ReadJobTree(std::move(document), folder, options);
}

Result<Job> ReadJob(const std::string& path, const ReadOptions& options) {
  const formats::Limits limits;
  ORRERY_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(path, static_cast<std::int64_t>(limits.bytes)));
  return ReadJobText(text, path, FolderOf(path), options);
}

}  // namespace orrery::job
