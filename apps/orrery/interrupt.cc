#include "interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "orrery/base/file.h"

namespace orrery::app {
namespace {

// A signal handler reaches nothing but what has a fixed address: the only globals of the program.
constexpr std::size_t kMaxOutputs = 4;
std::array<char[PATH_MAX], kMaxOutputs> temporary_files;
volatile sig_atomic_t outputs = 0;
volatile sig_atomic_t answer_in_json = 0;
char kept[PATH_MAX + 200] =
    "orrery: interrupted; nothing was written, older files are as they were\n";

std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");
volatile sig_atomic_t may_stop = 0;

void Put(int descriptor, const char* text) {
  [[maybe_unused]] const ssize_t ignored = write(descriptor, text, std::strlen(text));
}

void OnInterrupt(int signal) {
  if (may_stop != 0 && !stop_asked.exchange(true)) {
    Put(STDERR_FILENO, "\norrery: ending with what is found so far; once more to end at once\n");
    return;
  }
  for (sig_atomic_t i = 0; i < outputs; ++i) unlink(temporary_files[static_cast<std::size_t>(i)]);
  if (answer_in_json != 0) {
    Put(STDOUT_FILENO,
        "{\"schema\": \"orrery.error/1\", \"error\": {\"code\": \"interrupted\", \"message\": "
        "\"interrupted\"}}\n");
  }
  Put(STDERR_FILENO, kept);
  _exit(128 + signal);  // as shells say it: 130 for Ctrl-C, 143 for SIGTERM, 129 for a hang-up
}

// Ends with 3 and takes no memory on the way. `json` is what a program reads in place of an answer.
[[noreturn]] void End(const char* json, const char* line) {
  for (sig_atomic_t i = 0; i < outputs; ++i) unlink(temporary_files[static_cast<std::size_t>(i)]);
  if (answer_in_json != 0) Put(STDOUT_FILENO, json);
  Put(STDERR_FILENO, line);
  _exit(3);
}

void OnAbort(int) {
  End("{\"schema\": \"orrery.error/1\", \"error\": {\"code\": \"resource\", \"message\": "
      "\"internal error; stderr says which\"}}\n",
      "orrery: this is a bug; please report it with the job file\n");
}

// What no handler caught: on a worker thread, in a destructor, or in what handles it.
void OnTerminate() {
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      EndOutOfMemory();
    } catch (const std::exception& error) {
      Put(STDERR_FILENO, "orrery: internal error: ");
      Put(STDERR_FILENO, error.what());
      Put(STDERR_FILENO, "\n");
    } catch (...) {
    }
  }
  std::abort();
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void EndOutOfMemory() {
  End("{\"schema\": \"orrery.error/1\", \"error\": {\"code\": \"resource\", \"message\": "
      "\"out of memory\"}}\n",
      "orrery: out of memory; try fewer ranks, folding, or a machine with more memory\n");
}

void InstallSignalHandlers(bool json) {
  answer_in_json = json ? 1 : 0;
  std::set_terminate(OnTerminate);
  Handle(SIGINT, OnInterrupt);
  Handle(SIGTERM, OnInterrupt);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {  // nohup
    Handle(SIGHUP, OnInterrupt);
  }
  Handle(SIGABRT, OnAbort);
  Handle(SIGXFSZ, SIG_IGN);  // ulimit -f: the write fails and says so
  Handle(SIGPIPE, SIG_IGN);
}

void WatchOutput(const std::string& path) {
  const std::string temporary = TemporaryName(path);
  const auto slot = static_cast<std::size_t>(outputs);
  if (path.empty() || path == "-" || slot >= kMaxOutputs || temporary.size() >= PATH_MAX) return;
  for (std::size_t i = 0; i < slot; ++i) {
    if (temporary == temporary_files[i]) return;  // watched already
  }
  std::memcpy(temporary_files[slot], temporary.c_str(), temporary.size() + 1);
  outputs = static_cast<sig_atomic_t>(slot + 1);
}

const std::atomic<bool>* StopWhenInterrupted() {
  may_stop = 1;
  return &stop_asked;
}

void SayWhenInterrupted(const std::string& text) {
  const std::string line = text + "\n";
  if (line.size() < sizeof kept) std::memcpy(kept, line.c_str(), line.size() + 1);
}

}  // namespace orrery::app
