// The section `parallel` and the key `schedule` of a job file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orrery/job/reader.h"

namespace orrery::job {

// All but layers_per_stage. `gpus` is what the cluster offers when that is known: it gives dp when
// the file does not.
Status ReadParallel(const Source& source, const Section& parallel, std::optional<std::size_t> gpus,
                    workload::Plan* plan, std::vector<std::string>* assumed);
// REQUIRES: `parallel` is read.
Status ReadSchedule(const Source& source, const Section& top, workload::Plan* plan,
                    std::vector<std::string>* assumed);
// parallel.layers_per_stage. REQUIRES: the schedule is known.
Status ReadStageLayers(const Section& parallel, const workload::Model& model, workload::Plan* plan);
// What a rule came to, where stages are not alike. REQUIRES: the plan is valid.
void SayStageLayers(const Section& parallel, const workload::Model& model,
                    const workload::Plan& plan, std::vector<std::string>* assumed);

}  // namespace orrery::job
