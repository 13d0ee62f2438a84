// What strangers' bytes are given to: one function a reader. A target returns whatever the reader
// says; a broken promise (a round trip that differs, an answer that does not verify) aborts.
#pragma once

#include <span>
#include <string_view>

namespace orrery::fuzz {

struct Target {
  std::string_view name;  // of its corpus: corpus/NAME/
  void (*run)(std::string_view bytes);
};
std::span<const Target> Targets();

}  // namespace orrery::fuzz
