#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/cluster/draw.h"
#include "orrery/formats/nccl_log.h"
#include "orrery/job/describe.h"
#include "orrery/job/importers.h"
#include "orrery/job/network_setup.h"
#include "orrery/job/trace.h"
#include "orrery/network/network.h"
#include "orrery/results/trace.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/traffic/flows.h"
#include "orrery/traffic/report.h"
#include "orrery/traffic/run.h"
#include "orrery/traffic/sweep.h"
#include "orrery/workload/schedules/patterns.h"
#include "progress.h"
#include "verb.h"

namespace orrery::app {
namespace {

constexpr std::size_t kQueueSteps = 512;  // points of --queues' plot, over the whole run
constexpr std::int64_t kLargestPattern = std::int64_t{256} << 20;  // bytes of a file

// Kinds of patterns, by the options that they take; bits, for kTakenBy.
enum PatternKind : unsigned {
  kEqualFlows = 1,
  kCast = 2,
  kPoisson = 4,
  kMatrix = 8,
  kCollective = 16,
  kAlltoall = 32,
  kSchedule = 64,
  kStorage = 128,
};
constexpr std::string_view kStorageName = "storage";
constexpr unsigned kCollectives = kCollective | kAlltoall;
constexpr unsigned kFlows = kEqualFlows | kCast | kPoisson | kMatrix;

PatternKind KindOf(const std::string& pattern) {
  if (pattern == "alltoall") return kAlltoall;
  if (traffic::IsCollective(pattern)) return kCollective;
  if (workload::IsSchedulePattern(pattern)) return kSchedule;
  if (pattern == kStorageName) return kStorage;
  if (pattern == "incast" || pattern == "outcast") return kCast;
  if (pattern == "poisson") return kPoisson;
  return traffic::IsPattern(pattern) ? kEqualFlows : kMatrix;
}

// Options that not every kind takes: which kinds do, and what the error calls those.
struct TakenBy {
  const char* option;
  unsigned kinds;
  std::string_view text;
};
constexpr TakenBy kTakenBy[] = {
    {"--size", kEqualFlows | kCast | kSchedule,
     "permutation, incast, outcast, all-to-all and schedules (poisson: --sizes; collectives: "
     "--min, --max)"},
    {"--degree", kCast, "incast and outcast"},
    {"--sizes", kPoisson, "poisson"},
    {"--load", kPoisson, "poisson"},
    {"--duration", kPoisson, "poisson"},
    {"--heat-map", kFlows, "flows"},
    {"--queues", kFlows, "flows"},
    {"--seed", kFlows, "flows"},
    {"--threads", kFlows, "flows"},
    {"--gpus", (kFlows & ~kMatrix) | kCollectives | kSchedule,
     "patterns of flows, collectives and schedules"},
    {"--timeline", kSchedule | kStorage, "schedules and storage"},
    {"--csv", kSchedule | kStorage, "schedules and storage"},
    {"--min", kCollectives, "collectives"},
    {"--max", kCollectives, "collectives"},
    {"--factor", kCollectives, "collectives"},
    {"--compare", kCollectives, "collectives"},
    {"--svg", kCollectives, "collectives"},
    {"--calibration", kCollectives, "collectives; flows have line rates"},
    {"--shares", kAlltoall, "alltoall"},
};

class TrafficVerb final : public Verb {
 public:
  std::string_view name() const override { return "traffic"; }
  std::string_view examples() const override {
    return "  orrery traffic all-reduce --cluster h100-ib-400g --nodes 4 --svg busbw.svg\n"
           "  orrery traffic all-reduce --compare nccl-tests.log\n"
           "  orrery traffic storage --set storage.rate=2e6 --set cluster.oversubscription=4\n";
  }
  std::string_view description() const override {
    return "simulate network traffic without a job: patterns of flows, schedules, collectives "
           "alone";
  }

  void Declare(CLI::App* app) override {
    app_ = app;
    app->add_option("PATTERN", pattern_,
                    fmt::format("permutation, incast, outcast, all-to-all, poisson; a connection "
                                "matrix; {}; storage; or a schedule of those below",
                                fmt::join(traffic::CollectiveNames(), ", ")))
        ->required();
    app->add_option("--cluster", cluster_, "Preset or file; default h100-ib-400g");
    app->add_option("--nodes", nodes_, "Hosts; default what the topology's file says, else 4")
        ->transform(WholeIn(1, 1 << 20));
    app->add_option("--gpus", gpus_, "Use only the first so many GPUs; default all")
        ->transform(WholeIn(2, 1 << 24));
    app->add_option(
        "--network", network_,
        "flow (default), links, packet or loggops; collectives also analytic (their default), "
        "flow-chunks; schedules also analytic");
    app->add_option("--set", set_,
                    "cluster.KEY=…, packet.KEY=…, nccl.VARIABLE=… or perturb.links=[…]; schedules "
                    "also pattern.KEY=… and loggops.KEY=…")
        ->allow_extra_args(false);
    app->add_option("--size", size_, "Flows except poisson's: bytes of each; default 1MiB");
    app->add_option("--degree", degree_, "incast, outcast: number of flows; default 8")
        ->transform(WholeIn(1, 1 << 24));
    app->add_option("--sizes", sizes_, "poisson: web-search, hadoop or a file; default web-search");
    app->add_option("--load", load_, "poisson: share of the NICs' bandwidth; default 0.5");
    app->add_option("--duration", duration_, "poisson: time in which flows start; default 10ms");
    app->add_option("--min", min_, "Collectives: smallest size; default 1KiB");
    app->add_option("--max", max_, "Collectives: largest size; default 1GiB");
    app->add_option("--factor", factor_, "Collectives: factor from one size to the next; default 4")
        ->transform(WholeIn(2, 1 << 20));
    app->add_option("--shares", shares_,
                    "alltoall: CSV with a line for each GPU (or one for all): relative "
                    "sizes to each GPU");
    app->add_option("--compare", compare_, "Collectives: output of nccl-tests; its sizes are run");
    app->add_option("--calibration", calibration_,
                    "Collectives: constants from 'orrery calibrate'");
    app->add_option("--svg", svg_, "Collectives: plot bus bandwidth to FILE");
    app->add_option(
        "--heat-map", heat_map_,
        "Flows: draw the cluster's links by the share of their capacity that was used (SVG)");
    app->add_option("--queues", queues_,
                    "Flows on network packet: plot the longest queues over time to FILE (SVG); "
                    "--json then has them too");
    app->add_option("--seed", seed_,
                    "Flows: seed of random patterns and of the paths taken; default 1")
        ->transform(WholeIn(0, 1 << 30));
    app->add_option("--threads", threads_, "Flows on network packet: threads; default 1")
        ->transform(WholeIn(1, 1024));
    app->add_option("--timeline", timeline_,
                    "Schedules, storage: write a Perfetto timeline (open at ui.perfetto.dev)");
    app->add_option("--csv", csv_,
                    "Write a line for each rank (schedules) or request (storage) to FILE");
    app->add_option("--json", json_, "As JSON to FILE, or to stdout (-)");
    app->footer(
        "'orrery list patterns', 'schedule-patterns' and 'flow-sizes' say what these are;\n"
        "'orrery schema traffic --keys' has the keys of --set for schedules and storage.\n");
  }

  Status Run(Session* session) override {
    AcceptUnderscores();
    const PatternKind kind = KindOf(pattern_);
    const bool matrix = kind == kMatrix;
    if (matrix) ORRERY_RETURN_IF_ERROR(CheckMatrix());
    ORRERY_RETURN_IF_ERROR(CheckOptions(kind));
    ORRERY_RETURN_IF_ERROR(CheckFiles({{"PATTERN", matrix ? pattern_ : ""},
                                       {"--cluster", cluster_},
                                       {"--sizes", sizes_},
                                       {"--shares", shares_},
                                       {"--compare", compare_},
                                       {"--calibration", calibration_}},
                                      {{"--json", json_},
                                       {"--svg", svg_},
                                       {"--heat-map", heat_map_},
                                       {"--queues", queues_},
                                       {"--timeline", timeline_},
                                       {"--csv", csv_}}));
    WatchOutput(svg_);
    WatchOutput(heat_map_);
    WatchOutput(queues_);
    WatchOutput(timeline_);
    WatchOutput(csv_);
    if (kind == kSchedule) return RunSchedule(session);
    if (kind == kStorage) return RunStorage(session);
    const bool collective = (kind & kCollectives) != 0;
    if (network_.empty()) network_ = collective ? "analytic" : "flow";
    if (collective) {
      ORRERY_RETURN_IF_ERROR(network::Create(Printable(network_)).TakeStatus().In("--network"));
    }
    constants::Set constants = constants::Set::Fitted();
    if (!calibration_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(constants, search::ReadCalibration(calibration_));
    }
    ORRERY_ASSIGN_OR_RETURN(
        job::NetworkSetup setup,
        job::ReadNetworkSetup(cluster_, nodes_, network_, set_, collective ? &constants : nullptr));
    if (!calibration_.empty()) {
      setup.assumed.push_back(fmt::format("constants of {}", Printable(calibration_)));
    }
    if (gpus_ > 0) {
      setup.description =
          job::DescribeCluster(setup.cluster.spec(), static_cast<std::size_t>(gpus_));
    }
    traffic::Heading heading{pattern_, setup.description, network_,
                             static_cast<std::uint64_t>(seed_), setup.assumed};
    return collective ? RunCollective(session, setup, heading)
                      : RunPattern(session, setup, heading);
  }

  std::vector<Reading> reads() const override { return {{pattern_, {}}}; }

 private:
  // nccl-tests writes all_reduce where we write all-reduce.
  void AcceptUnderscores() {
    std::string name = pattern_;
    std::ranges::replace(name, '_', '-');
    if (KindOf(pattern_) == kMatrix && KindOf(name) != kMatrix &&
        access(pattern_.c_str(), F_OK) != 0) {
      pattern_ = name;
    }
  }

  Status CheckOptions(PatternKind kind) const {
    for (const TakenBy& row : kTakenBy) {
      if (app_->count(row.option) == 0 || (row.kinds & kind) != 0) continue;
      return InvalidInput("{} is not for '{}' but for {}", row.option, Printable(pattern_),
                          row.text);
    }
    if (!compare_.empty()) {
      for (const char* option : {"--min", "--max", "--factor"}) {
        if (app_->count(option) == 0) continue;
        return InvalidInput("{}: --compare brings its own sizes; give one of the two", option);
      }
    }
    if (!(load_ >= 0.001 && load_ <= 1.5)) {  // NaN too
      return InvalidInput("--load {}: give 0.001 to 1.5", load_);
    }
    return {};
  }

  Status CheckMatrix() const {
    if (access(pattern_.c_str(), F_OK) == 0) return {};
    if (pattern_.find_first_of("./") != pattern_.npos) {
      return InvalidInput("cannot read the connection matrix '{}': no such file; check the path",
                          Printable(pattern_));
    }
    std::vector<std::string_view> names = traffic::CollectiveNames();
    for (const traffic::Pattern& p : traffic::Patterns()) names.push_back(p.name);
    for (const workload::SchedulePattern& p : workload::SchedulePatterns()) {
      names.push_back(p.name);
    }
    names.push_back(kStorageName);
    return InvalidInput("{}; or name a connection matrix",
                        UnknownName("pattern", Printable(pattern_), names));
  }

  // Messages that wait for each other, as a graph of their own. Without a cluster and on loggops
  // every pair of ranks is alike, as in LogGOPSim.
  Status RunSchedule(Session* session) {
    job::TraceOptions options;
    options.network = network_.empty() ? "flow" : network_;
    const bool anywhere = options.network == "loggops" && app_->count("--cluster") == 0;
    std::size_t devices = 0;
    if (!anywhere) {
      options.cluster = cluster_;
      ORRERY_ASSIGN_OR_RETURN(
          const job::NetworkSetup setup,
          job::ReadNetworkSetup(cluster_, nodes_, options.network, ClusterKeys(), nullptr));
      options.nodes = setup.cluster.spec().nodes;
      devices = setup.cluster.devices();
    }
    options.set = set_;
    const auto set = [&](std::string_view key, std::string_view value) {
      options.set.push_back(fmt::format("pattern.{}={}", key, value));
    };
    set("name", pattern_);
    if (app_->count("--size") > 0) set("size", size_);
    if (gpus_ > 0) {
      set("ranks", std::to_string(gpus_));
    } else if (std::ranges::none_of(
                   set_, [](const std::string& s) { return s.starts_with("pattern.ranks="); })) {
      if (anywhere) return InvalidInput("'{}' on loggops: say how many ranks, --gpus N", pattern_);
      set("ranks", std::to_string(devices));
    }
    return RunGraph(session, "pattern", options);
  }

  // Requests to a storage service; as many hosts of the cluster as it needs.
  Status RunStorage(Session* session) {
    job::TraceOptions options;
    options.network = network_.empty() ? "flow" : network_;
    if (options.network != "loggops" || app_->count("--cluster") > 0) options.cluster = cluster_;
    options.nodes = nodes_;
    options.set = set_;
    return RunGraph(session, kStorageName, options);
  }

  // What the importer makes of keys alone.
  Status RunGraph(Session* session, std::string_view importer_name, job::TraceOptions options) {
    options.timeline = timeline_;
    const constants::Set constants = constants::Set::Fitted();
    options.constants = &constants;
    const job::TraceFiles files{{pattern_}, {}};
    ORRERY_ASSIGN_OR_RETURN(const job::Importer* const importer,
                            job::FindImporter(files, std::string(importer_name)));
    ORRERY_ASSIGN_OR_RETURN(const results::TraceResult result,
                            job::SimulateTrace(*importer, files, options));
    if (!csv_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(csv_, results::ToCsv(result)));
    return session->Answer(json_, results::ToJson(result), results::Report(result));
  }

  // Of --set, what says how large the cluster is.
  std::vector<std::string> ClusterKeys() const {
    std::vector<std::string> keys;
    std::ranges::copy_if(set_, std::back_inserter(keys),
                         [](const std::string& s) { return s.starts_with("cluster."); });
    return keys;
  }

  Status RunPattern(Session* session, const job::NetworkSetup& setup, traffic::Heading heading) {
    if (threads_ > 1 && network_ != "packet") {
      return InvalidInput("--threads: the network '{}' runs flows on one thread; packet takes more",
                          network_);
    }
    if (!queues_.empty() && network_ != "packet") {
      return InvalidInput("--queues: the network '{}' has no queues of packets; take packet",
                          network_);
    }
    ORRERY_ASSIGN_OR_RETURN(std::vector<traffic::Flow> flows, Flows(setup.cluster));
    Progress progress("flows");
    const auto show = [&](std::size_t done, std::size_t total) { progress.Show(done, total); };
    ORRERY_ASSIGN_OR_RETURN(
        const traffic::FlowRun run,
        traffic::RunFlows(setup.cluster, network_, setup.parameters, std::move(flows), heading.seed,
                          show, queues_.empty() ? 0 : kQueueSteps, threads_));
    progress.End();
    if (std::ranges::any_of(set_,
                            [](const std::string& s) { return s.starts_with("perturb.links"); })) {
      heading.assumed.push_back(
          "the idle network of the slowdowns has perturb.links too: what a slow link costs a flow "
          "alone is in its completion time only");
    }
    if (run.threads_used < threads_) {
      heading.assumed.push_back(fmt::format(
          "the run took one thread, not {}: flows without acknowledgements, networks without "
          "switches and --queues take no more",
          threads_));
    }
    if (!queues_.empty()) {
      ORRERY_RETURN_IF_ERROR(WriteFile(queues_, traffic::QueuesSvg(heading, setup.cluster, run)));
    }
    if (!heat_map_.empty()) {
      std::vector<double> use;
      for (std::size_t l = 0; l < run.links.size(); ++l) {
        const auto rate = static_cast<double>(setup.cluster.links()[l].bandwidth_Bps);
        use.push_back(static_cast<double>(run.links[l].bytes) / (rate * ToSeconds(run.finish)));
      }
      ORRERY_RETURN_IF_ERROR(WriteFile(heat_map_, cluster::DrawSvg(setup.cluster, use)));
    }
    return session->Answer(json_, traffic::ReportJson(heading, setup.cluster, run),
                           traffic::ReportText(heading, setup.cluster, run));
  }

  Result<std::vector<traffic::Flow>> Flows(const cluster::Cluster& cluster) const {
    traffic::PatternOptions options;
    ORRERY_ASSIGN_OR_RETURN(options.bytes, Quantity("--size", size_, Dimension::kBytes, "B"));
    ORRERY_ASSIGN_OR_RETURN(options.duration,
                            Quantity("--duration", duration_, Dimension::kTime, "ms"));
    if (options.bytes < 1) return InvalidInput("--size 0: a flow needs a byte or more");
    options.gpus = static_cast<std::size_t>(gpus_);
    options.degree = static_cast<std::size_t>(degree_);
    options.seed = static_cast<std::uint64_t>(seed_);
    options.sizes = sizes_;
    options.load = load_;
    if (traffic::IsPattern(pattern_)) return traffic::MakeFlows(pattern_, cluster, options);
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(pattern_, kLargestPattern));
    return traffic::ParseConnectionMatrix(text, pattern_, cluster);
  }

  Status RunCollective(Session* session, const job::NetworkSetup& setup,
                       const traffic::Heading& heading) {
    traffic::SweepOptions options;
    ORRERY_ASSIGN_OR_RETURN(options.collective, traffic::FindCollective(pattern_));
    if (setup.cluster.spec().topology.routing == cluster::Routing::kAdaptive) {
      return InvalidInput(
          "cluster.topology.routing: adaptive: collectives bind their channels to "
          "paths; choose ecmp, static or rail-local");
    }
    options.gpus = static_cast<std::size_t>(gpus_);
    const std::size_t gpus = gpus_ > 0 ? options.gpus : setup.cluster.devices();
    options.network = network_;
    Progress progress("sizes");
    options.progress = [&](std::size_t done, std::size_t total) { progress.Show(done, total); };
    if (!shares_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(shares_, kLargestPattern));
      ORRERY_ASSIGN_OR_RETURN(options.shares, traffic::ParseShares(text, Printable(shares_), gpus));
    }
    formats::NcclTestsLog log;
    if (!compare_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(log, Measured(gpus));
    }
    ORRERY_ASSIGN_OR_RETURN(options.sizes, Sizes(log));
    options.pricing = setup.pricing;
    ORRERY_ASSIGN_OR_RETURN(traffic::Sweep sweep,
                            traffic::RunSweep(setup.cluster, setup.environment, options));
    progress.End();
    traffic::AddMeasured(log, &sweep);
    if (!svg_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(svg_, traffic::ReportSvg(heading, sweep)));
    return session->Answer(json_, traffic::ReportJson(heading, sweep),
                           traffic::ReportText(heading, sweep));
  }

  // The log that the run is compared with.
  Result<formats::NcclTestsLog> Measured(std::size_t gpus) const {
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(compare_, kLargestPattern));
    ORRERY_ASSIGN_OR_RETURN(formats::NcclTestsLog log, formats::ParseNcclTestsLog(text, compare_));
    std::string test = log.test;
    std::replace(test.begin(), test.end(), '_', '-');
    if (!test.empty() && test != pattern_) {
      return InvalidInput("'{}' is of {}_perf, the run of {}; compare a log of the same test",
                          Printable(compare_), log.test, pattern_);
    }
    if (!log.ranks.empty() && log.ranks.size() != gpus) {
      return InvalidInput("'{}' is of {} ranks, the run of {} GPUs; give --nodes or --gpus",
                          Printable(compare_), log.ranks.size(), gpus);
    }
    std::string of = pattern_;
    std::replace(of.begin(), of.end(), '-', '_');
    ORRERY_RETURN_IF_ERROR(formats::CheckNcclTestsLog(log, of, gpus, compare_));
    return log;
  }

  // Those of the log, once each, or --min to --max.
  Result<std::vector<std::int64_t>> Sizes(const formats::NcclTestsLog& log) const {
    if (compare_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t least,
                              Quantity("--min", min_, Dimension::kBytes, "B"));
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t most,
                              Quantity("--max", max_, Dimension::kBytes, "B"));
      return traffic::SweepSizes(least, most, factor_);
    }
    std::vector<std::int64_t> sizes;
    for (const auto& row : log.rows) {
      if (row.bytes > 0) sizes.push_back(row.bytes);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
  }

  CLI::App* app_ = nullptr;
  std::string pattern_, cluster_ = "h100-ib-400g", network_, size_ = "1MiB", sizes_ = "web-search",
                        duration_ = "10ms", min_ = "1KiB", max_ = "1GiB", shares_, compare_,
                        calibration_, svg_, heat_map_, queues_, json_, timeline_, csv_;
  std::vector<std::string> set_;
  int nodes_ = 0, gpus_ = 0, degree_ = 8, factor_ = 4, seed_ = 1, threads_ = 1;
  double load_ = 0.5;
};

}  // namespace

std::unique_ptr<Verb> MakeTraffic() { return std::make_unique<TrafficVerb>(); }

}  // namespace orrery::app
