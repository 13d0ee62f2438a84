#include "orrery/workload/generators/schedules/schedules.h"

#include <array>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/workload/generators/schedules/passes.h"

namespace orrery::workload {

namespace {

constexpr std::array<ScheduleInfo, 8> kSchedules = {{
    {"gpipe", "all forward passes, then all backward passes (Huang et al. 2019)"},
    {"1f1b",
     "one forward, one backward: at most pp micro-batches in flight "
     "(Narayanan et al. 2019; Megatron without interleaving)"},
    {"1f1b-interleaved",
     "1F1B over vpp chunks per stage: the bubble shrinks by vpp "
     "(Narayanan et al. 2021; Megatron with interleaving)"},
    {"zb-h1",
     "1F1B with split backward passes: bubble (pp - 1)(TF + TB - TW), memory of 1F1B "
     "(Qi et al. 2023)"},
    {"zb-v",
     "two chunks a stage in V shape, split backward passes: no bubble when TF = TB = TW "
     "(Qi et al. 2023, 2024)"},
    {"dualpipe",
     "micro-batches from both ends, every part of the model on two stages, split backward passes "
     "(DeepSeek-V3 2024)"},
    {"dualpipe-v",
     "DualPipe folded: two chunks a stage in V shape, the model once (Sea AI Lab 2025)"},
    {"given", "a list of passes a stage from a file (docs/formats/schedule.md)"},
}};

}  // namespace

std::span<const ScheduleInfo> Schedules() { return kSchedules; }

Result<Schedule> FindSchedule(std::string_view name) {
  std::vector<std::string_view> valid;
  for (std::size_t i = 0; i < kSchedules.size(); ++i) {
    if (kSchedules[i].name == name) return static_cast<Schedule>(i);
    valid.push_back(kSchedules[i].name);
  }
  return InvalidInput("{}", UnknownName("schedule", Printable(name), valid));
}

void WriteSchedule(Schedule schedule, ProgramWriter* w) {
  switch (schedule) {
    case Schedule::kGpipe:
      return WriteGpipe(w);
    case Schedule::k1f1b:
      return Write1f1b(w);
    case Schedule::k1f1bInterleaved:
      return Write1f1bInterleaved(w);
    case Schedule::kZbH1:
      return WriteZeroBubbleH1(w);
    case Schedule::kZbV:
      return WriteZeroBubbleV(w);
    case Schedule::kDualPipe:
      return WriteDualPipe(w);
    case Schedule::kDualPipeV:
      return WriteDualPipeV(w);
    case Schedule::kGiven:
      return WritePasses(w->plan().parallel.given->stages[static_cast<std::size_t>(w->stage())], w);
  }
  ORRERY_CHECK(false, "every schedule is written");
}

bool ReducesInBackward(const ProgramWriter& w) {
  if (w.reduces_each()) return true;
  // torch's schedules reduce behind the last pass; without stages FSDP's hooks do, in it.
  if (w.plan().keeps_units()) return w.plan().parallel.pp == 1 && w.plan().framework.prefetch;
  return w.plan().framework.overlap_grad_reduce &&
         (w.first() || !w.plan().framework.align_grad_reduce);
}

}  // namespace orrery::workload
