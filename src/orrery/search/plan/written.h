// A plan of a space as a user runs it: the job file with the open keys set, and the arguments of
// Megatron-LM's pretrain scripts.
#pragma once

#include <cstdint>
#include <string>

#include "orrery/search/plan/open.h"

namespace orrery::search {

// YAML; read again it is the job of that point. Relative files stay relative.
Result<std::string> JobFileOf(const OpenJob& open, std::uint64_t point);

// A shell fragment, MODEL_PARALLEL_ARGS and TRAINING_ARGS, with the options of Megatron-LM's
// megatron/training/arguments.py that the plan decides; what Megatron has no option for is said in
// a comment. Data, checkpoints and the model's sizes stay the user's own.
Result<std::string> MegatronArguments(const OpenJob& open, std::uint64_t point);

}  // namespace orrery::search
