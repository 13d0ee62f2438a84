// The training command of a launch script, and how many GPUs its launcher starts.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/recipes/reading.h"
#include "orrery/recipes/shell.h"
#include "orrery/recipes/table.h"

namespace orrery::recipes {

struct CommandLine {
  std::vector<Word> launcher;  // before the program
  std::string program;         // "pretrain_gpt.py", its folder taken off
  std::vector<Word> words;     // behind it
  Launch launch;
};

// The command with the most arguments that the table knows; the launcher (torchrun, srun, mpirun,
// deepspeed, accelerate) is what stands before its *.py.
Result<CommandLine> FindTraining(const Script& script, const Tables& tables,
                                 const std::string& name);
CommandLine CommandOf(const Script& script, const std::vector<Word>& all);
// Words as arguments of the tables. A flag may be followed by true or false.
void AddWords(const std::vector<Word>& words, const Tables& tables, Reading* reading);

}  // namespace orrery::recipes
