// A schedule as a list of passes a stage, and the program that runs it.
//
// Messages follow from the passes: a pass whose input another stage makes waits for its message,
// one whose output another stage takes starts sending it when it is done. Every kind of message
// (activations or gradients, to or from either neighbour) has a stream and a tag of its own, so
// that messages match in the order of the passes that make and take them. A receive is posted when
// the pass before it of its kind begins; sends are waited for at the end, or when 60 of a kind are
// under way. A chunk's gradients are reduced after its last pass. A pair in step
// (PipelinePass::in_step) waits for both inputs, and sends both outputs when it is done.
//
// Placement: chunk c of stage s is the (c·pp + s)-th part of the model in depth, so that the last
// stage sends to the first one's next chunk; in V shape odd chunks run backwards through the
// stages, so that the last chunk ends where the first begins. What must hold (else the engine's
// report names who waits for whom): each stage runs every forward once, every backward once, whole
// or as data and weight half in this order, after its forward; and of one kind of message the
// maker's passes come in the order of the taker's, unless the schedule matches by micro-batch: then
// receives are posted in the maker's order, and a pass waits for its own.
#pragma once

#include <span>
#include <vector>

#include "orrery/workload/generators/program_writer.h"

namespace orrery::workload {

// REQUIRES: the rules above, but for the order of messages.
void WritePasses(std::span<const PipelinePass> passes, ProgramWriter* w);

// ZB-H1, ZB-V and the two DualPipes as passes of one stage; and of any schedule below, for tests of
// its bubble.
std::vector<PipelinePass> ZeroBubbleH1Passes(int stage, int stages, int microbatches);
std::vector<PipelinePass> ZeroBubbleVPasses(int stage, int stages, int microbatches);
std::vector<PipelinePass> DualPipePasses(int stage, int stages, int microbatches);
std::vector<PipelinePass> DualPipeVPasses(int stage, int stages, int microbatches);

}  // namespace orrery::workload
