// One line for each congestion control: its file has its parameters, defaults and source.
#pragma once

#include "orrery/network/packet/control.h"

namespace orrery::network::packet {

ControlInfo None();
ControlInfo Dcqcn();
ControlInfo DcqcnMellanox();
ControlInfo Hpcc();
ControlInfo Pint();
ControlInfo Timely();
ControlInfo Dctcp();
ControlInfo Swift();
ControlInfo Mprdma();
ControlInfo Ndp();
ControlInfo Eqds();
ControlInfo Nscc();

}  // namespace orrery::network::packet
