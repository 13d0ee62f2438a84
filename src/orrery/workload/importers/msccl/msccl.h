// A collective of MSCCL's intermediate form (XML) as a Chakra graph of one GPU.
//
// Every step is a node behind the step before it in its thread block and the one it depends on: s
// sends, r and rrc receive, rcs, rrs and rrcs receive and then send; cpy, re and nop are work
// without a time. A message of `cnt` chunks has cnt · bytes / nchunksperloop bytes; its tag is the
// channel. Buffers and offsets are not looked at.
// Source: microsoft/msccl-tools' XML.
#pragma once

#include <cstdint>
#include <string>

#include "orrery/base/status.h"
#include "orrery/formats/xml.h"

namespace orrery::workload {

// The bytes of a trace file. `bytes`: of the collective.
Result<std::string> MscclToChakra(const formats::XmlElement& algo, std::uint32_t gpu,
                                  std::uint64_t bytes);

}  // namespace orrery::workload
