// SimAI's command lines. Behind `orrery simulate --format simai` stand the options of its
// SimAI_analytical and SimAI_simulator as they are ("-g_p_s 8", "-busbw busbw.yaml"), which
// are no options of ours in form or name; here they become Orrery's own.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::app {

// Whether it is `simulate … --format simai`.
bool IsSimaiCommand(std::span<const std::string> words);

// The value of an environment variable, or null.
using VariableOf = std::function<const char*(const char*)>;

// The same command in Orrery's options, with SimAI's environment variables (AS_NVLS_ENABLE, …).
// What it has and Orrery does not is an error that says what to do instead; what changes nothing
// here is left out and named in `notes`. `words`: without the program.
Result<std::vector<std::string>> FromSimai(std::span<const std::string> words,
                                           const VariableOf& variable,
                                           std::vector<std::string>* notes);

}  // namespace orrery::app
