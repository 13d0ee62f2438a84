// Runs cases: clusters and cost models shared by all threads, block prices kept per thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/constants/spreads.h"
#include "orrery/engine/prices.h"
#include "orrery/search/validate/training.h"
#include "orrery/workload/generator.h"

namespace orrery::search {

// One machine with its prices. Immutable: safe to share.
class Machine {
 public:
  static Result<std::unique_ptr<Machine>> Create(const cluster::Spec& spec,
                                                 const std::string& measured_database);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const cluster::Cluster& cluster() const { return cluster_; }
  const compute::CostModel& compute() const { return compute_; }
  const collective::Planner& planner() const { return planner_; }

 private:
  Machine(cluster::Cluster cluster, compute::CostModel compute)
      : cluster_(std::move(cluster)), compute_(std::move(compute)), planner_(cluster_, {}) {}

  cluster::Cluster cluster_;
  compute::CostModel compute_;
  collective::Planner planner_;
};

// Equal keys are equal machines.
std::string MachineKey(const cluster::Spec& spec);

// Builds each machine once. Thread-safe; a machine lives as long as the pool.
class MachinePool {
 public:
  explicit MachinePool(std::string measured_database)
      : measured_database_(std::move(measured_database)) {}
  Result<const Machine*> Find(const cluster::Spec& spec);

 private:
  std::string measured_database_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Machine>> machines_;
};

// Which of the three meters, and which ranks it was read on.
enum class Meter : std::uint8_t { kAllocated, kReserved, kDevice };
enum class MeterRank : std::uint8_t { kMax, kFirst, kLast };

// One thread's runs. Keeps the block prices of the machine used last.
class Runner {
 public:
  explicit Runner(MachinePool* pool) : pool_(pool) {}

  // Builds the graph of a case; the two below read it.
  Status Load(const TrainingCase& c, const constants::Set& constants);
  // And what the step is made of.
  Result<double> StepTime(std::vector<std::string>* assumed, constants::StepShares* shares);
  Result<double> PeakMemoryGib(Meter meter, MeterRank rank);

 private:
  MachinePool* pool_;
  const Machine* machine_ = nullptr;
  std::unique_ptr<engine::PriceCache> prices_;
  workload::Generator generator_;
  memory::Options memory_;
  graph::Graph graph_;
  double rank_noise_ = 0;
  SimTime input_time_ = 0;
  bool experts_ = false;
};

}  // namespace orrery::search
