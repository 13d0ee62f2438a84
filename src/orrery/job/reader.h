// The parts of reading a job file: one function per section. Internal to `job`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/tree.h"
#include "orrery/job/job.h"
#include "orrery/job/settings.h"
#include "orrery/workload/model.h"

namespace orrery::job {

// A document and where its relative paths start.
struct Source {
  const formats::Document* document = nullptr;
  std::string folder;

  const std::string& name() const { return document->sources.front(); }
  std::string Where(const formats::Node& node) const { return document->Where(node); }
  std::string Path(const std::string& relative) const;
};

// True for "a.yaml", "dir/config.json", "./x": a file, not a preset's name.
bool LooksLikeFile(std::string_view text);

// Longest sequence of an inline model that states none: ReadWorkload takes training.seq_len.
inline constexpr std::int64_t kUnstatedPositions = 1 << 26;

// The preset, file or inline fields under `model`; `node` is null when the key is missing.
Result<workload::Model> ReadModel(const Source& source, const formats::Node* node,
                                  std::vector<std::string>* assumed);
// The cluster without its number of nodes.
Result<cluster::Spec> ReadCluster(const Source& source, const formats::Node* node,
                                  std::vector<std::string>* assumed);
// Model, framework, parallel, training, schedule. `gpus` is what the cluster offers when that is
// known: it gives dp when the file does not; `device` is its GPU.
Result<Workload> ReadWorkload(const Source& source, const formats::Node& root,
                              const cluster::DeviceSpec& device, std::optional<std::size_t> gpus,
                              std::vector<std::string>* assumed);
// Whose formula prices collectives; job->network and job->cluster are set.
Status ReadCollective(const Source& source, const formats::Node* node, Job* job);
// NCCL's environment variables.
Status ReadNccl(const Source& source, const formats::Node* node, Job* job);
// The section `packet`, for network packet alone. REQUIRES: the network is known.
Status ReadPacket(const Source& source, const formats::Node* node, Job* job);
Status ReadPerturbations(const Source& source, const formats::Node* node, Job* job);

}  // namespace orrery::job
