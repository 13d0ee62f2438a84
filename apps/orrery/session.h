// What one call of the command line shares: where output goes, and how it ends.
//
// Results go to stdout, everything else to stderr. With `--json -` stdout holds exactly one JSON
// document, also on failure. Exit status: 0 success, 1 the job cannot run, 2 bad input or
// usage, 3 out of memory, disk or quota, or an internal error, 130 interrupted.
#pragma once

#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::app {

class Session {
 public:
  // Looks ahead for `--json -`, so that even a wrong usage is answered in JSON.
  Session(int argc, char** argv);

  bool json_to_stdout() const { return json_to_stdout_; }
  bool color() const { return color_; }

  // A verb's answer: as JSON to `json_target` ("-" or a file) when that is not empty, as text to
  // stdout unless JSON goes there.
  Status Answer(const std::string& json_target, std::string_view json, std::string_view text);
  void Note(std::string_view text) const;  // stderr

  // Prints the error, if it is one and no answer told it already, and returns the exit status.
  int Finish(const Status& status);

  // SQLite file of measured kernels: $ORRERY_MEASURED, or measured.sqlite beside the program; empty
  // when there is none.
  static std::string MeasuredDatabase();

 private:
  bool json_to_stdout_ = false;
  bool color_ = false;
  bool answered_ = false;
};

int ExitStatus(Code code);

}  // namespace orrery::app
