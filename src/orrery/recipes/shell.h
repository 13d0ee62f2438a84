// A launch script read for the command that it ends in: what bash would have done with the words
// that a training script's author writes, without running anything.
//
// Read: variables with their defaults (${A:-8}), arrays (ARGS=(…), ARGS+=(…), "${ARGS[@]}"),
// integer arithmetic, quotes, line continuations, comments, `if` on tests that the script decides,
// `case`, the first turn of a `for`, here documents and the files they become, the text behind
// `bash -c`, #SBATCH lines, scripts that are sourced or started (beside it or above). A function's
// body is read where it stands. Where the script lies follows from its path: $0, BASH_SOURCE, cd,
// and what pwd, dirname, basename, readlink and realpath write. Not run: other commands and their
// output, loops on conditions; what hangs on them is unknown, and carries the variable's name.
// Bounded: bytes, words, depth.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::recipes {

struct Word {
  std::string text;
  std::string unknown;  // the first variable in it that the script does not set; empty: none
  std::int32_t line = 0;
};

struct Script {
  std::vector<std::vector<Word>> commands;  // in order, expanded; assignments are none
  std::map<std::string, Word> exported;     // every scalar variable with its last value
  // #SBATCH --nodes=4 and -N 4: ("nodes", "4"), long names where they have one.
  std::vector<std::pair<std::string, Word>> directives;
  // What "cat <<EOT > FILE" and "echo … > FILE" write, by the file's name.
  std::map<std::string, Word> files;
  int files_taken = 0;             // other scripts that were read where this one names them
  std::vector<std::string> notes;  // what was decided without knowing: "line 12: …"
};

// `variables` are what the user says of them: they win over the script's assignments. What the
// script is started with are "1", "2" and so on, "@" and "#".
Result<Script> ReadScript(std::string_view text, const std::string& name,
                          const std::map<std::string, std::string>& variables);

}  // namespace orrery::recipes
