// Every format that a graph can be written in: one row each. `orrery convert` finds its own by the
// name of the file to write, or by --to.
//
// To add a format: a writer, a row in writers.cc, a line in docs/formats/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/engine/engine.h"

namespace orrery::job {

struct WriterInputs {
  const engine::Inputs* engine = nullptr;  // the graph, and where it runs
  bool has_cluster = false;                // one was named; else engine's plays no part
  int iterations = 1;                      // of jobs that repeat, where the form has no repeats
};

struct Written {
  std::string bytes;
  // Of forms of several files: what each is called behind the output's name, which is then a
  // prefix.
  std::vector<std::pair<std::string, std::string>> files;
  std::vector<std::string> lost;  // sentences: what the form cannot say
};

struct Writer {
  std::string_view name;         // of --to
  std::string_view ending;       // of files
  std::string_view description;  // one sentence
  Result<Written> (*write)(const WriterInputs& in);
};

std::span<const Writer> Writers();
// Of `format` if it is not empty, else by the ending of `path`; an unknown one names the others.
Result<const Writer*> FindWriter(const std::string& path, const std::string& format);

}  // namespace orrery::job
