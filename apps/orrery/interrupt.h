// How the process ends early: Ctrl-C, SIGTERM or a hang-up end it at once with status 128 plus the
// signal's number (130 for Ctrl-C), a broken invariant or used-up memory with 3. What was being
// written is removed; files that stood before are whole (base/file.h).
#pragma once

#include <atomic>
#include <string>

namespace orrery::app {

// `json` — answer in JSON on stdout too.
void InstallSignalHandlers(bool json);

// Says so and ends the process with status 3.
[[noreturn]] void EndOutOfMemory();

// A file that this call may be writing, beside the one that Session::Answer writes and watches; its
// temporary file is removed when interrupted. At most 4; further ones are not watched.
void WatchOutput(const std::string& path);

// What stderr says in place of "nothing was written": where a verb keeps what is done so far.
void SayWhenInterrupted(const std::string& text);

// For a verb that ends by itself with what it has: the first interrupt sets the flag, a second one
// ends the process at once.
const std::atomic<bool>* StopWhenInterrupted();

}  // namespace orrery::app
