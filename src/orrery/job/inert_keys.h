// Keys of the user's own job that hardly change the answer, or not at all, though each is valid:
// what Job::ignored says of them. Keys inside a cluster file of the user's are not looked at.
#pragma once

#include <string>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/formats/tree.h"

namespace orrery::job {

// `cluster`: the job's section, null where there is none; `spec`: what became of it.
// `costs`: the job asks what training costs.
std::vector<std::string> InertClusterKeys(const formats::Node* cluster, bool costs,
                                          const cluster::Spec& spec);

}  // namespace orrery::job
