// Files of schedulers that wrap a training command: SkyPilot's and dstack's tasks, MosaicML's runs,
// Kubernetes' manifests (Kubeflow's PyTorchJob, MPIJob and TrainJob, JobSet, Job, KubeRay's
// RayJob).
//
// The command becomes a script whose lines are the file's, in its environment, and is read in the
// file's place; hosts and GPUs that the file asks for say how many there are where the command
// does not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {

struct Wrapped {
  std::string kind;           // "SkyPilot's task"
  std::vector<File> scripts;  // texts that may hold the training command; the first comes first
  std::optional<File> configuration;  // a YAML that the file carries (MosaicML's parameters)
  std::map<std::string, std::string> variables;
  std::int64_t nodes = 0, gpus_per_node = 0, gpus = 0;  // 0: not said
};
// nullopt: the file is none of them.
Result<std::optional<Wrapped>> Unwrap(const File& file);

}  // namespace orrery::recipes
