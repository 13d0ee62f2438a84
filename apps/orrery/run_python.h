// The Python halves of the program: packages in the folder python/ beside it.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::app {

// Runs $ORRERY_PYTHON (else python3) with these arguments; packages beside this program are found
// before others. Its output is this program's. The exit status, or why it could not be run.
Result<int> RunPython(const std::vector<std::string>& arguments);

// The same in place of this program; returns only when that fails.
Status BecomePython(const std::vector<std::string>& arguments);

}  // namespace orrery::app
