// The list of topologies: each is one function in a file of its own, named in list.cc.
#pragma once

#include "orrery/cluster/cluster.h"
#include "orrery/cluster/fabric.h"

namespace orrery::cluster {

Result<AnyFabric> MakeRailOptimised(const Spec& spec);
Result<AnyFabric> MakeFatTree2(const Spec& spec);
Result<AnyFabric> MakeFatTree3(const Spec& spec);
Result<AnyFabric> MakeAlibabaHpn(const Spec& spec);
Result<AnyFabric> MakeAlibabaHpnDualPlane(const Spec& spec);
Result<AnyFabric> MakeDcnPlus(const Spec& spec);
Result<AnyFabric> MakeDcnPlusDualTor(const Spec& spec);
Result<AnyFabric> MakeSpectrumX(const Spec& spec);
Result<AnyFabric> MakeDragonfly(const Spec& spec);
Result<AnyFabric> MakeTorus(const Spec& spec);
Result<AnyFabric> MakeMesh(const Spec& spec);
Result<AnyFabric> MakeAstraSim(const Spec& spec);
Result<AnyFabric> MakeImported(const Spec& spec);

// A Clos of the spec's hosts: rails, dual ToR and planes as given, sizes above the leaves from
// oversubscription, or from topology.spines and topology.uplink_Bps where they are given. A leaf's
// uplinks together carry its downlinks' rate over the oversubscription, exactly.
struct ClosRule {
  bool rails = false;
  int ports = 1;
  int planes = 1;
  std::int64_t uplink_Bps = 0;  // of one uplink when spines are derived; 0: a port's rate
};
Result<AnyFabric> MakeClos(const Spec& spec, const ClosRule& rule);

// The row that a spec names. REQUIRES: CheckTopologyName.
Result<AnyFabric> MakeFabric(const Spec& spec);

}  // namespace orrery::cluster
