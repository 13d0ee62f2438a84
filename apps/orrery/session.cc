#include "session.h"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/results/json.h"

namespace orrery::app {
namespace {

// A closed pipe (orrery … | head) is no error worth a message; a full disk is.
Status Print(std::FILE* to, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), to) == text.size() && std::fflush(to) == 0)
    return {};
  if (errno == EPIPE) return {};
  return ResourceError("cannot write to stdout: {}", strerror(errno));
}

}  // namespace

int ExitStatus(Code code) {
  switch (code) {
    case Code::kOk:
      return 0;
    case Code::kInfeasible:
      return 1;
    case Code::kInvalidInput:
      return 2;
    case Code::kResource:
      return 3;
    case Code::kInterrupted:
      return 130;
  }
  return 3;
}

Session::Session(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word == "--json=-") json_to_stdout_ = true;
    if (word == "--json" && i + 1 < argc && std::string_view(argv[i + 1]) == "-") {
      json_to_stdout_ = true;
    }
  }
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  color_ = isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
           (term == nullptr || std::string_view(term) != "dumb");
}

Status Session::Answer(const std::string& json_target, std::string_view json,
                       std::string_view text) {
  if (!json_target.empty() && json_target != "-") {
    WatchOutput(json_target);
    ORRERY_RETURN_IF_ERROR(WriteFile(json_target, json));
  }
  answered_ = true;
  return Print(stdout, json_to_stdout_ ? json : text);
}

void Session::Note(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
}

int Session::Finish(const Status& status) {
  if (status.ok()) return 0;
  if (json_to_stdout_ && !answered_) (void)Print(stdout, results::ErrorToJson(status));
  Note("orrery: " + status.message());
  return ExitStatus(status.code());
}

std::string Session::MeasuredDatabase() {
  if (const char* named = std::getenv("ORRERY_MEASURED"); named != nullptr && *named != '\0') {
    return named;
  }
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  if (length <= 0 || length == sizeof self) return "";
  std::string path(self, static_cast<std::size_t>(length));
  path.erase(path.rfind('/') + 1);
  path += "measured.sqlite";
  return access(path.c_str(), R_OK) == 0 ? path : "";
}

}  // namespace orrery::app
