// A job file, read: what to train, how, on what, and what was filled in.
//
// Reading resolves everything: presets, files, framework defaults, `auto`. What the user did not
// say and what matters to the answer is listed in `assumed`. The resolved configuration is itself a
// job file (config_json): read again it gives the same configuration and the same hash.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/campaign/cost.h"
#include "orrery/campaign/goodput.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/constants/set.h"
#include "orrery/engine/engine.h"
#include "orrery/formats/tree.h"
#include "orrery/job/data.h"
#include "orrery/job/tenant.h"
#include "orrery/memory/memory.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"

namespace orrery::job {

// One training job of a run.
struct Workload {
  std::string name;
  workload::Model model;
  workload::Plan plan;
  std::string framework;                 // "megatron@2024.09"
  FrameworkDefaults framework_defaults;  // of that row
  std::string optimizer;                 // "adam"
  memory::Libraries libraries;
  workload::HostEra host = workload::HostEra::kNone;
  std::string defaults;  // of the framework, as `assumed` has them; empty: the job says all
  std::string switches;  // of those, what a newcomer would not guess
  PlacementRequest placement;
  double tokens = 0;  // of the whole training; 0: not said
};

struct LinkPerturbation {
  std::string link;      // "leaf0/spine1"
  double bandwidth = 1;  // what is left of it
  SimTime from = 0, until = kNever;
  std::string where;  // in the file, for messages
};

// What is run beside several jobs together to say who slows whom.
struct Interference {
  bool alone = false;   // each job alone
  int most_pairs = 28;  // each pair, if there are no more than so many; 0: none
};

struct Job {
  std::string source;                // the file's name, for messages
  std::shared_ptr<const Data> data;  // tables that a user added; null: what is built in
  std::vector<Workload> workloads;   // one, or those of `jobs` that train, by name
  // Empty, or all entries of `jobs`, by name, where one does not train or has its own begin or end.
  std::vector<Tenant> tenants;
  Interference interference;
  cluster::Spec cluster;
  std::string network = "analytic";
  bool measured_kernels = false;       // `kernels: measured`
  network::LogGopsParameters loggops;  // of network loggops
  network::PacketParameters packet;    // of network packet
  std::vector<std::pair<std::string, std::string>> nccl;
  std::uint64_t tuner_hash = 0;  // of what NCCL_TUNER_CONFIG_FILE holds; 0: none
  collective::Pricing pricing;   // whose formula prices collectives
  engine::Options engine;
  std::string slowdown;  // simulation.slowdown, the file of engine.slowdown
  memory::Options memory;
  std::string allocator;  // memory.allocator as written
  std::vector<LinkPerturbation> links;
  std::optional<campaign::CostSettings> cost;        // where the file asks for it
  std::optional<campaign::GoodputSettings> goodput;  // the same
  std::vector<std::string> assumed;
  std::vector<std::string> ignored;  // keys and values of the user's files without effect
  std::string config_json;
  // Of config_json and of what the files that it names hold; threads and folding stand outside it.
  std::uint64_t config_hash = 0;

  std::size_t ranks() const;
  std::size_t gpus() const;  // that they take: more where a rank has a whole host
  const Data& known() const { return data != nullptr ? *data : BuiltInData(); }
};

// What the command line adds. `set` entries are "key.path=value" and win over the file.
struct ReadOptions {
  std::vector<std::string> set;
  std::optional<std::string> network;
  bool measured_kernels = false;  // as `kernels: measured` in the file
  std::optional<std::uint64_t> seed;
  bool fold = true;
  int threads = 1;
  constants::Set constants = constants::Set::Fitted();
  bool tenants = false;              // `jobs` may hold what does not train
  bool save_configuration = true;    // false: config_json and config_hash stay empty (searches)
  std::shared_ptr<const Data> data;  // of --data; the job's own `data` comes on top
};

Result<Job> ReadJob(const std::string& path, const ReadOptions& options);
// `name` stands for the text in messages; relative files are looked up from `folder`. Text that
// begins with '{' is JSON, all else YAML.
Result<Job> ReadJobText(std::string_view text, const std::string& name, const std::string& folder,
                        const ReadOptions& options);

// A job file as a tree, which variants of it are made of (search/space), and the job that a tree
// says; `options.set` is applied to it.
Result<formats::Document> ParseJob(std::string_view text, const std::string& name);
Result<workload::Model> ReadModelTree(const formats::Document& document, const std::string& folder);
Result<cluster::Spec> ReadClusterTree(const formats::Document& document, const std::string& folder);
Result<Job> ReadJobTree(formats::Document document, const std::string& folder,
                        const ReadOptions& options);

// A model and a cluster as a job file says them, in JSON: by the name of the preset and what
// differs from it; without a preset every key.
std::string ModelText(const workload::Model& model, const workload::Model* preset);
std::string ClusterText(const cluster::Spec& spec, const cluster::Spec& preset);

// Fills config_json and config_hash from the rest; ReadJob calls it.
void SaveConfiguration(Job* job);

}  // namespace orrery::job
