// JSON Schemas of what Orrery writes.
#pragma once

#include <string>

namespace orrery::results {

std::string ResultSchema();  // orrery.result/1
std::string ErrorSchema();   // orrery.error/1

}  // namespace orrery::results
