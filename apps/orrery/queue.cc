#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "arguments.h"
#include "orrery/search/queue/read_queue.h"
#include "verb.h"

namespace orrery::app {
namespace {

constexpr std::array<std::pair<std::string_view, search::QueueOrder>, 2> kOrders = {
    {{"fifo", search::QueueOrder::kFifo}, {"easy", search::QueueOrder::kEasy}}};
constexpr std::array<std::pair<std::string_view, search::HostChoice>, 4> kChoices = {
    {{"packed", search::HostChoice::kPacked},
     {"random", search::HostChoice::kRandom},
     {"striped", search::HostChoice::kStriped},
     {"fewest-racks", search::HostChoice::kFewestRacks}}};

class QueueVerb final : public Verb {
 public:
  std::string_view name() const override { return "queue"; }
  std::string_view examples() const override {
    return "  orrery queue queue.yaml\n"
           "  orrery queue queue.yaml --order easy --placement packed,fewest-racks\n"
           "  orrery queue queue.yaml --json queue.json\n";
  }
  std::string_view description() const override {
    return "simulate a queue of jobs on one cluster: how long each waits, by order and placement";
  }

  void Declare(CLI::App* app) override {
    app->add_option("FILE", path_, "Cluster and jobs (docs/queue.md)")->required();
    app->add_option("--order", orders_, "fifo, easy (backfilling); default: both")
        ->delimiter(',')
        ->check(OneOf("order", NamesOf(kOrders)));
    app->add_option("--placement", placements_,
                    "packed, random, striped, fewest-racks; default: all")
        ->delimiter(',')
        ->check(OneOf("placement", NamesOf(kChoices)));
    app->add_option("--network", network_,
                    "Network back end for training jobs ('orrery list networks')");
    app->add_option("--seed", seed_, "Seed of random placement; default 1");
    app->add_option("--json", json_, "Write the answer as JSON to FILE, or to stdout (-)");
  }

  Status Run(Session* session) override {
    ORRERY_RETURN_IF_ERROR(CheckFiles({{"FILE", path_}}, {{"--json", json_}}));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t seed,
                            WholeNumber("--seed", seed_, 0, std::int64_t{1} << 53));
    ORRERY_ASSIGN_OR_RETURN(search::QueueFile file, search::ReadQueue(path_, network_));
    const search::TimeOnHosts time = [&](std::size_t job, std::span<const std::size_t> hosts) {
      return file.times.On(file.source[job], hosts);
    };
    std::vector<search::QueueRow> rows;
    for (const auto& [order, o] : kOrders) {
      if (!Asked(orders_, order)) continue;
      for (const auto& [placement, p] : kChoices) {
        if (!Asked(placements_, placement)) continue;
        ORRERY_ASSIGN_OR_RETURN(search::QueueRun run,
                                search::RunQueue(file.jobs, file.times.rack, o, p,
                                                 static_cast<std::uint64_t>(seed), time));
        rows.push_back({std::string(order), std::string(placement), std::move(run)});
      }
    }
    return session->Answer(json_, search::QueueJson(file, rows), search::QueueText(file, rows));
  }

  std::vector<Reading> reads() const override {
    return {{path_, {FileKind::kJob, FileKind::kCluster}}};
  }

 private:
  template <typename Table>
  static std::vector<std::string_view> NamesOf(const Table& table) {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : table) names.push_back(name);
    return names;
  }
  static bool Asked(const std::vector<std::string>& names, std::string_view name) {
    return names.empty() || std::ranges::find(names, name) != names.end();
  }

  std::string path_, network_, json_, seed_ = "1";
  std::vector<std::string> orders_, placements_;
};

}  // namespace

std::unique_ptr<Verb> MakeQueue() { return std::make_unique<QueueVerb>(); }

}  // namespace orrery::app
