// The calls of NCCL that a program made, from what NCCL writes about them: its log with
// NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL, or the JSON lines of its inspector plugin.
//
// A log has a line a call ("AllReduce: opCount 1a sendbuff … count 1024 datatype 7 op 0 root 0 comm
// 0x… [nranks=8] stream 0x…") and one a communicator ("comm 0x… rank 0 nranks 8 … commId 0x… - Init
// COMPLETE"); prefixes of launchers and all other lines are passed over. It has no times. The
// inspector has a record a collective, with its size and what it took.
//
// Sources: NVIDIA/nccl src/enqueue.cc, src/init.cc; ext-profiler/inspector, format v4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

struct NcclCalls {
  struct Communicator {
    std::string process;  // host, process and device: who wrote the line
    std::string address;  // within its process
    std::string id;       // the same on all of its ranks
    std::int64_t rank = 0, ranks = 0;
  };
  struct Call {
    std::uint32_t communicator = 0;
    std::string name;           // "AllReduce"
    std::int64_t bytes = 0;     // of one rank: count times the element's size
    std::int64_t type = -1;     // ncclDataType_t; -1: unknown
    std::int64_t root = 0;      // of messages the peer
    std::string stream;         // "" unknown
    std::int64_t group = 0;     // of messages: those of one group call have one number
    std::int64_t took_ns = -1;  // -1: not said
    std::int64_t line = 0;
  };
  std::vector<Communicator> communicators;
  std::vector<Call> calls;  // in the order of lines
};

// Which of the two a text that begins so may be.
bool IsNcclLog(std::string_view start);
bool IsNcclInspector(std::string_view start);

// Adds what a file says to `calls`. Errors name file and line.
Status ParseNcclCalls(std::string_view text, const std::string& file, NcclCalls* calls);

}  // namespace orrery::formats
