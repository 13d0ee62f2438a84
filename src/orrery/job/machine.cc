#include "orrery/job/machine.h"

#include <utility>

namespace orrery::job {

Result<std::unique_ptr<Machine>> BuildMachine(const Job& job, const SimulateOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(cluster::Cluster cluster, cluster::Cluster::Build(job.cluster));
  for (const LinkPerturbation& link : job.links) {
    ORRERY_RETURN_IF_ERROR(
        cluster.ChangeLinks(link.link, link.bandwidth, link.from, link.until).In(link.where));
  }
  compute::Options compute_options;
  if (job.measured_kernels) {
    if (options.measured_database.empty()) {
      return InvalidInput(
          "kernels: measured: there is no table of measured kernels beside the program; build it "
          "with orrery-measured and name it in ORRERY_MEASURED, or leave 'kernels' out");
    }
    compute_options.measured_database = options.measured_database;
    for (const cluster::Preset& preset : cluster::Presets()) {
      ORRERY_ASSIGN_OR_RETURN(const cluster::Spec spec, cluster::FindPreset(preset.name));
      compute_options.references.push_back(spec.device);
    }
  }
  ORRERY_ASSIGN_OR_RETURN(compute::CostModel compute,
                          compute::CostModel::Create(job.cluster.device, compute_options));
  ORRERY_ASSIGN_OR_RETURN(const collective::Environment environment,
                          collective::ParseEnvironment(job.nccl, job.known().nccl));
  auto machine = std::make_unique<Machine>(Machine{std::move(cluster), std::move(compute), {}, {}});
  machine->planner.emplace(machine->cluster, environment, job.pricing);
  machine->prices.emplace(machine->compute, *machine->planner, job.engine.slowdown);
  return machine;
}

}  // namespace orrery::job
