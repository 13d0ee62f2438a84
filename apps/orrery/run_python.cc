#include "run_python.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace orrery::app {
namespace {

std::string Interpreter() {
  const char* named = std::getenv("ORRERY_PYTHON");
  return named != nullptr && *named != 0 ? named : "python3";
}

// The environment with the folder python/ beside this program first on PYTHONPATH.
std::vector<std::string> Environment() {
  std::vector<std::string> variables;
  std::string search;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    constexpr std::string_view kName = "PYTHONPATH=";
    if (text.starts_with(kName)) {
      search = text.substr(kName.size());
    } else {
      variables.emplace_back(text);
    }
  }
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  if (length > 0 && length < static_cast<ssize_t>(sizeof self)) {
    std::string beside(self, static_cast<std::size_t>(length));
    beside = beside.substr(0, beside.rfind('/')) + "/python";
    search = search.empty() ? beside : beside + ":" + search;
  }
  variables.push_back("PYTHONPATH=" + search);
  return variables;
}

// A call's words and environment, as exec takes them.
class Call {
 public:
  explicit Call(const std::vector<std::string>& arguments)
      : words_{Interpreter()}, environment_(Environment()) {
    words_.insert(words_.end(), arguments.begin(), arguments.end());
  }
  const std::string& program() const { return words_.front(); }
  std::vector<char*> words() { return Pointers(&words_); }
  std::vector<char*> environment() { return Pointers(&environment_); }
  Status Failed(int error) const {
    return ResourceError("cannot run {}: {}; $ORRERY_PYTHON names the Python to use", program(),
                         std::strerror(error));
  }

 private:
  static std::vector<char*> Pointers(std::vector<std::string>* texts) {
    std::vector<char*> list;
    for (std::string& text : *texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  }
  std::vector<std::string> words_, environment_;
};

}  // namespace

Result<int> RunPython(const std::vector<std::string>& arguments) {
  Call call(arguments);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, call.program().c_str(), nullptr, nullptr,
                                  call.words().data(), call.environment().data());
  if (failed != 0) return call.Failed(failed);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return ResourceError("cannot wait for {}", call.program());
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

Status BecomePython(const std::vector<std::string>& arguments) {
  Call call(arguments);
  execvpe(call.program().c_str(), call.words().data(), call.environment().data());
  return call.Failed(errno);
}

}  // namespace orrery::app
