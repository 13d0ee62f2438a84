// Pipeline schedules: each writes the calls of one stage. One file per schedule; the list is in
// schedules.cc.
#pragma once

#include "orrery/workload/generators/program_writer.h"

namespace orrery::workload {

void WriteGpipe(ProgramWriter* w);
void Write1f1b(ProgramWriter* w);
void Write1f1bInterleaved(ProgramWriter* w);
void WriteZeroBubbleH1(ProgramWriter* w);
void WriteZeroBubbleV(ProgramWriter* w);
void WriteDualPipe(ProgramWriter* w);
void WriteDualPipeV(ProgramWriter* w);

// Between Begin and End of the stage's program.
void WriteSchedule(Schedule schedule, ProgramWriter* w);

// Whether the last backward of a stage of a schedule without interleaving reduces its buckets as
// they complete. Megatron with aligned reduction does so on the first stage only: the others reduce
// in the bubble, after their last exchange.
bool ReducesInBackward(const ProgramWriter& w);

}  // namespace orrery::workload
