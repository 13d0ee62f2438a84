// The list of congestion controls.
#include <algorithm>
#include <array>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/network/packet/control/list.h"

namespace orrery::network::packet {
namespace {

const std::array kControls = {None(),  Dcqcn(), DcqcnMellanox(), Hpcc(), Pint(), Timely(),
                              Dctcp(), Swift(), Mprdma(),        Ndp(),  Eqds(), Nscc()};

}  // namespace

std::span<const ControlInfo> Controls() { return kControls; }

bool ReadsParameter(const ControlInfo& control, std::string_view key) {
  std::string_view rest = control.parameters;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (word == key) return true;
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return false;
}

Result<const ControlInfo*> FindControl(std::string_view name) {
  std::vector<std::string_view> valid;
  for (const ControlInfo& control : kControls) {
    if (control.name == name) return &control;
    valid.push_back(control.name);
  }
  return InvalidInput("packet.congestion_control: {}",
                      UnknownName("congestion control", Printable(name), valid));
}

}  // namespace orrery::network::packet
