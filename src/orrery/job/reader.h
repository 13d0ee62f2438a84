// The parts of reading a job file: one function per section. Internal to `job`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/section.h"
#include "orrery/formats/tree.h"
#include "orrery/job/job.h"

namespace orrery::job {

using formats::FullName;
using formats::LooksLikeFile;
using formats::Section;
using formats::Setting;
using formats::Source;

// Model, framework, parallel, training, schedule. `gpus` is what the cluster offers when that is
// known: it gives dp when the file does not; `device` is its GPU.
Result<Workload> ReadWorkload(const Source& source, const formats::Node& root,
                              const cluster::DeviceSpec& device, std::optional<std::size_t> gpus,
                              const Data& known, std::vector<std::string>* assumed);
// A key that stands at another level than its own: "tp" at the top is parallel.tp.
Status CheckTopKeys(const Source& source, const formats::Node& root);
Status ReadAssume(const Source& source, const formats::Node* node,
                  std::vector<std::string>* assumed);
// The entries of `jobs` to workloads or tenants, by name. REQUIRES: job->cluster is read.
Status ReadJobs(const Source& source, const formats::Node& root, const formats::Node& list,
                const ReadOptions& options, Job* job);
// What of `jobs` and `interference` depends on the rest. REQUIRES: network, simulation are read.
Status CheckJobs(const Source& source, const formats::Node& root, Job* job);
// simulation.link_steps of a run on this network.
Result<int> ReadLinkSteps(const Section& simulation, std::string_view network);
// Whose formula prices collectives; job->network and job->cluster are set.
Status ReadCollective(const Source& source, const formats::Node* node, Job* job);
// NCCL's environment variables.
Status ReadNccl(const Source& source, const formats::Node* node, Job* job);
// The section `packet`, for network packet alone. REQUIRES: the network is known.
Status ReadPacket(const Source& source, const formats::Node* node, Job* job);
Status ReadPerturbations(const Source& source, const formats::Node* node, Job* job);

}  // namespace orrery::job
