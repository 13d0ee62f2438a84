// libFuzzer's entry: ORRERY_FUZZ_TARGET names the target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/targets.h"

namespace {

const orrery::fuzz::Target& Chosen() {
  const char* name = std::getenv("ORRERY_FUZZ_TARGET");
  for (const orrery::fuzz::Target& target : orrery::fuzz::Targets()) {
    if (name != nullptr && target.name == name) return target;
  }
  std::fputs("ORRERY_FUZZ_TARGET names none of the targets:\n", stderr);
  for (const orrery::fuzz::Target& target : orrery::fuzz::Targets()) {
    std::fprintf(stderr, "  %.*s\n", static_cast<int>(target.name.size()), target.name.data());
  }
  std::exit(2);
}

}  // namespace

// Before anything else, so that a name that is none only lists the targets.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  (void)Chosen();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const orrery::fuzz::Target& target = Chosen();
  target.run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
