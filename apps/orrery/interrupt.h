// Signals: Ctrl-C ends the process at once with status 130, a broken invariant with 3. What was
// being written is removed; files that stood before are whole (base/file.h).
#pragma once

#include <string>

namespace orrery::app {

// `json` — answer in JSON on stdout too.
void InstallSignalHandlers(bool json);

// A file that this call may be writing; its temporary file is removed when interrupted. At most 4.
void WatchOutput(const std::string& path);

}  // namespace orrery::app
