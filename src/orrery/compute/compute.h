// Kernel → duration, each with where it came from (Provenance) and how far off it may be.
//
// A chain of providers answers in order: measured (exact), interpolated (between measured), scaled
// (a measured GPU's time times the ratio of the bound that holds there, SimAI's CP-Model),
// modelled. The first that can answer does; a kernel whose time a trace gives is `given`. Assumes
// the kernel alone on the device; interference comes later. The models and their constants:
// docs/compute.md.
//
// Times are computed in double seconds with + - x / and sqrt only and rounded once to picoseconds.
// Cost of Price: 0.01 to 0.2 us modelled, 0.1 us measured, up to 2 us interpolated in a table of
// 2,500 rows of one series; nothing is cached here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/graph/kernel.h"

namespace orrery::compute {

enum class Provenance : std::uint8_t {
  kMeasured,
  kInterpolated,
  kScaled,
  kModelled,
  kGiven,
  kCount
};
inline constexpr std::size_t kProvenances = static_cast<std::size_t>(Provenance::kCount);
std::string_view Name(Provenance provenance);

struct KernelTime {
  SimTime duration = 0;
  Provenance provenance = Provenance::kModelled;
  float spread = 0;  // relative standard deviation of the answer
};

struct Options {
  std::string measured_database;  // SQLite file; empty: none
  // Devices whose tables may be scaled to this one; the nearest architecture is used. Tables of
  // devices that are neither priced nor named here are not read.
  std::vector<cluster::DeviceSpec> references;
};

// Prices kernels on one device type. Immutable after Create; safe to share between threads.
class CostModel {
 public:
  // Fails on a device without rates (names the field) and on a database that cannot be read.
  static Result<CostModel> Create(const cluster::DeviceSpec& device, const Options& options);
  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;
  ~CostModel();

  // At most kMaxDuration: a longer kernel is priced at that.
  KernelTime Price(const graph::Kernel& kernel) const;
  SimTime launch_latency() const;  // from host issue to the kernel's start on an idle GPU
  SimTime host_issue(const graph::Kernel& kernel) const;  // host time per launch, eager PyTorch
  SimTime host_issue_graph() const;                       // host time to launch a CUDA graph
  SimTime host_issue_comm() const;                        // host time to enqueue one communication

 private:
  struct Impl;
  explicit CostModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::compute
