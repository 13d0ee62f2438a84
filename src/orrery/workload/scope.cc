#include "orrery/workload/scope.h"

namespace orrery::workload {

void AddScope(const Model& model, const Plan& plan, HostEra host, constants::Scope* scope) {
  if (host != HostEra::kNone) scope->Add(host == HostEra::kCore ? "core" : "python");
  if (host == HostEra::k2021 || host == HostEra::kCore) scope->Add("batches");
  if (plan.parallel.cp > 1) scope->Add("cp");
  if (plan.batch.object_store) scope->Add("object_store");
  if (plan.precision.low != LowPrecision::kNone) scope->Add("fp8");
  if (plan.framework.attention == AttentionBackend::kFlash1) scope->Add("flash1");
  if (model.experts.count > 0) scope->Add("experts");
  if (model.experts.count > 0 && host != HostEra::kNone) scope->Add("grouped");
  if (model.mamba.heads > 0) scope->Add("mamba");
}

}  // namespace orrery::workload
