// Files of numbers: lines with commas between, '#' begins a comment, empty lines do not count.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery {

// Takes a line's number in the file, from 1, and its numbers.
using TakeNumbers = std::function<Status(int line, std::vector<double> numbers)>;

// Line by line, until one cannot be read or `take` refuses it. Numbers are from 0 to below 1e15.
// Errors name the file, the line and the cell, and say that "a line is `what` from 0 with commas
// between".
Status ReadNumberLines(std::string_view text, std::string_view name, std::string_view what,
                       const TakeNumbers& take);

}  // namespace orrery
